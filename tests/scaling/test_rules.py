"""Built-in recommenders: utilisation with pending jobs, backlog of items."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.scaling.recommendation import Replicas
from windlass.scaling.rules import PENDING_JOBS, UTILISATION, UtilisationRule, by_backlog, by_utilisation


@pytest.mark.parametrize(
    ("utilisation", "pending", "current", "wanted"),
    [
        (0.81, 1, 4, 8),
        (0.81, 0, 4, 4),
        (0.8, 5, 4, 4),
        (0.29, 0, 5, 2),
        (0.29, 9, 5, 2),
        (0.3, 0, 4, 4),
        (0.0, 0, 1, 0),
        (1.0, 1, 0, 0),
    ],
)
def test_both_thresholds_are_strict(utilisation: float, pending: int, current: int, wanted: int) -> None:
    metrics = {UTILISATION: utilisation, PENDING_JOBS: pending}
    found = by_utilisation(UtilisationRule(), metrics, Replicas(current, 0, 100))
    assert (found.replicas, found.error) == (wanted, "")


def test_the_arithmetic_names_values_and_thresholds() -> None:
    found = by_utilisation(UtilisationRule(), {UTILISATION: 0.81, PENDING_JOBS: 1}, Replicas(4, 1, 6))
    assert found.arithmetic == "nvidia_gpu_utilization 0.81 > 0.8 and pending_aigc_jobs 1 > 0: 4 × 2 = 8"


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_metric_without_a_value_is_not_zero(value: float | None) -> None:
    metrics = {PENDING_JOBS: 3.0} if value is None else {UTILISATION: value, PENDING_JOBS: 3.0}
    found = by_utilisation(UtilisationRule(), metrics, Replicas(4, 1, 6))
    assert found.replicas == 4
    assert found.error == "nvidia_gpu_utilization: no value reported"


@given(st.integers(0, 10**6), st.integers(0, 5000))
def test_each_replica_has_at_most_a_batch_left(pending: int, batch: int) -> None:
    wanted = by_backlog(pending, batch, Replicas(1, 0, 200)).replicas
    assert (wanted - 1) * max(1, batch) < pending <= wanted * max(1, batch) or (pending == 0 and wanted == 0)

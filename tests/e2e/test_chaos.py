"""A few seeded rounds of each fault; `make chaos` runs them all."""

from __future__ import annotations

import pytest
from chaos_rounds import FAULTS, run_round
from example_counts import seeds


@pytest.mark.timeout(400)
@pytest.mark.seeds
@pytest.mark.parametrize("fault", seeds(FAULTS[::-1], 2))
def test_nothing_is_lost_started_or_given_twice(fault: str):
    outcome = run_round(20260101, fault)
    assert outcome.problems == [], outcome

"""Shares and demands: when a demand has no say, and what a queue that is the only one has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.plugins.kai.fair_share import KaiDivision, WindlassDivision
from windlass.plugins.volcano.queues.division import CapacityDivision, ProportionDivision
from windlass.spi.objects import Dialect, Queue

GPU = "nvidia.com/gpu"

some = st.integers(0, 12)
told = st.tuples(some, st.integers(0, 3), st.one_of(st.none(), st.integers(1, 12)), st.integers(0, 2), some)


def divided(division: Any, rows: list[tuple[Any, ...]], total: int) -> tuple[list[Any], Any]:
    """Queues by deserved amount, weight, limit, priority and demand, in whole GPUs, and their shares."""
    queues = []
    for at, (due, weight, limit, priority, demand) in enumerate(rows):
        spec = Queue(
            f"q{at}",
            weight=weight,
            priority=priority,
            deserved={GPU: due * 1000} if due else {},
            guarantee={GPU: 1000} if division.dialect is Dialect.VOLCANO and due > 9 else {},
            capability={} if limit is None else {GPU: limit * 1000},
            dialect=division.dialect,
        )
        asked = {GPU: demand * 1000, "pods": demand}
        queues.append(
            SimpleNamespace(
                spec=spec, name=spec.name, demand=asked, fair_share={}, usage={}, subqueues=(), mixed=False
            )
        )
    return queues, division.divide(None, queues, {GPU: total * 1000})


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([KaiDivision, WindlassDivision, ProportionDivision, CapacityDivision]),
    st.lists(told, min_size=1, max_size=4),
    st.integers(0, 20),
    st.integers(0, 3),
    st.integers(0, 15),
)
def test_a_demand_that_is_not_heeded_changes_nobodys_share(
    kind: Any, rows: list[tuple[Any, ...]], total: int, at: int, demand: int
) -> None:
    division, at = kind(), at % len(rows)
    queues, before = divided(division, rows, total)
    for view, share in zip(queues, before, strict=True):
        view.fair_share = share.fair
    rows[at] = (*rows[at][:4], demand)
    later, after = divided(division, rows, total)
    if not division.demand_matters(queues[at], queues[at].demand, later[at].demand):
        assert after == before


def test_one_more_that_waits_behind_many_is_not_heeded() -> None:
    for kind in (KaiDivision, WindlassDivision, ProportionDivision):
        (view, other), shares = divided(kind(), [(0, 1, None, 0, 9), (0, 1, None, 0, 2)], 8)
        view.fair_share, other.fair_share = shares[0].fair, shares[1].fair
        assert not kind().demand_matters(view, view.demand, {GPU: 10_000, "pods": 10})
        assert kind().demand_matters(view, view.demand, {GPU: 5000, "pods": 5})
        assert kind().demand_matters(other, other.demand, {GPU: 3000, "pods": 3})


@settings(max_examples=200, deadline=None)
@given(told, st.integers(0, 20), st.sampled_from([KaiDivision, WindlassDivision]))
def test_who_is_alone_has_what_the_rounds_would_give_him(row: tuple[Any, ...], total: int, kind: Any) -> None:
    (alone,) = divided(kind(), [row], total)[1]
    beside, _ = divided(kind(), [row, (0, 0, None, 0, 0)], total)[1]  # the other asks for nothing
    assert alone == beside

"""Random small clusters: what is noted from one plan of starts to the next says what a plan from the beginning does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reservation_runs import played

from windlass.engine.backfill.forecast import Forecast
from windlass.engine.backfill.planned_capacity import PlannedCapacity
from windlass.engine.backfill.reservation import Reservation
from windlass.engine.backfill.reservations import Reservations
from windlass.engine.state.statement import Statement

Found = tuple[list[str], dict[str, Forecast]]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Every plan is made both ways; counts those that amounts told, and the others."""
    counts = {"told": 0, "not told": 0}
    by_amounts, in_all = PlannedCapacity.plan, Reservations._forecast

    def both(self: Reservations, *given: object) -> Found:
        seen: list[Found | None] = []
        with monkeypatch.context() as inside:
            inside.setattr(PlannedCapacity, "plan", lambda *asked: seen.append(by_amounts(*asked)))
            found: Found = in_all(self, *given)  # type: ignore[arg-type]
        if seen[-1] is None:
            counts["not told"] += 1
            return found
        counts["told"] += 1
        assert seen[-1][0] == found[0]
        assert _view(seen[-1][1]) == _view(found[1])
        return seen[-1]

    monkeypatch.setattr(Reservations, "_forecast", both)
    return counts


def _view(forecasts: Mapping[str, Forecast]) -> dict[str, object]:
    return {
        key: (found.start, [(entry.key, row) for entry, row in found.placements])
        for key, found in forecasts.items()
    }


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_plan_is_what_it_would_be_from_its_beginning(backfill: str, compared: dict[str, int]) -> None:
    @settings(max_examples=8, deadline=None)
    @given(seed=st.integers(0, 1 << 32), queues=st.integers(1, 2))
    def play(seed: int, queues: int) -> None:
        played(Random(seed), backfill, queues)

    play()
    assert compared["told"]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_gangs_of_two_sizes_and_racks_are_planned_from_the_beginning(
    backfill: str, compared: dict[str, int]
) -> None:
    for seed in range(3):
        played(Random(seed), backfill, 2)
    assert compared["not told"] >= 3


@pytest.fixture
def forward(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Check that every group moved forward is so both ways; count those decided by amounts."""
    counts = {"asked": 0, "moved": 0}
    move = Reservations._move_forward
    by_amounts = PlannedCapacity.move_forward

    def both(self: Reservations, statement: Statement, now: float) -> None:
        def asked(
            planned: PlannedCapacity, kept: Sequence[Reservation], now: float
        ) -> dict[str, Forecast] | None:
            found = by_amounts(planned, kept, now)
            if found is not None:
                told = {r.group.key: known for r in kept if (known := r.reserved_counts()) is not None}
                groups = [r.group for r in kept]
                assert _view(found) == _view(self._forecaster.move_forward(statement, groups, now, told))
                counts["asked"] += 1
                counts["moved"] += len(found)
            return found

        with monkeypatch.context() as inside:
            inside.setattr(PlannedCapacity, "move_forward", asked)
            move(self, statement, now)

    monkeypatch.setattr(Reservations, "_move_forward", both)
    return counts


def test_who_is_moved_forward_is_where_a_plan_from_the_beginning_has_him(forward: dict[str, int]) -> None:
    @settings(max_examples=16, deadline=None)
    @given(seed=st.integers(0, 1 << 32), queues=st.integers(1, 2))
    def play(seed: int, queues: int) -> None:
        played(Random(seed), "conservative", queues, most=20, early=True)

    play()
    assert forward["moved"]
    assert forward["asked"] > forward["moved"] / 16

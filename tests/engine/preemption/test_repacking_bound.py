"""``engine.preemption.repacking_bound``: what moving could put together, never less than what it can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.preemption.repacking_bound import RepackingBound


class Kind:
    """A class of tasks that ask for so much of the only resource."""

    def __init__(self, units: int) -> None:
        self.vector = np.array([units])


def task(row: int, units: int) -> Any:
    return SimpleNamespace(row=row, cls=Kind(units))


def repacking(free: list[int], movable: list[tuple[int, int]]) -> RepackingBound:
    return RepackingBound([[units] for units in free], [task(row, units) for row, units in movable])


def test_whoever_is_moved_needs_a_place_as_well() -> None:
    pairs = [(row, 2) for row in (0, 0, 1)]
    assert repacking([0, 0, 2], pairs).could_hold(0, [2], 1)
    assert not repacking([0, 0, 1, 1], pairs).could_hold(0, [2], 1)  # two are left, but not together
    assert repacking([0, 0, 1, 1], [(0, 1), (0, 1), (1, 2)]).could_hold(0, [2], 1)
    assert not repacking([0, 0, 1], [(0, 1), (0, 1), (1, 2)]).could_hold(0, [2], 1)


def test_of_tasks_that_differ_those_that_ask_for_least_count() -> None:
    assert repacking([4], []).could_hold(0, [8, 4], 1)
    assert not repacking([4], []).could_hold(0, [8, 4], 2)
    assert repacking([8, 4], []).could_hold(0, [8, 4], 2)
    assert not repacking([6, 6], []).could_hold(0, [8, 4], 2)


def packs(free: list[int], items: list[int]) -> bool:
    """Whether all items have room, tried in every way."""
    if not items:
        return True
    for row in range(len(free)):
        if free[row] >= items[0]:
            free[row] -= items[0]
            found = packs(free, items[1:])
            free[row] += items[0]
            if found:
                return True
    return False


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=4),
    st.lists(st.integers(1, 6), min_size=1, max_size=2),
    st.sets(st.integers(0, 3)),
)
def test_what_can_be_had_is_never_denied(
    free: list[int], movable: list[tuple[int, int]], asked: list[int], moved: set[int]
) -> None:
    movable = [(row % len(free), units) for row, units in movable]
    going = [movable[at] for at in moved if at < len(movable)]
    there = list(free)
    for row, units in going:
        there[row] += units
    if packs(there, [*asked, *(units for _, units in going)]):
        assert repacking(free, movable).could_hold(0, asked, len(asked))

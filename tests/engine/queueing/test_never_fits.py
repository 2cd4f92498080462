"""Who could not run on empty nodes: ``engine.queueing.never_fits``."""

from __future__ import annotations

import pytest
from preemption_cluster import Arena

from windlass.engine.queueing.never_fits import NeverFits


@pytest.mark.parametrize(
    ("asked", "least", "beyond"),
    [
        ((4, 4), 2, False),
        ((4, 4, 4), 3, True),
        ((4, 4, 4), 2, False),
        ((5,), 1, True),
        ((4, 4, 1), 3, False),  # each size by itself
        ((4, 4, 4, 1), 4, True),
        ((4, 4, 4, 1), 3, False),
        ((5, 1), 2, True),
        ((5, 1, 1), 2, False),
    ],
)
def test_each_size_of_a_gangs_minimum_has_to_have_room_on_two_nodes_of_four(
    asked: tuple[int, ...], least: int, beyond: bool
) -> None:
    a = Arena("preempt").node("n0", 4).node("n1", 4).queue("q", deserved=0)
    a.runs("busy", "q", "n0:3", "n1:3").waits("gang", "q", *asked, min=least).cycle()
    engine = a.world.engine
    step = engine.state.groups["ns/gang"].step
    assert step is not None
    empty = NeverFits(engine.state.table)
    assert empty.never_holds(step) is beyond
    a.node("n2", 8)
    assert not empty.never_holds(step)

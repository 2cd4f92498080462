"""No group is started only to be evicted: groups that may stay are started first."""

from __future__ import annotations

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_cluster import Arena

from windlass.spi.objects import Dialect

Queue = tuple[int, int, int]
"""Deserved GPUs of a queue, GPUs of each of its gangs, and number of waiting gangs."""
queues = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(0, 4)), min_size=2, max_size=4)


def settled(told: list[Queue]) -> Arena:
    """Return the state after all gangs arrived at an empty node, and none ended."""
    a = Arena("allocate", "reclaim", dialect=Dialect.VOLCANO).node("n0", 12)
    for at, (deserved, _, _) in enumerate(told):
        a.queue(f"q{at}", deserved=deserved)
    for at, (_, size, count) in enumerate(told):
        for nth in range(count):
            a.waits(f"g{at}-{nth}", f"q{at}", *[1] * size, min=size)
    for _ in range(6):
        a.cycle()
        assert not a.decision.evictions, a.decision.evictions
    return a


@given(queues)
@settings(max_examples=examples(60), deadline=None)
def test_no_group_is_started_only_to_be_evicted(told: list[Queue]) -> None:
    """The gangs of each queue are equal, and any that fit in sum fit.

    So all gangs within their queues' shares are placed, and only the rest goes to
    others, for good.
    """
    settled(told)


def test_a_gang_beyond_its_share_lets_another_queue_within_its_own_go_first() -> None:
    """Though its queue holds less."""
    a = Arena("allocate", "reclaim", dialect=Dialect.VOLCANO).node("n0", 12)
    a.queue("q0", deserved=4).queue("q1", deserved=8)
    a.runs("before", "q1", "n0:4")
    a.waits("wide", "q0", *[1] * 6, min=6).waits("narrow", "q1", *[1] * 4, min=4)
    for _ in range(4):
        a.cycle()
        assert not a.decision.evictions
    assert {bind for bind in a.world.tasks if a.world.tasks[bind].node} == {
        "ns/before-0",
        *[f"ns/narrow-{at}" for at in range(4)],
    }

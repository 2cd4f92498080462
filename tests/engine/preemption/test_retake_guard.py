"""``engine.preemption.retake_guard``, and why: ``preempt`` takes nothing that ``reclaim`` would take back, and the two
end at one moment, whatever is drawn."""

from __future__ import annotations

from random import Random

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_cluster import Arena

from windlass.engine.deltas import GroupRemoved, TaskRemoved
from windlass.spi.objects import Dialect

URGENT, LOW = 1000, 1


def own(nodes: int, gpus: int, **deserved: int) -> Arena:
    a = Arena("allocate", "consolidation", "reclaim", "preempt", dialect=Dialect.VOLCANO, backfill="none")
    for at in range(nodes):
        a.node(f"n{at}", gpus)
    for name, amount in deserved.items():
        a.queue(name, deserved=amount)
    return a


def settle(a: Arena, most: int) -> list[set[str]]:
    """Who was evicted in each cycle of one moment, until nothing more is decided."""
    found: list[set[str]] = []
    for _ in range(most):
        decision = a.cycle(0.0)
        found.append(a.evicted)
        again = decision.wake_at is not None and decision.wake_at <= a.world.now
        if not (decision.binds or decision.evictions or again):
            return found
    raise AssertionError(f"decides without end: {found[-8:]}")


def in_turn() -> Arena:
    """In each queue a gang that needs all, and one of lower priority that its queue has a right to. Each of the latter
    takes back what the first of the other queue holds, and would make room for the first of its own."""
    a = own(4, 4, a=12, b=14)
    a.runs("a-all", "a", *[f"n{at}:4" for at in range(4)], min=4, priority=URGENT)
    a.waits("a-due", "a", 4, 4, 4, min=3, priority=LOW)
    a.waits("b-all", "b", 4, 4, 4, 4, min=4, priority=URGENT)
    return a.waits("b-due", "b", 4, 4, min=2, priority=LOW)


def test_reclaim_and_preempt_do_not_take_the_same_room_in_turn() -> None:
    a = in_turn()
    evicted = settle(a, 20)
    assert evicted[0] == {f"a-all-{at}" for at in range(4)}
    assert not any(evicted[1:])
    assert a.running() == {"b-due": 2}


def test_once_nobody_waits_who_could_take_it_back_the_urgent_one_has_it() -> None:
    a = in_turn()
    settle(a, 20)
    a.world.engine.apply([TaskRemoved(f"ns/a-due-{at}") for at in range(3)] + [GroupRemoved("ns/a-due")])
    a.cycle()
    assert a.evicted == {"b-due-0", "b-due-1"}
    settle(a, 20)
    assert a.running() == {"b-all": 4}


def crowded(due: int, *, never_preempts: bool = False) -> Arena:
    """Queue a holds its share in two groups of low priority, and two GPUs are free; ``due``: what a group of b asks
    for, that holds 2 of its 5."""
    a = own(3, 4, a=8, b=5)
    a.runs("low1", "a", "n0:4", priority=LOW).runs("low2", "a", "n1:4", priority=LOW)
    a.runs("other", "b", "n2:2", priority=LOW)
    a.waits("due", "b", due, priority=LOW, never_preempts=never_preempts)
    return a.waits("urgent", "a", 2, 2, 2, min=3, priority=URGENT)


@pytest.mark.parametrize(
    ("due", "never_preempts", "evicted"),
    [
        (3, False, {"low1-0", "low2-0"}),
        (4, False, {"low2-0"}),  # beyond its own share
        (3, True, {"low2-0"}),
    ],
)
def test_urgent_work_does_not_wait_behind_low_work_of_its_queue(
    due: int, never_preempts: bool, evicted: set[str]
) -> None:
    """What is free is its own as long as nobody would take it back; else it has what those leave who go."""
    a = crowded(due, never_preempts=never_preempts)
    a.cycle(follow=False)
    assert a.evicted == evicted
    a.follow()
    a.cycle()
    assert a.running()["urgent"] == 3


def test_from_whom_nobody_may_take_anything_back_takes_what_is_free() -> None:
    a = crowded(3)
    a.world.change_group("urgent", preemptible=False)
    a.cycle(follow=False)
    assert a.evicted == {"low2-0"}


@settings(max_examples=examples(120), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_moment_is_without_end(seed: int) -> None:
    """In each queue an urgent gang beyond its share and one of low priority within it, and some others, in any order:
    at no moment does the engine decide for ever."""
    rng = Random(seed)
    nodes, gpus = rng.choice(((2, 4), (3, 4), (4, 4)))
    shares = {name: rng.randrange(nodes // 2, nodes) * gpus + rng.randrange(gpus) for name in ("a", "b")}
    a = own(nodes, gpus, **shares)
    gangs = [
        (name, rng.randrange(share // gpus + 1, nodes + 1) * gpus, URGENT) for name, share in shares.items()
    ]
    gangs += [(name, rng.randrange(1, share // gpus + 1) * gpus, LOW) for name, share in shares.items()]
    small = [n for n in (1, 2, 3, 4, 8) if n <= nodes * gpus]
    gangs += [
        (rng.choice("ab"), rng.choice(small), rng.choice((LOW, 10, URGENT))) for _ in range(rng.randrange(3))
    ]
    rng.shuffle(gangs)
    for at, (queue, size, priority) in enumerate(gangs):
        pods = [gpus] * (size // gpus) if size >= gpus else [size]
        a.waits(f"g{at}", queue, *pods, min=len(pods), priority=priority)
        if rng.random() < 0.5:
            settle(a, 60)
    settle(a, 60)

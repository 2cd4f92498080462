"""Reservations start sooner when room is there sooner than was reckoned with, and nobody's starts later for that."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import TaskState


def cluster(backfill: str = "conservative", nodes: int = 1) -> Cluster:
    c = Cluster(EngineConfig(backfill=backfill)).queues("default")
    return c.nodes(*(f"n{i} gpu=8 cpu=64" for i in range(1, nodes + 1)))


def submit(c: Cluster, name: str, pods: int, seconds: float | None, gpus: int = 1) -> None:
    c.gang(name, pods, f"gpu={gpus}")
    if seconds is not None:
        c.change_group(name, run_estimate=float(seconds))


def run(c: Cluster, seconds: float = 0.0) -> float | None:
    """One cycle; whatever is bound runs at once. When the engine wants to be woken."""
    decision = c.cycle(seconds)
    for bind in decision.binds:
        c.change_task(bind.task.removeprefix("ns/"), state=TaskState.RUNNING, started=c.now)
    return decision.wake_at


def kept_for(c: Cluster) -> dict[str, float]:
    """Who has a reservation, and in how many seconds it starts."""
    return {key.removeprefix("ns/"): r.start - c.now for key, r in c.engine.reservations.by_group.items()}


@pytest.fixture
def line() -> Cluster:
    """Four cards until 100 s and four until 200; who waits needs eight, then six, then eight."""
    c = cluster()
    submit(c, "short", 4, 100)
    submit(c, "long", 4, 200)
    run(c)
    for name, pods in (("one", 8), ("two", 6), ("three", 8)):
        submit(c, name, pods, 50)
    run(c)
    assert kept_for(c) == {"one": 200.0, "two": 250.0, "three": 300.0}
    return c


def test_all_behind_one_that_ends_early_move_forward(line: Cluster) -> None:
    line.finish("long")
    wake = run(line, 10.0)
    assert kept_for(line) == {"one": 90.0, "two": 140.0, "three": 190.0}
    while wake is not None and wake <= line.now:
        wake = run(line)
    assert wake == line.now + 90.0, "there is nothing more to decide before"


def test_nobody_passes_who_would_delay_what_has_moved_forward(line: Cluster) -> None:
    line.finish("long")
    run(line, 10.0)
    submit(line, "late", 4, 150)
    run(line)
    assert (line.placed("late"), line.code("late")) == (0, "BehindInQueue")
    submit(line, "within", 4, 90)
    run(line)
    assert (line.placed("late"), line.placed("within")) == (0, 4)


def test_the_time_that_is_told_of_who_waits_is_the_one_that_is_kept_for_him(line: Cluster) -> None:
    line.finish("long")
    run(line, 10.0)
    assert {name: line.explain(name).estimate_seconds for name in kept_for(line)} == kept_for(line)


def test_who_ends_when_he_said_moves_nobody(line: Cluster) -> None:
    before = dict(line.engine.reservations.by_group)
    line.finish("short")
    run(line, 100.0)
    assert line.engine.reservations.by_group == before
    assert not line.engine.reservations.capacity_gained


def test_those_behind_one_that_is_gone_move_forward(line: Cluster) -> None:
    line.remove_group("one")
    run(line)
    run(line)
    assert kept_for(line) == {"two": 200.0, "three": 250.0}


def test_all_move_forward_when_a_node_comes(line: Cluster) -> None:
    """The first begins there at once."""
    line.nodes("n2 gpu=8 cpu=64")
    for _ in range(3):
        run(line)
    assert line.placed("one") == 8
    assert kept_for(line) == {"two": 50.0, "three": 100.0}


def test_all_move_forward_when_a_node_comes_on_which_nobody_begins_yet(line: Cluster) -> None:
    line.nodes("n2 gpu=4 cpu=64")
    run(line)
    assert line.placed("one") == 0
    assert kept_for(line) == {"one": 100.0, "two": 150.0, "three": 200.0}


def test_all_move_forward_when_one_ends_of_whom_nobody_knew_when() -> None:
    c = cluster(nodes=2)
    submit(c, "known", 8, 100)
    submit(c, "unknown", 8, None)
    run(c)
    submit(c, "one", 8, 50)
    submit(c, "two", 8, 50)
    run(c)
    assert kept_for(c) == {"one": 100.0, "two": 150.0}
    c.finish("unknown")
    for _ in range(3):
        run(c)
    assert c.placed("one") == 8
    assert kept_for(c) == {"two": 50.0}


def test_the_one_reservation_of_easy_stays() -> None:
    c = cluster("easy")
    submit(c, "short", 4, 100)
    submit(c, "long", 4, 200)
    run(c)
    submit(c, "one", 8, 50)
    run(c)
    c.finish("long")
    run(c, 10.0)
    assert kept_for(c) == {"one": 190.0}


def pair(second: float, seconds: float = 500) -> Cluster:
    """Two nodes, of which the first is full until 300 s, the other until ``second``; ``one`` and ``two`` need a node
    each, and are due then."""
    c = cluster(nodes=2)
    submit(c, "first", 1, 300, gpus=8)
    submit(c, "other", 1, second, gpus=8)
    run(c)
    submit(c, "one", 1, seconds, gpus=8)
    submit(c, "two", 1, seconds, gpus=8)
    run(c)
    return c


def nodes_kept(c: Cluster) -> dict[str, str]:
    return {
        r.group.key.removeprefix("ns/"): name
        for r in c.engine.reservations.by_group.values()
        for name in r.nodes.values()
    }


def test_two_change_places_where_both_start_no_later() -> None:
    """``one`` begins at once on the node that was kept for ``two``, and ``two`` when it was to, on the other."""
    c = pair(300)
    there = nodes_kept(c)
    assert kept_for(c) == {"one": 300.0, "two": 300.0}
    c.finish("first" if c.node_of("first-0") == there["two"] else "other")
    run(c, 10.0)
    assert c.node_of("one-0") == there["two"]
    assert nodes_kept(c) == {"two": there["one"]}
    assert kept_for(c) == {"two": 290.0}


def test_nobody_moves_to_where_he_would_delay_one_behind_him() -> None:
    """``one`` is due 300 on the first node, of which half is taken for long, and ``two``, who needs a whole one, on the
    other at the same moment. When half of that is free, ``one`` may not begin there, as it would be there at 300."""
    c = cluster(nodes=2)
    submit(c, "always", 1, 5000, gpus=4)
    submit(c, "first", 1, 300, gpus=4)
    submit(c, "other", 1, 300, gpus=4)
    submit(c, "beside", 1, 300, gpus=4)
    run(c)
    assert c.node_of("always-0") == c.node_of("first-0") != c.node_of("other-0") == c.node_of("beside-0")
    submit(c, "one", 1, 500, gpus=4)
    submit(c, "two", 1, 500, gpus=8)
    run(c)
    there = nodes_kept(c)
    assert there == {"one": c.node_of("first-0"), "two": c.node_of("other-0")}
    assert kept_for(c) == {"one": 300.0, "two": 300.0}
    c.finish("other")
    run(c, 10.0)
    run(c)
    assert (nodes_kept(c), kept_for(c)) == (there, {"one": 290.0, "two": 290.0})
    assert c.code("one") == "BehindInQueue"


def test_a_dump_keeps_whether_there_is_room_sooner(line: Cluster) -> None:
    """Loaded before the cycle that looks at it."""
    line.finish("long")
    twin = Engine.load(line.engine.dump(), default_plugins())
    assert twin.dump() == line.engine.dump()
    decisions = [engine.cycle(line.now + 10.0) for engine in (twin, line.engine)]
    assert decisions[0].wake_at == decisions[1].wake_at
    assert twin.reservations.as_records() == line.engine.reservations.as_records()

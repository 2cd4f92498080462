"""``backfill: strict``: nobody passes the first of his queue."""

from __future__ import annotations

from cluster_dsl import Cluster
from engine_fuzz import PLAIN, Op, Player, ops, start, twin_world
from hypothesis import given, settings

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins


def cluster(*queues: str) -> Cluster:
    return Cluster(EngineConfig(backfill="strict")).queues(*(queues or ("default",))).nodes("n1 gpu=8 cpu=64")


def full() -> Cluster:
    """Five GPUs run, a gang of six stands first, and one of one GPU behind it."""
    c = cluster()
    c.gang("runs", 5, "gpu=1")
    c.cycle()
    c.gang("first", 6, "gpu=1")
    c.gang("small", 1, "gpu=1")
    c.cycle()
    return c


def test_who_would_fit_waits_behind_the_first_and_is_told_so() -> None:
    c = full()
    assert (c.placed("first"), c.placed("small")) == (0, 0)
    assert c.code("first") != "BehindInQueue"
    assert c.code("small") == "BehindInQueue"
    assert "behind ns/first" in c.explain("small").message


def test_all_go_once_the_first_goes() -> None:
    c = full()
    c.finish("runs")
    c.cycle()
    assert (c.placed("first"), c.placed("small")) == (6, 1)


def test_the_next_goes_when_the_first_is_cancelled() -> None:
    c = full()
    c.remove("first")
    c.cycle()
    assert c.placed("small") == 1


def test_the_first_of_higher_priority_goes_at_once() -> None:
    c = full()
    c.gang("urgent", 3, "gpu=1", priority=5)
    c.cycle()
    assert c.placed("urgent") == 3
    assert c.placed("small") == 0


def test_who_becomes_the_first_and_does_not_fit_holds_up_the_others() -> None:
    c = full()
    c.gang("urgent", 4, "gpu=1", priority=5)
    c.cycle()
    assert c.placed("urgent") == 0
    c.remove("first")
    c.cycle()
    assert c.placed("small") == 0
    assert "behind ns/urgent" in c.explain("small").message


def test_other_queues_are_not_held_up() -> None:
    c = cluster("default", "other")
    c.gang("first", 9, "gpu=1")
    c.gang("small", 1, "gpu=1", queue="other")
    c.cycle()
    assert c.placed("small") == 1


def test_room_that_the_first_cannot_use_wakes_nobody() -> None:
    c = full()
    c.finish("runs-0")
    c.cycle()
    assert (c.placed("first"), c.placed("small")) == (0, 0)


@given(ops())
@settings(max_examples=40, deadline=None)
def test_the_books_are_right_and_a_copy_decides_alike(history: list[Op]) -> None:
    config = EngineConfig(backfill="strict")
    c = Cluster(config)
    player = Player(start(c), PLAIN)
    player.play([*history, Op("cycle")])
    copy = Engine.load(c.engine.dump(), default_plugins())
    twin = twin_world(c, copy)
    assert c.cycle(1.0).binds == twin.cycle(1.0).binds

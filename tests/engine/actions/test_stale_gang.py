"""The action ``stalegangeviction``: a gang that stays below its minimum gives back what it holds."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_dsl import Cluster

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import EvictionFailed
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import SubGroup, TaskState


def broken(n: int = 3, lost: int = 1, **group: Any) -> Cluster:
    """A gang of ``n`` that ran and has lost members; ``group``: what is special about it."""
    c = Cluster(EngineConfig(actions=("allocate", "stalegangeviction"))).queues("default").nodes("n1 gpu=4")
    c.gang("g", n, "gpu=1")
    c.change_group("g", **({"stale_grace": 60.0} | group))
    c.cycle()
    for i in range(lost):
        c.change_task(f"g-{i}", state=TaskState.FAILED)
    return c


def evicted(c: Cluster, seconds: float = 1.0) -> list[str]:
    decision = c.cycle(seconds)
    assert {eviction.action for eviction in decision.evictions} <= {"stale-gang"}
    return sorted(eviction.task.removeprefix("ns/") for eviction in decision.evictions)


def test_what_is_left_of_a_gang_is_evicted_after_its_grace() -> None:
    c = broken()
    first = c.cycle()
    seen = c.now
    assert first.evictions == ()
    assert first.wake_at == seen + 60
    assert c.status["ns/g"].stale_since == seen
    assert evicted(c, 59.0) == []
    assert evicted(c, 1.0) == ["g-1", "g-2"]
    assert c.status["ns/g"].stale_since is None
    assert evicted(c, 100.0) == []


@pytest.mark.parametrize("grace", [None, -1.0])
def test_a_grace_that_is_taken_back_stops_the_clock(grace: float | None) -> None:
    c = broken()
    c.cycle()
    c.change_group("g", stale_grace=grace)
    assert evicted(c, 100.0) == []
    assert c.status["ns/g"].stale_since is None
    c.change_group("g", stale_grace=60.0)
    assert evicted(c) == []
    assert evicted(c, 60.0) == ["g-1", "g-2"]


def test_a_gang_whose_object_is_gone_is_left_alone() -> None:
    c = broken()
    c.cycle()
    c.remove_group("g")
    assert evicted(c, 100.0) == []


@pytest.mark.parametrize("grace", [None, -1.0])
def test_without_a_grace_it_may_stay(grace: float | None) -> None:
    c = broken(stale_grace=grace)
    c.cycle()
    assert evicted(c, 1e6) == []


def test_a_grace_of_nothing_ends_at_once() -> None:
    assert evicted(broken(stale_grace=0.0)) == ["g-1", "g-2"]


def test_the_group_may_say_since_when() -> None:
    c = broken()
    c.change_group("g", stale_since=c.now - 59.0)
    assert evicted(c, 1.0) == ["g-1", "g-2"]


def test_a_gang_that_lost_nobody_is_left_alone() -> None:
    c = broken(lost=0)
    c.cycle()
    assert evicted(c, 1000.0) == []


def test_a_gang_of_which_a_member_has_ended_well_is_left_alone() -> None:
    c = broken(4, 1)
    c.change_task("g-3", state=TaskState.SUCCEEDED)
    c.cycle()
    assert evicted(c, 1000.0) == []


def test_an_elastic_gang_above_its_minimum_is_left_alone() -> None:
    c = broken(min_member=2)
    c.cycle()
    assert evicted(c, 1000.0) == []


def test_the_clock_stops_when_the_minimum_is_reached_again_and_starts_anew() -> None:
    c = broken()
    c.cycle()
    c.change_group("g", stale_since=c.now)
    c.add_tasks("g", 1, "gpu=1")
    assert [bind.task for bind in c.cycle(50.0).binds] == ["ns/g-3"]
    assert c.status["ns/g"].stale_since is None
    assert evicted(c, 100.0) == []
    c.change_task("g-3", state=TaskState.FAILED)
    assert evicted(c, 1.0) == [], "what the group says of the time before does not count again"
    assert evicted(c, 59.0) == []
    assert evicted(c, 1.0) == ["g-1", "g-2"]


def test_a_part_below_its_minimum_is_enough() -> None:
    c = Cluster(EngineConfig(actions=("stalegangeviction",))).queues("default").nodes("n1 gpu=4")
    c.gang("g", 3, "gpu=1", min=0)
    c.change_group("g", subgroups=(SubGroup("a", "", 2), SubGroup("b", "", 1)), stale_grace=60.0)
    for i, part in enumerate("aab"):
        c.change_task(f"g-{i}", subgroup=part, state=TaskState.RUNNING, node="n1")
    assert evicted(c) == []
    assert evicted(c, 100.0) == []
    c.change_task("g-2", state=TaskState.FAILED)
    c.cycle()
    assert evicted(c, 60.0) == ["g-0", "g-1"]


def test_an_eviction_that_fails_is_tried_again_after_a_pause() -> None:
    c = broken(stale_grace=0.0)
    assert evicted(c) == ["g-1", "g-2"]
    c.engine.apply([EvictionFailed("ns/g-1", c.tasks["ns/g-1"].uid, "no")])
    assert evicted(c, 0.5) == []
    assert evicted(c, 1.0) == ["g-1"]


def test_the_clock_is_kept_in_a_dump() -> None:
    c = broken()
    c.cycle()
    twin = Engine.load(c.engine.dump(), default_plugins())
    assert twin.dump() == c.engine.dump()
    assert [e.task for e in twin.cycle(c.now + 60.0).evictions] == ["ns/g-1", "ns/g-2"]

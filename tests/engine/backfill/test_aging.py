"""A gang that has waited for too long gets nodes emptied, though nobody knows how long anything runs."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster
from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import TaskState

HOUR = 3600.0


def cluster(aging: float = HOUR, nodes: int = 4) -> Cluster:
    found = Cluster(EngineConfig(aging_seconds=aging)).queues("default")
    return found.nodes(*(f"n{i + 1} gpu=4 cpu=64" for i in range(nodes)))


def stream(c: Cluster, hours: float, big: str) -> float | None:
    """One-GPU jobs come and go, each for an hour, always more than there is room for; when ``big`` starts."""
    begin, number = c.now, 0
    ends = {f"first{i}": c.now + 240.0 * i for i in range(15)}
    while c.now < begin + hours * HOUR:
        for _ in range(2):
            number += 1
            c.gang(f"s{number}", 1, "gpu=1")
        for bind in c.cycle(240.0).binds:
            name = bind.group.removeprefix("ns/")
            ends[name] = c.now + HOUR
        if c.placed(big):
            return c.now - begin
        for name in [name for name, end in ends.items() if end <= c.now]:
            del ends[name]
            c.remove(name)
    return None


@pytest.fixture
def scene() -> Cluster:
    c = cluster()
    for i in range(16):
        c.gang(f"first{i}", 1, "gpu=1")
    c.cycle()
    c.gang("big", 2, "gpu=4")
    c.cycle()
    assert c.placed("big") == 0
    return c


def test_without_aging_it_starves_and_with_it_starts() -> None:
    starts = {}
    for aging in (0.0, HOUR):
        c = cluster(aging)
        for i in range(15):
            c.gang(f"first{i}", 1, "gpu=1")
        c.cycle()
        c.gang("big", 2, "gpu=4")
        starts[aging] = stream(c, 5, "big")
    assert starts[0.0] is None
    assert starts[HOUR] is not None
    assert starts[HOUR] <= 2 * HOUR + 480.0, "an hour of waiting, then no longer than the longest job"


def test_a_group_of_the_same_name_waits_from_when_it_was_made(scene: Cluster) -> None:
    """It is deleted and made again before anybody looks, as ``kubectl replace --force`` does."""
    scene.cycle(HOUR / 2)
    scene.change_group("big", uid="another", created=scene.now)
    scene.cycle()
    scene.cycle(HOUR / 2 + 60.0)
    assert not scene.engine.reservations.by_group, "half an hour of it was the earlier one's"
    scene.cycle(HOUR / 2)
    assert set(scene.engine.reservations.by_group) == {"ns/big"}


def test_what_becomes_free_on_the_chosen_nodes_is_kept(scene: Cluster) -> None:
    scene.cycle(HOUR)
    (slot,) = scene.engine.reservations.by_group.values()
    chosen = {scene.engine.state.table.names[row] for row in slot.rows}
    assert len(chosen) == 2
    there = [f"first{i}" for i in range(16) if scene.node_of(f"first{i}-0") in chosen]
    elsewhere = [f"first{i}" for i in range(16) if scene.node_of(f"first{i}-0") not in chosen]
    scene.remove(there[0])
    scene.gang("small", 1, "gpu=1")
    scene.cycle()
    assert scene.placed("small") == 0
    assert scene.code("small") == "BehindInQueue"
    scene.remove(elsewhere[0])
    scene.cycle()
    assert scene.placed("small") == 1
    for name in there[1:]:
        scene.remove(name)
    scene.cycle()
    assert scene.placed("big") == 2
    assert set(scene.where("big")) == chosen
    scene.cycle()
    assert not scene.engine.reservations.by_group


def test_short_work_may_not_pass_as_nobody_knows_the_start(scene: Cluster) -> None:
    scene.cycle(HOUR)
    (slot,) = scene.engine.reservations.by_group.values()
    chosen = {scene.engine.state.table.names[row] for row in slot.rows}
    scene.remove(next(f"first{i}" for i in range(16) if scene.node_of(f"first{i}-0") in chosen))
    scene.gang("short", 1, "gpu=1")
    scene.change_group("short", run_estimate=1.0)
    scene.cycle()
    assert scene.placed("short") == 0


def test_a_higher_priority_takes_what_is_kept(scene: Cluster) -> None:
    scene.cycle(HOUR)
    (slot,) = scene.engine.reservations.by_group.values()
    chosen = {scene.engine.state.table.names[row] for row in slot.rows}
    scene.remove(next(f"first{i}" for i in range(16) if scene.node_of(f"first{i}-0") in chosen))
    scene.gang("urgent", 1, "gpu=1", priority=5)
    scene.cycle()
    assert scene.placed("urgent") == 1


def test_the_nodes_with_most_room_are_emptied() -> None:
    c = cluster(nodes=3)
    c.gang("a", 4, "gpu=1")
    c.cycle()
    c.gang("b", 4, "gpu=1")
    c.cycle()
    c.gang("c", 2, "gpu=1")
    c.cycle()
    half = next(iter(c.where("c")))
    c.gang("big", 1, "gpu=4")
    c.cycle()
    c.cycle(HOUR)
    (slot,) = c.engine.reservations.by_group.values()
    assert {c.engine.state.table.names[row] for row in slot.rows} == {half}


def test_who_can_never_run_has_nothing_emptied() -> None:
    c = cluster()
    c.gang("never", 1, "gpu=5")
    c.cycle()
    c.cycle(2 * HOUR)
    assert not c.engine.reservations.by_group


def test_the_engine_asks_to_be_woken_when_somebody_has_waited_too_long(scene: Cluster) -> None:
    began = scene.engine.reservations.aging.since["ns/big"]
    assert scene.cycle(0.0).wake_at == began + HOUR


def restarted(c: Cluster, name: str) -> None:
    """A pod ends, and another comes under its name."""
    task = c.tasks[f"ns/{name}"]
    c.task(altered(task, uid=f"{task.uid}'", node="", devices=(), state=TaskState.PENDING))


def test_who_found_room_has_not_waited_since_he_found_none() -> None:
    c = cluster(nodes=1)
    c.gang("runs", 1, "gpu=1").cycle()
    c.gang("big", 4, "gpu=1").cycle()
    c.finish("runs")
    c.cycle()
    assert c.placed("big") == 4
    c.cycle(2 * HOUR)
    restarted(c, "big-0")
    c.gang("urgent", 1, "gpu=1", priority=5)
    c.cycle()
    assert (c.placed("big"), c.placed("urgent")) == (3, 1)
    assert not c.engine.reservations.by_group
    c.cycle(HOUR)
    assert list(c.engine.reservations.by_group) == ["ns/big"]


def test_another_of_the_same_name_has_not_waited_yet(scene: Cluster) -> None:
    scene.cycle(HOUR - 60)
    scene.remove("big")
    scene.cycle()
    scene.gang("big", 2, "gpu=4")
    scene.cycle()
    scene.cycle(60.0)
    assert not scene.engine.reservations.by_group


def test_an_elastic_group_has_nothing_emptied_by_its_own_leaving() -> None:
    """It has been promised room for one of two more, and has waited too long for the other."""
    c = cluster(nodes=1).nodes("n2 gpu=2 cpu=64")
    c.running("goes", "n1", "gpu=1").running("stays", "n2", "gpu=2")
    c.gang("grows", 5, "gpu=1", min=2).cycle()
    c.change_task("goes-0", state=TaskState.RELEASING)
    c.cycle()
    group = c.engine.state.groups["ns/grows"]
    assert (c.placed("grows"), group.nominations) == (3, 1)
    c.cycle(HOUR)
    (slot,) = c.engine.reservations.by_group.values()
    assert (slot.group.key, list(slot.nodes.values()), group.nominations) == ("ns/grows", ["n2"], 1)


def test_a_dump_keeps_it(scene: Cluster) -> None:
    scene.cycle(HOUR)
    twin = Engine.load(scene.engine.dump(), default_plugins())
    assert twin.dump() == scene.engine.dump()
    assert twin.reservations.as_records() == scene.engine.reservations.as_records() != []


@pytest.mark.parametrize("pods", [1, 2, 3, 4, 5, 6, 7])
def test_as_few_nodes_are_chosen_as_hold_the_gang(pods: int) -> None:
    c = cluster(nodes=7)
    for i in range(28):
        c.gang(f"first{i}", 1, "gpu=1")
    c.cycle()
    c.gang("big", pods, "gpu=4")
    c.cycle()
    c.cycle(HOUR)
    (slot,) = c.engine.reservations.by_group.values()
    assert len(slot.rows) == pods


def test_two_that_have_waited_for_too_long_let_the_engine_rest(scene: Cluster) -> None:
    scene.gang("other", 3, "gpu=4")
    scene.cycle()
    for _ in range(4):
        decision = scene.cycle(HOUR)
        for _ in range(3):
            decision = scene.cycle(0.0)
        assert decision.wake_at is None or decision.wake_at > scene.now
    scene.remove("first0")
    scene.gang("small", 1, "gpu=1")
    scene.cycle()
    assert len(scene.engine.reservations.by_group) == 1


def test_who_is_planned_begins_though_nodes_are_emptied_for_somebody_behind_him() -> None:
    """Nobody knows for how long he runs, so the other's start was not planned behind his. Both waited for each other on
    an empty node."""
    config = EngineConfig(aging_seconds=HOUR, backfill="conservative")
    c = Cluster(config).queues("default").nodes("n1 gpu=2").running("old", "n1", "gpu=2")
    c.change_group("old", run_estimate=2 * HOUR)
    c.change_task("old-0", started=c.now)
    c.gang("first", 1, "gpu=2").gang("second", 1, "gpu=1")
    c.cycle()
    c.cycle(HOUR)
    assert set(c.engine.reservations.by_group) == {"ns/first", "ns/second"}
    c.remove("old")
    c.settle()
    assert (c.placed("first"), c.placed("second")) == (1, 0)
    c.remove("first")
    c.settle()
    assert c.placed("second") == 1

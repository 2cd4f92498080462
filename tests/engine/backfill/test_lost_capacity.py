"""Room that will not be there: cards that have fallen ill come back from nobody, and closed nodes take nobody. Whoever
was to have it is planned anew at once, and not only when his time has come."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from cluster_dsl import GPU, NAMESPACE, Cluster
from device_fuzz import gpu, part

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device, Needs, Node, TaskState

HOUR = 3600.0


def cluster(
    backfill: str = "easy", cards: int = 8, nodes: int = 2, mode: DeviceMode = DeviceMode.PLAIN
) -> Cluster:
    c = Cluster(EngineConfig(backfill=backfill, aging_seconds=HOUR)).queues("default")
    devices = tuple(Device(i, GPU, "NVIDIA-H100-80GB-HBM3", 81_559, mode=mode) for i in range(cards))
    for i in range(nodes):
        c.nodes(Node(f"n{i + 1}", {"cpu": 64_000, "pods": 110, GPU: cards * 1000}, devices=devices))
    return c


def submit(c: Cluster, name: str, wants: Needs | str, seconds: float | None, pods: int = 1) -> None:
    c.gang(name, pods, wants)
    c.change_group(name, run_estimate=None if seconds is None else float(seconds))


def run(c: Cluster, seconds: float = 0.0) -> None:
    """A cycle; what was bound runs from now on."""
    for bind in c.cycle(seconds).binds:
        c.change_task(bind.task.removeprefix(f"{NAMESPACE}/"), state=TaskState.RUNNING, started=c.now)


def sicken(c: Cluster, node: str, ill: Collection[int]) -> None:
    """These cards of a node are ill, the others are well."""
    spec = c.node_specs[node]
    devices = tuple(replace(each, healthy=each.index not in ill) for each in spec.devices)
    c.nodes(replace(spec, devices=devices))


def close(c: Cluster, node: str, *, closed: bool = True) -> None:
    c.nodes(replace(c.node_specs[node], unschedulable=closed))


def kept(c: Cluster) -> dict[str, tuple[float, set[str]]]:
    """Who has a reservation: in how many seconds it starts, and on which nodes."""
    slots = c.engine.reservations.by_group.items()
    return {key.removeprefix(f"{NAMESPACE}/"): (r.start - c.now, set(r.nodes.values())) for key, r in slots}


@pytest.fixture
def full() -> Cluster:
    """All cards of one node run until 100 s, those of the other until 200."""
    c = cluster()
    for name, seconds in (("first", 100), ("second", 200)):
        submit(c, name, "gpu=8", seconds)
        run(c)
    return c


@pytest.mark.parametrize("told", ["before", "after"])
def test_nobody_is_promised_a_card_that_has_fallen_ill(full: Cluster, told: str) -> None:
    (node,), (other,) = full.where("first"), full.where("second")
    if told == "after":
        submit(full, "head", "gpu=8", 500)
        run(full)
        assert kept(full) == {"head": (100.0, {node})}
    sicken(full, node, [3])
    if told == "before":
        submit(full, "head", "gpu=8", 500)
    run(full)
    assert kept(full) == {"head": (200.0, {other})}
    sicken(full, node, [])
    full.finish("first")
    run(full, 100.0)
    assert full.where("head") == {node: 1}


def test_the_room_of_an_ill_card_does_not_cover_what_is_kept() -> None:
    """The head needs the two that are free now beside the one that is well of the two that become free."""
    c = cluster(cards=4, nodes=1)
    submit(c, "first", "gpu=2", 100)
    run(c)
    sicken(c, "n1", c.devices_of("first-0")[:1])
    submit(c, "head", "gpu=3", 500)
    run(c)
    assert kept(c) == {"head": (100.0, {"n1"})}
    submit(c, "long", "gpu=1", 1000)
    submit(c, "short", "gpu=1", 90)
    run(c)
    assert (c.placed("long"), c.placed("short")) == (0, 1)
    c.finish("first")
    c.finish("short")
    run(c, 100.0)
    assert c.placed("head") == 1


def test_nor_does_that_of_an_ill_card_that_others_share() -> None:
    """The head needs the whole card that is free beside the one that becomes free and is well."""
    c = cluster(cards=3, nodes=1, mode=DeviceMode.EITHER)
    submit(c, "shared", part("cpu=1", gpu(milli=500, memory_milli=500)), 100)
    submit(c, "whole", "gpu=1", 100)
    run(c)
    sicken(c, "n1", c.devices_of("shared-0"))
    submit(c, "head", "gpu=2", 500)
    run(c)
    assert kept(c) == {"head": (100.0, {"n1"})}
    submit(c, "long", "gpu=1", 1000)
    run(c)
    assert c.placed("long") == 0
    c.finish("shared")
    c.finish("whole")
    run(c, 100.0)
    assert c.placed("head") == 1


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_who_was_to_have_a_node_that_is_closed_is_planned_anew(backfill: str) -> None:
    c = cluster(backfill)
    for name, seconds in (("first", 100), ("second", 200)):
        submit(c, name, "gpu=8", seconds)
        run(c)
    (node,), (other,) = c.where("first"), c.where("second")
    submit(c, "head", "gpu=8", 500)
    run(c)
    assert kept(c) == {"head": (100.0, {node})}
    close(c, node)
    twin = Engine.load(c.engine.dump(), default_plugins())
    assert twin.dump() == c.engine.dump()
    run(c)
    twin.cycle(c.now)
    assert kept(c) == {"head": (200.0, {other})}
    assert twin.reservations.as_records() == c.engine.reservations.as_records()
    close(c, node, closed=False)
    run(c)
    again = (100.0, {node}) if backfill == "conservative" else (200.0, {other})
    assert kept(c) == {"head": again}
    c.finish("first")
    run(c, 100.0)
    run(c)
    assert c.where("head") == {node: 1}


def test_other_nodes_are_emptied_in_the_place_of_those_that_are_closed() -> None:
    c = cluster(cards=4, nodes=3)
    for i in range(12):
        submit(c, f"first{i}", "gpu=1", None)
    run(c)
    submit(c, "big", "gpu=4", None)
    run(c)
    run(c, HOUR)
    (slot,) = c.engine.reservations.by_group.values()
    (node,) = slot.nodes.values()
    close(c, node)
    run(c)
    (slot,) = c.engine.reservations.by_group.values()
    (other,) = slot.nodes.values()
    assert other != node


def test_a_dump_keeps_that_nodes_are_others(full: Cluster) -> None:
    """Loaded before the cycle that looks at it."""
    submit(full, "head", "gpu=8", 500)
    run(full)
    sicken(full, next(iter(full.where("first"))), [0])
    twin = Engine.load(full.engine.dump(), default_plugins())
    assert twin.dump() == full.engine.dump()
    run(full)
    twin.cycle(full.now)
    assert twin.reservations.as_records() == full.engine.reservations.as_records() != []

"""What the world reports of cards: whose they are, where slices stand, before and after the cards are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import GPU, NAMESPACE, Cluster, needs
from device_fuzz import NPU, gpu, part

from windlass.engine.devices.share_table import TaskShare
from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.objects import Device, HeldSlice, Needs, Node, TaskState

H100 = "NVIDIA-H100-80GB-HBM3"


def node(n: int = 2, mode: DeviceMode = DeviceMode.EITHER, **rest: object) -> Node:
    devices = tuple(Device(i, GPU, H100, 81_559, mode=mode) for i in range(n))
    return replace(Node("n", {"cpu": 64_000, "pods": 110, GPU: n * 1000}, devices=devices), **rest)


def runs(
    c: Cluster, name: str, wants: Needs, *devices: int, slices: tuple[HeldSlice, ...] = ()
) -> tuple[TaskShare, ...]:
    c.gang(name, 1, wants)
    c.change_task(f"{name}-0", node="n", state=TaskState.RUNNING, devices=devices, slices=slices)
    return cuts(c, name)


def cuts(c: Cluster, name: str) -> tuple[TaskShare, ...]:
    return c.engine.state.tasks[f"{NAMESPACE}/{name}-0"].shares


def used(c: Cluster) -> int:
    table = c.engine.state.table
    return int(table.planes[table.rows["n"], 1, table.resources.codes[GPU]])


HALF = part("cpu=1", gpu(milli=500, memory_milli=500))


@pytest.mark.parametrize("known", [True, False], ids=["node first", "task first"])
def test_a_share_is_where_the_world_says(known: bool) -> None:
    c = Cluster().queues("default")
    if known:
        c.nodes(node())
    runs(c, "a", HALF, 1)
    c.nodes(node())
    assert cuts(c, "a") == (TaskShare(GPU, 1, 500, 40_779),)
    assert used(c) == 1000
    c.gang("b", 1, needs("gpu=1 cpu=1"))
    c.cycle()
    assert c.devices_of("b-0") == [0]


@pytest.mark.parametrize("known", [True, False], ids=["node first", "task first"])
def test_a_slice_stands_where_the_world_says(known: bool) -> None:
    c = Cluster().queues("default")
    if known:
        c.nodes(node(1, DeviceMode.SLICED))
    runs(c, "a", part("cpu=1", gpu(profile="3g.40gb")), 0, slices=(HeldSlice(0, "3g.40gb", 0),))
    c.nodes(node(1, DeviceMode.SLICED))
    assert cuts(c, "a") == (TaskShare(GPU, 0, profile="3g.40gb", start=0),)
    c.gang("b", 2, part("cpu=1", gpu(profile="3g.40gb")), min=1)
    c.cycle()
    assert [(s.profile, s.start) for s in c.engine.state.tasks[f"{NAMESPACE}/b-0"].devices] == [
        ("3g.40gb", 4)
    ]
    assert c.placed("b") == 1


def test_a_memory_claim_has_a_slice_if_the_world_says_so_and_else_a_share() -> None:
    c = Cluster().queues("default").nodes(node())
    claim = part("cpu=1", gpu(memory_mib=9_000))
    assert runs(c, "a", claim, 0, slices=(HeldSlice(0, "1g.10gb", 3),)) == (
        TaskShare(GPU, 0, profile="1g.10gb", start=3),
    )
    assert runs(c, "b", claim, 1) == (TaskShare(GPU, 1, 0, 9_000),)


def test_who_reports_no_card_is_packed_and_else_counts_as_a_whole_one() -> None:
    c = Cluster().queues("default").nodes(node(1))
    assert runs(c, "a", HALF) == (TaskShare(GPU, 0, 500, 40_779),)
    assert runs(c, "b", HALF) == (TaskShare(GPU, 0, 500, 40_779),)
    c.overcommitted = True
    assert runs(c, "d", HALF) == (TaskShare(GPU, -1, 1000),)
    assert used(c) == 2000
    c.remove("d")
    assert used(c) == 1000


def test_cards_in_the_order_of_needs_plain_ones_first() -> None:
    devices = (*node().devices, Device(0, NPU, "Ascend910", 32_768), Device(1, NPU, "Ascend910", 32_768))
    c = Cluster().queues("default")
    c.nodes(node(devices=devices, allocatable={"cpu": 64_000, "pods": 110, GPU: 2000, NPU: 2000}))
    wants = part("cpu=1 gpu=1", DeviceNeed(NPU, milli=500), DeviceNeed(NPU, milli=200, count=2))
    c.gang("a", 1, wants)
    c.cycle()
    entry = c.engine.state.tasks[f"{NAMESPACE}/a-0"]
    told = [(s.resource, s.index, s.milli) for s in entry.devices]
    assert told[0][0] == GPU
    assert [(r, milli) for r, _, milli in told[1:]] == [(NPU, 500), (NPU, 200), (NPU, 200)]
    before = entry.shares
    c.change_task("a-0", state=TaskState.RUNNING)
    assert entry.shares == before


def test_another_card_that_the_world_reports_counts() -> None:
    c = Cluster().queues("default").nodes(node())
    c.gang("a", 1, HALF)
    c.cycle()
    assert c.devices_of("a-0") == [0]
    c.change_task("a-0", devices=(1,))
    assert cuts(c, "a")[0].index == 1
    c.gang("b", 1, needs("gpu=1 cpu=1"))
    c.cycle()
    assert c.devices_of("b-0") == [0]


def test_a_card_that_goes_while_it_is_shared_is_known_until_it_is_left() -> None:
    c = Cluster().queues("default").nodes(node())
    c.gang("a", 1, HALF)
    c.cycle()
    c.overcommitted = True
    c.nodes(node(devices=(replace(node().devices[1]),), allocatable={"cpu": 64_000, "pods": 110, GPU: 1000}))
    assert cuts(c, "a") == (TaskShare(GPU, 0, 500, 40_779),)
    c.remove("a")
    c.cycle()
    assert used(c) == 0
    c.nodes(node())
    c.gang("b", 2, HALF)
    c.cycle()
    assert c.placed("b") == 2


def test_a_sick_card_takes_nobody_and_keeps_who_is_on_it() -> None:
    c = Cluster().queues("default").nodes(node())
    c.gang("a", 1, HALF)
    c.cycle()
    sick = (replace(node().devices[0], healthy=False), node().devices[1])
    c.nodes(node(devices=sick))
    c.gang("b", 1, HALF)
    c.cycle()
    assert (c.devices_of("a-0"), c.devices_of("b-0")) == ([0], [1])
    c.remove("a")
    c.gang("d", 1, needs("gpu=1 cpu=1"))
    c.cycle()
    assert c.placed("d") == 0
    c.nodes(node())
    c.cycle()
    assert c.devices_of("d-0") == [0]

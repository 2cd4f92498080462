"""``fgd`` about one node in plain integers: the same as of the arrays, whatever stands on the devices."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from device_views import GPU, Box, Cards, part, plain, whole
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.deltas import GroupRemoved, NodeUpserted, TaskRemoved
from windlass.engine.devices.plain_view import PlainDevices
from windlass.engine.devices.share_table import HELD_SIDE, NOMINATED_SIDE, RELEASING_SIDE, TaskShare
from windlass.engine.nodes.table import NOMINATED, RELEASING, USED
from windlass.engine.nodes.view import TableView
from windlass.plugins.devices.fgd import Fgd
from windlass.plugins.devices.fragmentation import PodDemand, WorkloadMix
from windlass.plugins.devices.scarcity import Scarcity
from windlass.plugins.nodes.binpack import Binpack
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device, Needs, Node
from windlass.spi.scoring import PlainDeviceRanks, PlainDeviceScore

MODELS = ("Tesla-T4", "NVIDIA-A100-SXM4-80GB", "", "NVIDIA-H100-80GB-HBM3")
OTHER = "amd.com/gpu"
KINDS = (
    part(300),
    part(500, cpu=8, models=("A100",)),
    part(0, memory_mib=9_000),
    part(0, memory_milli=250, models_not=("T4",)),
    part(1, cpu=16, profile="1g.10gb"),
    part(700, min_memory_mib=20_000),
    whole(1),
    whole(2, cpu=4, models=("T4",)),
    whole(4, cpu=24),
    plain(12),
    Needs(()),
)
mixes = st.lists(
    st.tuples(
        st.builds(
            PodDemand,
            st.sampled_from([0, 1000, 8000, 16000, 32000]),
            st.sampled_from([1, 250, 500, 1000]),
            st.sampled_from([1, 1, 2, 4]),
            st.sampled_from([(), ("A100",), ("T4", "H100")]),
        )
        | st.just(PodDemand(4000)),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda item: item[0],
).map(WorkloadMix)
cards = st.builds(
    Device,
    index=st.integers(0, 3),
    resource=st.sampled_from([GPU, GPU, OTHER]),
    model=st.sampled_from(MODELS),
    memory_mib=st.sampled_from([0, 15_360, 81_559]),
    healthy=st.sampled_from([True, True, False]),
    mode=st.sampled_from([DeviceMode.PLAIN, DeviceMode.PLAIN, DeviceMode.EITHER]),
)
boxes = st.lists(cards, max_size=4, unique_by=lambda device: (device.resource, device.index)).map(tuple)
takes = st.tuples(
    st.integers(0, 2),
    st.sampled_from([GPU, OTHER]),
    st.integers(0, 3),
    st.sampled_from([(300, 2_000), (500, 500), (120, 0), (0, 9_000)]),
    st.sampled_from([(HELD_SIDE,), (HELD_SIDE, RELEASING_SIDE), (NOMINATED_SIDE,)]),
)
amounts = st.tuples(
    st.integers(0, 2),
    st.sampled_from([USED, RELEASING, NOMINATED]),
    st.sampled_from([("cpu", 9_000), ("pods", 3), (GPU, 1000), (GPU, 2500), (OTHER, 1000)]),
)


def cluster(nodes: list[tuple[Device, ...]], policies: Sequence[object] = ()) -> Cards:
    found = Cards(Box("z", 1), policies=policies)
    for at, devices in enumerate(nodes):
        asked = {name: 1000 * sum(device.resource == name for device in devices) for name in (GPU, OTHER)}
        has = {"cpu": 32_000, "memory": 64 << 30, "pods": 20, **{k: v for k, v in asked.items() if v}}
        found.engine.apply([NodeUpserted(Node(f"n{at}", has, devices=devices))])
    return found


def is_the_same(found: Cards, plugin: Fgd, scarcity: Scarcity) -> None:
    table = found.engine.state.table
    view, single = TableView(table), PlainDevices(table.shares)
    resources = table.resources.values
    for needs in KINDS:
        scarce, scarce_of = scarcity.score(needs, view), scarcity.plain_devices(needs, resources)
        assert (scarce is None) is (scarce_of is None)
        score, of = plugin.score(needs, view), plugin.plain_devices(needs, resources)
        need = needs.devices[0] if needs.devices else None
        rank = plugin.rank(needs, need, view) if need else None
        ranker = plugin.plain_rank(needs, need, resources) if need else None
        assert (score is None) is (of is None)
        assert (rank is None) is (ranker is None)
        for row in range(table.height):
            one = TableView(table, np.array([row]))
            here = single.of(row)
            free = [int(one.available(name)[0]) for name in resources]
            used = [int(one.used(name)[0]) for name in resources]
            if scarce is not None and scarce_of is not None:
                assert scarce_of(free, used, here) == scarce[row], (needs, row)
            if score is not None and of is not None:
                assert of(free, used, here) == score[row], (needs, row)
            if rank is not None and ranker is not None:
                width = len(here.free_milli)
                assert list(ranker(free, here))[:width] == rank[row].tolist()[:width], (needs, row)


@given(
    mixes,
    st.lists(boxes, min_size=2, max_size=2),
    st.lists(takes, max_size=6),
    st.lists(amounts, max_size=4),
    st.integers(0, len(KINDS)),
)
@settings(max_examples=examples(60), deadline=None)
def test_one_node_in_plain_integers_is_the_same_as_the_arrays(mix, nodes, taken, moved, number) -> None:
    found = cluster(nodes)
    table = found.engine.state.table
    plugin, scarcity = Fgd(mix=mix), Scarcity()
    for needs in KINDS[:number]:
        found.ask(needs)
    scarcity.learn_from(0.0, found.stock)
    is_the_same(found, plugin, scarcity)  # on empty nodes: what is remembered of them must not show later
    for at, (row, resource, index, (milli, mib), sides) in enumerate(taken):
        for side in sides:
            if (resource, index) in table.shares.row(row).device_set.slots:
                table.shares.put(row, f"t{at}", (TaskShare(resource, index, milli, mib),), side, 1)
    for row, plane, (resource, units) in moved:
        table.planes[row, plane, table.column(resource)] += units
    is_the_same(found, plugin, scarcity)


@given(st.lists(boxes, min_size=2, max_size=2), st.lists(takes, max_size=8))
@settings(max_examples=60, deadline=None)
def test_cards_in_plain_values_are_those_of_the_arrays(nodes, taken) -> None:
    found = cluster(nodes)
    table = found.engine.state.table
    single = PlainDevices(table.shares)
    for at, (row, resource, index, (milli, mib), sides) in enumerate(taken):
        slot = table.shares.row(row).device_set.slots.get((resource, index))
        if slot is None:
            continue
        sliced = table.shares.row(row).device_set.devices[slot].geometry is not None and at % 2
        share = (
            TaskShare(resource, index, 0, 0, "1g.10gb", 0)
            if sliced
            else TaskShare(resource, index, milli, mib)
        )
        for side in sides:
            table.shares.put(row, f"t{at}", (share,), side, 1)
    for row in range(table.height):
        here, view = single.of(row), TableView(table, np.array([row])).devices()
        width = len(here.free_milli)
        assert here.free_milli == tuple(view.free_milli[0, :width].tolist())
        assert here.free_mib == tuple(view.free_mib[0, :width].tolist())
        assert here.kinds.usable == tuple((view.exists & view.healthy)[0, :width].tolist())
        assert here.kinds.models == tuple(view.models[code] for code in view.model[0, :width])
        assert here is single.of(row)


def test_it_is_offered() -> None:
    assert isinstance(Fgd(), PlainDeviceScore)
    assert isinstance(Fgd(), PlainDeviceRanks)


# ---------------------------------------------------------------------- in the engine


class ArraysOnly(Fgd):
    """Can only be asked about arrays."""

    plain_devices = None  # type: ignore[assignment]
    plain_rank = None  # type: ignore[assignment]


class Shapes(Scarcity):
    """See :class:`ArraysOnly`."""

    plain_devices = None  # type: ignore[assignment]


T4 = tuple(Device(at, GPU, "Tesla-T4", 15_360) for at in range(4))
A100 = tuple(Device(at, GPU, "NVIDIA-A100-SXM4-80GB", 81_920, link_group=at // 2) for at in range(4))


def history(seed: int, plugins: list[object]) -> list[list[object]]:
    """Return the decisions for arriving and ending pods, cycle by cycle."""
    chance = random.Random(seed)
    found = cluster([], plugins)
    shapes = [T4, A100, T4[:2], ()] if seed % 2 else [A100, A100[:2]]
    for at in range(8):
        devices = chance.choice(shapes)
        has = {"cpu": 64_000, "pods": 40, **({GPU: 1000 * len(devices)} if devices else {})}
        found.engine.apply([NodeUpserted(Node(f"n{at}", has, devices=devices))])
    said: list[list[object]] = []
    there: list[str] = []
    for now in range(12):
        there += [found.ask(chance.choice(KINDS)) for _ in range(chance.randrange(12))]
        binds = found.engine.cycle(30.0 * now).binds
        said.append([(bind.task, bind.node, bind.devices) for bind in binds])
        for key in [key for key in there if chance.random() < 0.15]:
            there.remove(key)
            found.engine.apply([TaskRemoved(f"{key}-0"), GroupRemoved(key)])
    return said


@pytest.mark.parametrize("seed", range(12))
def test_the_engine_decides_the_same_by_either(seed: int) -> None:
    plain_fgd, arrays = Fgd(), ArraysOnly()
    assert not isinstance(arrays, PlainDeviceScore | PlainDeviceRanks)
    by_plain = history(seed, [Binpack(yields_to=plain_fgd), plain_fgd, Scarcity()])
    by_arrays = history(seed, [Binpack(yields_to=arrays), arrays, Shapes()])
    assert by_plain == by_arrays
    assert sum(len(binds) for binds in by_plain) > 20
    assert not plain_fgd.silent

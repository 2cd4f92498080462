"""NUMA zones where room is made, and where a gang is placed at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from cluster_dsl import GIB, GPU, Cluster, needs, node
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from preemption_cluster import Arena

from windlass.spi.devices import DeviceNeed
from windlass.spi.numa import AlignmentPolicy, ContainerNeed, NumaNeed, NumaTopology, NumaZone
from windlass.spi.objects import Device, Group, Needs, Node, Task, TaskState
from windlass.spi.topology import Level, TopologyNeed


def zoned(name: str, gpus: int, zones: int = 2, policy: str = "single-numa-node") -> Node:
    """``gpus`` cards and 16 processors in each zone."""
    spec = node(f"{name} cpu={16 * zones} gpu={gpus * zones} mem={64 * zones}")
    amounts = tuple(sorted({"cpu": 16_000, "memory": 64 * GIB, GPU: gpus * 1000}.items()))
    cards = tuple((GPU, index, index // gpus) for index in range(gpus * zones))
    found = NumaTopology(
        tuple(NumaZone(i, amounts, amounts) for i in range(zones)), AlignmentPolicy(policy), cards=cards
    )
    return replace(spec, zones=found)


def asking(gpus: int, cpu: int = 1) -> Needs:
    whole = needs(f"gpu={gpus} cpu={cpu} mem=1")
    return replace(whole, zones=NumaNeed((ContainerNeed(whole.request),), guaranteed=True))


class Zoned(Arena):
    """Groups of one whose pods run on given cards, or wait."""

    def pod(self, name: str, gpus: int, priority: int, where: str = "", cards: tuple[int, ...] = ()) -> None:
        self._age += 1
        key = f"ns/{name}"
        self.world.group(
            Group(key, self.key("q"), priority, created=float(self._age), uid=name, dialect=self.dialect)
        )
        task = Task(f"{key}-0", f"u-{name}", key, replace(asking(gpus), dialect=self.dialect))
        if where:
            task = altered(task, state=TaskState.RUNNING, node=where, devices=cards, started=1.0)
        self.world.task(task)


@pytest.mark.parametrize("cards", [[0, 1, 2, 3, 4, 5, 6, 7], [0, 4, 1, 5, 2, 6, 3, 7]])
def test_no_more_are_evicted_than_one_zone_holds(cards: list[int]) -> None:
    arena = Zoned("allocate", "preempt")
    arena.world.nodes(zoned("n1", 4))
    arena.queue("q", deserved=None)
    for at, card in enumerate(cards):
        arena.pod(f"low{at}", 1, 40, "n1", (card,))
    arena.pod("high", 4, 60)
    evicted = [eviction.task.removeprefix("ns/") for eviction in arena.cycle().evictions]
    zones = {cards[int(task.removeprefix("low").removesuffix("-0"))] // 4 for task in evicted}
    assert len(evicted) == 4
    (zone,) = zones
    arena.cycle()
    assert arena.world.devices_of("high-0") == [4 * zone + i for i in range(4)]


def test_work_is_moved_to_free_a_zone() -> None:
    arena = Zoned("allocate", "consolidation")
    arena.world.nodes(zoned("n1", 4), zoned("n2", 4))
    arena.queue("q", deserved=None)
    for name, where, cards in (
        ("a", "n1", (0,)),
        ("b", "n1", (4,)),
        ("c", "n2", (0,)),
        ("d", "n2", (4, 5, 6)),
    ):
        arena.pod(name, len(cards), 50, where, cards)
    arena.pod("whole", 4, 60)
    for _ in range(4):
        arena.cycle()
    assert len({card // 4 for card in arena.world.devices_of("whole-0")}) == 1
    assert all(arena.world.placed(name) == 1 for name in "abcd")


@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4))), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 5)), min_size=1, max_size=4),
    st.sampled_from(("single-numa-node", "restricted", "best-effort")),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_gang_placed_at_once_is_placed_as_pod_by_pod(
    layout: list[tuple[int, int]], gangs: list[tuple[int, int, int]], policy: str
) -> None:
    def placed(at_once: bool) -> Counter[tuple[str, tuple[int, ...], object]]:
        cluster = Cluster().queues("default")
        for at, (gpus, zones) in enumerate(layout):
            cluster.nodes(zoned(f"n{at}", gpus, zones, policy))
        for number, (gpus, cpu, members) in enumerate(gangs):
            if at_once:
                cluster.gang(f"g{number}", members, asking(gpus, cpu), min=1)
            else:
                for member in range(members):
                    cluster.gang(f"g{number}-{member}", 1, asking(gpus, cpu))
            cluster.settle(quiet=0)
        found: Counter[tuple[str, tuple[int, ...], object]] = Counter()
        for entry in cluster.engine.state.tasks.values():
            if entry.row >= 0:
                cards = tuple(share.index for share in entry.devices)
                found[cluster.engine.state.table.names[entry.row], cards, entry.zones] += 1
        return found

    assert placed(at_once=True) == placed(at_once=False)


def with_cards(spec: Node) -> Node:
    """The node's cards, one by one."""
    assert spec.zones is not None
    devices = tuple(
        Device(index, GPU, "H100", 80_000, f"GPU-{index}", numa=zone) for _, index, zone in spec.zones.cards
    )
    return replace(spec, devices=devices)


def test_whole_cards_of_a_kind_come_from_the_zone_that_was_decided() -> None:
    cluster = Cluster().queues("default").nodes(with_cards(zoned("n1", 4)))
    cluster.gang("cpus", 1, asking(0, 12))
    cluster.cycle()
    (first,) = [e.zones for e in cluster.engine.state.tasks.values()]
    assert first is not None
    assert [zone for zone, _ in first.zones] == [0]
    wish = replace(asking(2, 8), devices=(DeviceNeed(GPU, 2, milli=1000, models=("H100",)),))
    cluster.gang("cards", 1, wish)  # zone 0 has cards, but no processors left
    cluster.cycle()
    assert cluster.devices_of("cards-0") == [4, 5]


def test_a_part_of_a_card_takes_the_card_from_its_zone() -> None:
    cluster = Cluster().queues("default").nodes(with_cards(zoned("n1", 2)))
    share = replace(needs("gpu=1"), devices=(DeviceNeed(GPU, milli=100, memory_milli=100),))
    cluster.gang("parts", 3, replace(share, request=((GPU, 100),)))
    cluster.cycle()
    assert {card for i in range(3) for card in cluster.devices_of(f"parts-{i}")} == {0}
    cluster.gang("pair", 2, asking(2), min=1)
    cluster.cycle()
    assert cluster.placed("pair") == 1
    assert [cluster.devices_of(f"pair-{i}") for i in range(2)] in ([[2, 3], []], [[], [2, 3]])
    cluster.finish("parts")
    cluster.cycle()
    assert cluster.placed("pair") == 2


def test_a_rack_whose_zones_never_hold_a_gang_is_told_so() -> None:
    cluster = Cluster().queues("default")
    for name in ("a1", "b1"):
        spec = zoned(name, 3)
        cluster.nodes(replace(spec, labels={**spec.labels, "rack": name[0]}))
    cluster.gang("three", 3, asking(2))  # by amounts each node holds three, by its zones two
    cluster.change_group("three", topology=TopologyNeed("racks", (Level("rack"),), required=0))
    cluster.cycle()
    said = cluster.explain("three")
    assert said.code == "ExceedsEveryDomain"
    assert said.waiting_helps == "no"
    assert "a would hold 2" in said.message


def test_no_wider_domain_is_advised_that_zones_rule_out() -> None:
    cluster = Cluster().queues("default")
    for name in ("a1", "a2", "b1", "b2"):
        spec = zoned(name, 2)
        cluster.nodes(replace(spec, labels={**spec.labels, "rack": name[0], "zone": "z"}))
    cluster.gang("three", 3, asking(4))  # by amounts a node holds one, the zone four; by NUMA zones none
    levels = (Level("zone"), Level("rack"))
    cluster.change_group("three", topology=TopologyNeed("racks", levels, required=1))
    cluster.cycle()
    said = cluster.explain("three")
    assert "a would hold 0" in said.message
    assert not [remedy for remedy in said.remedies if remedy.startswith("Require")]


def test_the_nearest_node_has_the_amounts_even_if_not_in_one_zone() -> None:
    cluster = Cluster().queues("default").nodes(zoned("big", 4), node("none cpu=64 mem=256"))
    cluster.gang("wide", 1, asking(5))
    cluster.cycle()
    nearest = cluster.explain("wide").nearest
    assert nearest is not None
    assert nearest.node == "big"
    assert nearest.lacks == "single-numa-node: 5 nvidia.com/gpu in one zone: no zone has more than 4"

"""Making room for gangs that have to be in one domain, and moving such gangs."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from cluster_dsl import GIB, GPU, NAMESPACE
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from preemption_cluster import Arena

from windlass.plugins import registry
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.nodes import FloatArray
from windlass.spi.objects import Node, SubGroup
from windlass.spi.plugins import DomainsView
from windlass.spi.topology import Level, TopologyNeed
from windlass.testing import Scene

RACK = TopologyNeed("racks", (Level("zone"), Level("rack")), required=1)
ZONE = TopologyNeed("racks", (Level("zone"), Level("rack")), required=0)
NEXT = TopologyNeed("racks", (Level("zone"), Level("rack")), preferred=1)


def arena(*actions: str, racks: int = 3, nodes: int = 2, gpus: int = 2) -> Arena:
    """Nodes ``rK-N``; racks 0 and 1 in zone a, the others in zone b."""
    a = Arena(*actions)
    for rack in range(racks):
        for at in range(nodes):
            name = f"r{rack}-{at}"
            amounts = {"cpu": 64_000, "memory": 64 * GIB, "pods": 110, GPU: gpus * 1000}
            labels = {"zone": "a" if rack < 2 else "b", "rack": f"r{rack}", "kubernetes.io/hostname": name}
            a.world.nodes(Node(name, amounts, labels))
    return a.queue("q", deserved=None)


def racks_of(places: dict[str, str]) -> set[str]:
    return {node.partition("-")[0] for node in places.values()}


def test_victims_are_taken_in_one_rack() -> None:
    """Rack 0 and 1 each hold one pod that may not go; the cheapest single victims are spread over all."""
    a = arena("allocate", "preempt")
    a.runs("firm", "q", "r0-0:1", "r1-1:1", priority=80, min=2)
    for at, node in enumerate(f"r{rack}-{n}" for rack in range(3) for n in range(2)):
        a.runs(f"low{at}", "q", f"{node}:1", priority=40)
    a.runs("mid", "q", "r2-0:1", "r2-1:1", "r0-1:1", "r1-0:1", priority=45, min=1)
    a.waits("high", "q", 1, 1, 1, min=3, priority=60, topology=RACK)
    a.cycle()
    assert len(a.promised) == 3
    assert len(racks_of(a.promised)) == 1
    (rack,) = racks_of(a.promised)
    assert {node.partition("-")[0] for node in (e.node for e in a.decision.evictions)} == {rack}
    assert len(a.decision.evictions) == 3


def test_nobody_goes_where_no_rack_could_hold_it_whoever_went() -> None:
    a = arena("allocate", "preempt")
    for at, node in enumerate(f"r{rack}-{n}" for rack in range(3) for n in range(2)):
        a.runs(f"low{at}", "q", f"{node}:2", priority=40)
    a.waits("high", "q", 1, 1, 1, 1, 1, min=5, priority=60, topology=RACK)
    a.cycle()
    assert not a.decision.evictions
    a.waits("wide", "q", 1, 1, 1, 1, 1, min=5, priority=60, topology=ZONE)
    a.cycle()
    assert len(a.promised) == 5
    assert racks_of(a.promised) == {"r0", "r1"}


def test_what_is_preferred_costs_no_more_victims() -> None:
    a = arena("allocate", "preempt")
    for at, node in enumerate(f"r{rack}-{n}" for rack in range(3) for n in range(2)):
        a.runs(f"low{at}", "q", f"{node}:1", priority=40)
    a.runs("firm", "q", *(f"r{rack}-{n}:1" for rack in range(3) for n in range(2)), priority=80, min=6)
    a.waits("high", "q", 1, 1, 1, min=3, priority=60, topology=NEXT)
    a.cycle()
    assert len(a.decision.evictions) == 3
    assert len(a.promised) == 3


def test_a_gang_keeps_to_the_rack_it_runs_in_when_it_claims_more() -> None:
    a = arena("allocate", "preempt")
    a.runs("low", "q", "r0-0:1", priority=40).runs("other", "q", "r1-0:2", priority=30)
    a._add("high", "q", [(1, "r0-0"), (2, "r0-1"), (1, "")], 3, 60, {"topology": RACK})
    a.cycle()
    assert a.evicted == {"low-0"}
    assert a.promised["high-2"] == "r0-0"


def test_reclaim_takes_from_one_rack() -> None:
    a = Arena("allocate", "reclaim")
    for rack in range(2):
        for at in range(2):
            name = f"r{rack}-{at}"
            amounts = {"cpu": 64_000, "memory": 64 * GIB, "pods": 110, GPU: 2000}
            a.world.nodes(Node(name, amounts, {"zone": "a", "rack": f"r{rack}"}))
    a.queue("busy", deserved=4).queue("claims", deserved=4)
    for at, node in enumerate(("r0-0", "r1-0", "r0-1", "r1-1") * 2):
        a.runs(f"b{at}", "busy", f"{node}:1")
    a.waits("g", "claims", 1, 1, 1, min=3, topology=RACK)
    a.cycle()
    assert len(a.decision.evictions) == 3
    assert len(racks_of(a.promised)) == 1


def test_a_gang_is_moved_within_what_it_asks_for() -> None:
    """Two pods of a gang that must be in one rack stand in the way; the other rack has room for both, or only
    for one."""
    for room in (2, 1):
        a = arena("allocate", "consolidation", racks=2, nodes=1, gpus=4)
        a.runs("pair", "q", "r0-0:1", "r0-0:1", min=2, topology=RACK)
        a.runs("stay", "q", f"r1-0:{4 - room}", preemptible=False)
        a.waits("large", "q", 4)
        a.cycle()
        if room == 2:
            assert a.evicted == {"pair-0", "pair-1"}
            assert {a.promised["pair-0"], a.promised["pair-1"]} == {"r1-0"}
        else:
            assert not a.decision.evictions


def test_a_gang_that_may_be_anywhere_makes_way_for_one_that_may_not() -> None:
    a = arena("allocate", "consolidation", racks=2, nodes=2, gpus=2)
    a.runs("one", "q", "r0-0:1")
    a.runs("two", "q", "r1-0:1")
    a.waits("g", "q", 2, 2, min=2, topology=RACK)
    a.cycle()
    assert len(a.decision.evictions) == 1
    assert len({a.promised["g-0"].partition("-")[0], a.promised["g-1"].partition("-")[0]}) == 1


# ---------------------------------------------------------------------- parts


def test_victims_for_parts_in_racks_of_their_own() -> None:
    a = arena("allocate", "preempt", racks=2, nodes=1, gpus=2)
    a.runs("low", "q", "r0-0:1", "r0-0:1", "r1-0:1", "r1-0:1", priority=40, min=1)
    parts = (SubGroup("a", min_members=2, topology=RACK), SubGroup("b", min_members=2, topology=RACK))
    a.waits("g", "q", 1, 1, 1, 1, min=4, priority=60, topology=ZONE, subgroups=parts)
    for at in range(4):
        key = f"{NAMESPACE}/g-{at}"
        a.world.task(altered(a.world.tasks[key], subgroup="ab"[at // 2]))
    a.cycle()
    assert len(a.decision.evictions) == 4
    assert len({a.promised["g-0"], a.promised["g-1"]}) == 1
    assert {a.promised["g-0"], a.promised["g-2"]} == {"r0-0", "r1-0"}


# ---------------------------------------------------------------------- brute force


@given(st.integers(0, 10**6))
@settings(max_examples=examples(80), deadline=None)
def test_room_is_made_exactly_if_some_rack_could_have_it(seed: int) -> None:
    """One-GPU pods, some of which may go: the gang is promised room if and only if some rack has enough that is
    free or may be freed, everything in one rack, and nobody goes elsewhere or in vain."""
    rng = Random(seed)
    racks, nodes, gpus = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
    a = arena("allocate", "preempt", racks=racks, nodes=nodes, gpus=gpus)
    free, may_go = dict.fromkeys(range(racks), 0), dict.fromkeys(range(racks), 0)
    number = 0
    for rack in range(racks):
        for at in range(nodes):
            for _ in range(gpus):
                kind = rng.choice(["free", "low", "low", "firm"])
                number += 1
                if kind == "free":
                    free[rack] += 1
                    continue
                a.runs(f"p{number}", "q", f"r{rack}-{at}:1", priority=40 if kind == "low" else 80)
                may_go[rack] += kind == "low"
    n = rng.randint(1, 4)
    a.waits("g", "q", *([1] * n), min=n, priority=60, topology=RACK)
    a.cycle()
    possible = [rack for rack in range(racks) if free[rack] + may_go[rack] >= n]
    at_once = [rack for rack in range(racks) if free[rack] >= n]
    if at_once:
        assert len(a.bound) == n
        return
    assert bool(a.promised) is bool(possible)
    if possible:
        (rack,) = racks_of(a.promised)
        assert {e.node.partition("-")[0] for e in a.decision.evictions} == {rack}
        assert len(a.decision.evictions) == n - free[int(rack[1:])]
        a.rest()
        assert a.running()["g"] == n


# ---------------------------------------------------------------------- Volcano's actions


def scene(actions: str) -> Scene:
    tiers = (
        PluginTier((PluginOption("priority"), PluginOption("gang", {"enablePreemptable": False}))),
        PluginTier(
            (PluginOption("predicates"), PluginOption("nodeorder"), PluginOption("network-topology-aware"))
        ),
    )
    found = Scene(config=SchedulerConfig(tuple(actions.split()), tiers))
    for rack in range(2):
        for at in range(2):
            found.node(f"r{rack}-{at}", gpu=2, labels={"zone": "a", "rack": f"r{rack}"})
    return found


@pytest.mark.parametrize("actions", ["allocate preempt", "allocate gangpreempt"])
def test_volcanos_actions_keep_to_one_rack(actions: str) -> None:
    s = scene(actions)
    for name in "abcd":
        s.gang(name, pods=2, min_member=1, gpu=1)
    s.cycle()
    assert sum(sum(s.where(name).values()) for name in "abcd") == 8
    s.gang("high", pods=3, gpu=1, priority=10, topology=RACK)
    decision = s.cycle()
    assert len(decision.evictions) == 3
    assert len({e.node.partition("-")[0] for e in decision.evictions}) == 1
    s.cycle()
    assert len({node.partition("-")[0] for node in s.where("high")}) == 1
    s.gang("wide", pods=5, gpu=1, priority=20, topology=RACK)
    assert s.cycle().evictions == ()


def test_the_catalogue_offers_the_plugin() -> None:
    told: list[str] = []
    arguments = {"weight": 2, "hypernode.gradient.evict.max-hypernodes": 8}
    option = PluginOption("network-topology-aware", {}, arguments)
    registry.build(SchedulerConfig(("allocate",), (PluginTier((option,)),)), told.append)
    assert told == [
        "hypernode.gradient.evict.max-hypernodes has no effect: preemption considers all HyperNodes"
    ]


class Emptiest:
    """A site's own rule: gangs go to the emptiest rack."""

    name = "emptiest"

    def domain_scores(self, request: Mapping[str, int], domains: DomainsView) -> FloatArray:
        return (domains.allocatable(GPU) - domains.used(GPU)).astype(float)


def test_a_policy_of_ones_own_chooses_the_domain() -> None:
    s = Scene(Emptiest())
    for rack in range(3):
        s.node(f"r{rack}-0", gpu=2 + rack, labels={"zone": "a", "rack": f"r{rack}"})
    s.gang("g", pods=2, gpu=1, topology=RACK)
    s.cycle()
    assert s.where("g") == {"r2-0": 2}
    s.gang("h", pods=3, gpu=1, topology=RACK)
    s.cycle()
    assert s.where("h") == {"r1-0": 3}


def test_one_of_a_gang_is_not_moved_away_from_the_other() -> None:
    """The pods of a pair that has to be in one zone may go one by one; only the other zone has room for one."""
    a = arena("allocate", "consolidation", racks=4, nodes=1, gpus=3)
    a.runs("firm", "q", "r0-0:3", "r1-0:1", "r3-0:1", preemptible=False, min=3)
    a.runs("pair", "q", "r2-0:2", "r3-0:2", min=2, topology=ZONE)
    a.waits("large", "q", 3)
    a.cycle()
    assert not a.decision.evictions
    assert a.rest() == 0

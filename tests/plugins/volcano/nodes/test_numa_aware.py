"""Volcano's ``numa-aware``, and policies that pods name themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import GIB, Cluster, needs, node

from windlass.plugins.registry import build
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.numa import AlignmentPolicy, ContainerNeed, NumaNeed, NumaTopology, NumaZone
from windlass.spi.objects import Dialect, Needs, Node

SINGLE, EFFORT = AlignmentPolicy.SINGLE_NUMA_NODE, AlignmentPolicy.BEST_EFFORT


def zoned(name: str, policy: AlignmentPolicy, *cpus: int, static: bool = True, obeys: bool = False) -> Node:
    """A node with so many processors in each zone."""
    spec = node(f"{name} cpu={sum(cpus)} mem=64")
    zones = []
    for number, count in enumerate(cpus):
        amounts = (("cpu", count * 1000), ("memory", 32 * GIB))
        zones.append(NumaZone(number, amounts, amounts))
    found = NumaTopology(tuple(zones), policy, exclusive_cpus=static, pinned_memory=False, obeys=obeys)
    return replace(spec, zones=found)


def wishing(policy: AlignmentPolicy | None, cpu: int = 4, dialect: Dialect = Dialect.VOLCANO) -> Needs:
    amounts = (("cpu", cpu * 1000), ("memory", GIB))
    whole = needs(f"cpu={cpu} mem=1")
    return replace(whole, dialect=dialect, zones=NumaNeed((ContainerNeed(amounts),), True, policy))


def cluster(*names: str, weight: int = 1) -> Cluster:
    options = [
        PluginOption(name, arguments={"weight": weight} if name == "numa-aware" else {}) for name in names
    ]
    plugins, _ = build(SchedulerConfig((), (PluginTier(tuple(options)),) if options else ()))
    return Cluster(plugins=plugins).queues("default")


def test_a_pod_that_names_a_policy_goes_to_nodes_that_follow_it() -> None:
    world = cluster("gang", "numa-aware")
    world.nodes(zoned("a", EFFORT, 8, 8), zoned("b", SINGLE, 8, 8), node("c cpu=16 mem=64"))
    world.gang("one", 1, wishing(SINGLE))
    world.gang("two", 1, wishing(AlignmentPolicy.RESTRICTED))
    world.cycle()
    assert world.where("one") == {"b": 1}
    assert world.code("two") == "ExceedsEveryNode"
    told = world.explain("two")
    assert "the pod asks for restricted, and the node's kubelet follows best-effort" in told.message
    assert "the pod asks for restricted, and nothing is known of the node's NUMA zones" in told.message
    assert "Ask for another NUMA policy than restricted, or for none." in told.remedies


def test_without_the_plugin_volcanos_pods_name_nothing() -> None:
    world = cluster("gang")
    world.nodes(zoned("a", EFFORT, 8, 8))
    world.gang("one", 1, wishing(SINGLE))
    world.cycle()
    assert world.where("one") == {"a": 1}


def test_a_node_whose_processors_are_not_given_whole_follows_no_policy() -> None:
    world = cluster("gang", "numa-aware")
    world.nodes(zoned("a", SINGLE, 8, 8, static=False))
    world.gang("one", 1, wishing(SINGLE))
    world.cycle()
    assert "CPU manager is not static" in world.explain("one").message


@pytest.mark.parametrize(("weight", "chosen"), [(1, "b"), (0, "a")])
def test_fewer_zones_are_better(weight: int, chosen: str) -> None:
    world = cluster("gang", "numa-aware", weight=weight)
    world.nodes(zoned("a", EFFORT, 3, 3), zoned("b", EFFORT, 1, 4))
    world.gang("one", 1, wishing(EFFORT))
    world.cycle()
    assert world.where("one") == {chosen: 1}


def test_a_node_that_obeys_aligns_whoever_asks_for_it() -> None:
    world = cluster()
    world.nodes(zoned("a", AlignmentPolicy.NONE, 4, 4, obeys=True))
    asked = replace(wishing(SINGLE, 3, Dialect.WINDLASS), zones=None)
    plain = NumaNeed((ContainerNeed((("cpu", 2500),)),), False, SINGLE)
    world.gang("one", 2, replace(asked, zones=plain))
    world.gang("two", 1, replace(asked, zones=plain))
    world.gang("free", 1, wishing(None, 1, Dialect.WINDLASS))
    world.cycle()
    assert world.placed("one") == 2
    assert world.code("two") in ("NumaAlignmentFailed", "InsufficientResources")
    assert world.placed("free") == 1
    zones = [world.engine.state.tasks[f"ns/one-{i}"].zones for i in range(2)]
    assert [dict(z.zones) for z in zones if z] == [{0: (("cpu", 3000),)}, {1: (("cpu", 3000),)}]

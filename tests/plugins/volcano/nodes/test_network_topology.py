"""Volcano's ``network-topology-aware``: which HyperNode a gang goes to, and where other pods go."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import NAMESPACE, Cluster, needs, node

from windlass.plugins.defaults import default_plugins
from windlass.plugins.volcano.nodes.network_topology import (
    HyperNodeBinpack,
    PodHyperNodeBinpack,
    build,
    weights_of,
)
from windlass.spi.nodes import IntArray
from windlass.spi.objects import Dialect, Group, Node, Task
from windlass.spi.topology import HYPERNODE, HYPERNODE_PATH, Level, TopologyNeed
from windlass.testing import check

LEVELS = (Level("", "the whole cluster"), Level(f"{HYPERNODE}tier-2"), Level(f"{HYPERNODE}tier-1"))
TIER1 = TopologyNeed("HyperNodes", LEVELS, required=2, nested=False)


class Domains:
    """Two domains with these amounts of cpu and memory."""

    def __init__(self, **amounts: tuple[list[int], list[int]]) -> None:
        self._amounts = amounts

    def allocatable(self, resource: str) -> IntArray:
        return np.array(self._amounts.get(resource, ([0, 0], [0, 0]))[0])

    def used(self, resource: str) -> IntArray:
        return np.array(self._amounts.get(resource, ([0, 0], [0, 0]))[1])


def test_the_score_is_the_weighted_share_in_use_once_the_gang_is_there() -> None:
    domains = Domains(cpu=([10, 20], [4, 2]), memory=([100, 100], [0, 50]), pods=([9, 9], [0, 0]))
    score = HyperNodeBinpack({"cpu": 3.0, "memory": 1.0})
    assert score.domain_scores({"cpu": 2, "memory": 30, "pods": 1}, domains) == pytest.approx(
        [100 * (3 * 0.6 + 0.3) / 4, 100 * (3 * 0.2 + 0.8) / 4]
    )
    assert score.domain_scores({"cpu": 7}, domains).tolist() == [0.0, pytest.approx(45.0)]
    assert score.domain_scores({"gpu": 7, "pods": 1}, domains).tolist() == [0.0, 0.0]


def test_a_hypernode_that_lacks_one_resource_is_not_scored_by_the_others() -> None:
    domains = Domains(cpu=([10, 10], [9, 1]), memory=([10, 10], [9, 1]), gpu=([4, 4], [4, 0]))
    request = {"cpu": 1, "memory": 1, "gpu": 2}
    score = HyperNodeBinpack({"cpu": 1.0, "memory": 1.0, "gpu": 1.0})
    assert score.domain_scores(request, domains) == pytest.approx([0.0, 100 * (0.2 + 0.2 + 0.5) / 3])
    weightless = HyperNodeBinpack({"cpu": 1.0, "gpu": 0.0})
    assert weightless.domain_scores(request, domains) == pytest.approx([0.0, 20.0])


def test_arguments() -> None:
    assert weights_of({}) == {"cpu": 1.0, "memory": 1.0}
    for policy in build({}, hypernodes=True, nodes=True):
        check(policy, trials=8)
    given = {
        "hypernode.binpack.cpu": "5",
        "hypernode.binpack.memory": -2,
        "hypernode.binpack.resources": "nvidia.com/gpu, example.com/x",
        "hypernode.binpack.resources.nvidia.com/gpu": 4,
    }
    assert weights_of(given) == {"cpu": 5.0, "memory": 1.0, "nvidia.com/gpu": 4.0, "example.com/x": 1.0}
    kinds = [type(plugin) for plugin in build({}, hypernodes=True, nodes=True)]
    assert kinds == [HyperNodeBinpack, PodHyperNodeBinpack]
    assert build({"weight": 0}, hypernodes=True, nodes=True) == []
    (only,) = build({"hypernode.binpack.normal-pod.enable": "false"}, hypernodes=True, nodes=True)
    assert isinstance(only, HyperNodeBinpack)
    (only,) = build({"weight": 7}, hypernodes=False, nodes=True)
    assert isinstance(only, PodHyperNodeBinpack)
    assert only.weight == 7


def test_a_fading_below_nothing_is_none() -> None:
    for given, fading in (("0.5", 0.5), (-1, 0.8), (0, 0.0)):
        (_, normal) = build({"hypernode.binpack.normal-pod.fading": given}, hypernodes=True, nodes=True)
        assert isinstance(normal, PodHyperNodeBinpack)
        assert normal.fading == fading


def leaf(name: str, leaf: str, spine: str, cpu: int = 8) -> Node:
    found = node(f"{name} cpu={cpu}")
    labels = {
        **found.labels,
        f"{HYPERNODE}tier-1": leaf,
        f"{HYPERNODE}tier-2": spine,
        HYPERNODE_PATH: f"1={leaf},2={spine}",
    }
    return Node(found.name, found.allocatable, labels)


def cluster(**arguments: object) -> Cluster:
    plugins = [*default_plugins(), *build({"weight": 100, **arguments}, hypernodes=True, nodes=True)]
    c = Cluster(plugins=plugins).queues("default")
    return c.nodes(leaf("a", "l0", "s0"), leaf("b", "l1", "s0"), leaf("c", "l2", "s1"), leaf("d", "l2", "s1"))


def come(c: Cluster, name: str, n: int, near: TopologyNeed | None = None, cpu: int = 1, at: str = "") -> None:
    key = f"{NAMESPACE}/{name}"
    c.group(Group(key, min_member=n, created=float(len(c.groups)), uid=name, topology=near))
    selector = {"kubernetes.io/hostname": at} if at else {}
    wants = needs(f"cpu={cpu}", dialect=Dialect.VOLCANO, node_selector=selector)
    for number in range(n):
        c.task(Task(f"{key}-{number}", f"{name}-{number}", key, wants, index=number))
    c.cycle()


def test_a_gang_goes_to_the_fullest_hypernode_that_holds_it() -> None:
    c = cluster()
    come(c, "old", 1, cpu=4, at="b")
    come(c, "g", 2, TIER1)
    assert set(c.where("g")) == {"b"}
    come(c, "h", 3, TIER1)  # l1 is full now to seven parts of eight, which leaves l0 and l2
    assert set(c.where("h")) == {"a"}


def test_other_pods_are_packed_into_hypernodes_of_low_tiers_first() -> None:
    c = cluster()
    come(c, "old", 1, cpu=4, at="d")
    come(c, "far", 1, cpu=1, at="a")
    come(c, "p", 1)
    # l2 is a quarter full, l0 an eighth; s1 a quarter, s0 a sixteenth.
    assert set(c.where("p")) <= {"c", "d"}


def test_other_pods_rather_leave_hypernodes_to_gangs() -> None:
    """As Volcano does: a node outside counts as if its HyperNodes were full."""
    c = cluster()
    c.nodes(node("z cpu=8"))
    come(c, "old", 1, cpu=4, at="d")
    come(c, "p", 6)
    assert set(c.where("p")) == {"z"}
    come(c, "q", 4)  # two more find room there, the others where most is used
    assert c.where("q") == {"z": 2, "d": 2}


def test_nothing_is_said_without_hypernodes_or_weighed_resources() -> None:
    plugin = PodHyperNodeBinpack({"nvidia.com/gpu": 1.0}, 0.8, 1.0)
    c = Cluster(plugins=[*default_plugins(), plugin]).queues("default").nodes("a cpu=4")
    come(c, "p", 1)
    assert c.where("p") == {"a": 1}

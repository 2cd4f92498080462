"""Scores that apply to pods of each queue API."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import Cluster, needs

from windlass.plugins.default_node_plugins import CountingPluginSet, preferences
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import (
    Dialect,
    Expression,
    NodeTerm,
    PodTerm,
    TaskState,
    WeightedNodeTerm,
    WeightedPodTerm,
)

APP = (Expression("app", "In", ("x",)),)


def cluster(*texts: str, **options) -> Cluster:
    return Cluster(plugins=default_plugins(**options)).queues("default").nodes(*texts)


def kai(text: str, **rest):
    return needs(text, dialect=Dialect.KAI, **rest)


def prefer(zone: str) -> tuple[WeightedNodeTerm, ...]:
    return (WeightedNodeTerm(1, NodeTerm((Expression("zone", "In", (zone,)),))),)


def test_a_kai_pod_without_devices_keeps_off_nodes_with_devices() -> None:
    c = cluster("n1 gpu=8 cpu=4", "n2 cpu=64")
    c.gang("old", 1, "cpu=3").cycle()
    c.gang("g", 1, kai("cpu=1")).cycle()
    assert c.where("g") == {"n2": 1}


@pytest.mark.parametrize(("strategy", "nodes"), [("binpack", {"n2": 2}), ("spread", {"n1": 1, "n2": 1})])
def test_kai_pods_are_packed_or_spread_by_gpu(strategy: str, nodes: dict[str, int]) -> None:
    c = cluster("n1 gpu=8", "n2 gpu=4", kai_gpu=strategy)
    c.gang("g", 2, kai("gpu=1")).cycle()
    assert c.where("g") == nodes


@pytest.mark.parametrize(("strategy", "nodes"), [("binpack", {"n1": 2}), ("spread", {"n1": 1, "n2": 1})])
def test_kai_pods_are_packed_or_spread_by_cpu(strategy: str, nodes: dict[str, int]) -> None:
    c = cluster("n1 cpu=8", "n2 cpu=8", kai_cpu=strategy)
    c.gang("g", 2, kai("cpu=1")).cycle()
    assert c.where("g") == nodes


def test_affinity_of_kai_pods_goes_before_everything() -> None:
    c = cluster("n1 cpu=8 zone=a", "n2 gpu=8 cpu=8 zone=b")
    c.gang("g", 1, kai("cpu=1", preferred_nodes=prefer("b"))).cycle()
    assert c.where("g") == {"n2": 1}
    near = (WeightedPodTerm(1, PodTerm(APP, "zone")),)
    c.gang("x", 1, needs("gpu=1", labels={"app": "x"})).cycle()
    c.gang("h", 2, kai("cpu=1", preferred_affinity=near)).cycle()
    assert c.where("h") == {"n2": 2}


def test_affinity_of_kai_pods_goes_before_room_that_is_free_now() -> None:
    c = cluster("n1 gpu=1 zone=a", "n2 gpu=1 zone=b")
    c.gang("old", 1, needs("gpu=1", node_selector={"zone": "b"})).cycle()
    c.change_task("old-0", state=TaskState.RELEASING)
    c.gang("free", 1, kai("gpu=1")).cycle()
    assert c.where("free") == {"n1": 1}
    c.remove("free")
    c.gang("g", 1, kai("gpu=1", preferred_nodes=prefer("b")))
    group = c.engine.state.groups["ns/g"]
    c.engine.update_groups(c.now)
    context = c.engine._context
    attempt = context.gang_allocator.try_group(context.statement, group, group.step, future=True)
    assert attempt.pipelined
    assert context.statement.placements()[0][1] == c.engine.state.table.rows["n2"]
    context.statement.rollback()


def test_wishes_about_other_pods_are_weighed_for_own_pods() -> None:
    c = cluster("n1 cpu=8 zone=a", "n2 cpu=8 zone=b", "n3 cpu=8 zone=b")
    c.gang("x", 1, needs("cpu=1", labels={"app": "x"}, node_selector={"zone": "b"})).cycle()
    away = (WeightedPodTerm(50, PodTerm(APP, "zone")),)
    c.gang("g", 1, needs("cpu=1", preferred_anti_affinity=away)).cycle()
    assert c.where("g") == {"n1": 1}
    c.gang("h", 1, needs("cpu=1", preferred_affinity=away)).cycle()
    assert c.where("h") == {"n2": 1}


def test_what_runs_has_wishes_about_newcomers_too() -> None:
    c = cluster("n1 cpu=8 zone=a", "n2 cpu=8 zone=b")
    shy = (WeightedPodTerm(50, PodTerm(APP, "zone")),)
    c.gang("shy", 1, needs("cpu=1", preferred_anti_affinity=shy, node_selector={"zone": "a"})).cycle()
    c.gang("x", 1, needs("cpu=1", labels={"app": "x"})).cycle()
    assert c.where("x") == {"n2": 1}


def test_pods_of_volcano_queues_have_own_scores_or_those_of_their_tiers() -> None:
    pack = replace(needs("cpu=1"), dialect=Dialect.VOLCANO)
    for own, expected in ((True, {"n2": 1}), (False, {"n1": 1})):
        c = cluster("n1 cpu=8", "n2 cpu=4", own_for_volcano=own)
        c.gang("g", 1, pack).cycle()
        assert c.where("g") == expected


def test_another_placement_is_refused() -> None:
    with pytest.raises(ValueError, match="placement is binpack or spread, not 'tight'"):
        default_plugins(placement="tight")


def test_wishes_about_other_pods_weigh_as_kube_schedulers_do() -> None:
    found = {part.name: part.weight for part in preferences(CountingPluginSet(), ())}
    assert sorted(found.values()) == [2.0, 2.0]

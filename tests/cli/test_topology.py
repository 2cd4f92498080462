"""``windlass node tree``: trees of HyperNodes, of Topologies and of labels, with what is free."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakecluster import FakeCluster

from windlass.api.resources import HYPERNODES, KAI_TOPOLOGIES, NODES, PODS

Json = dict[str, Any]


def node(name: str, rack: str, **status: Any) -> Json:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": "a", **({"rack": rack} if rack else {})}},
        "spec": {"unschedulable": status.get("cordoned", False)},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, on: str, gpus: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": on,
            "containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
            ],
        },
        "status": {"phase": "Running"},
    }


def hypernode(name: str, tier: int, kind: str, *members: str, **spec: Any) -> Json:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {
            "tier": tier,
            "members": [{"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members],
            **spec,
        },
    }


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    for name, rack, cordoned in (
        ("n1", "r1", False),
        ("n2", "r1", False),
        ("n3", "r2", True),
        ("n4", "", False),
    ):
        found.add(NODES, node(name, rack, cordoned=cordoned))
    found.add(PODS, pod("p", "n1", 3))
    return found


def hypernodes(cluster: FakeCluster) -> None:
    cluster.add(HYPERNODES, hypernode("leaf1", 1, "Node", "n1", "n2", tierName="leaf"))
    cluster.add(HYPERNODES, hypernode("leaf2", 1, "Node", "n3", tierName="leaf"))
    cluster.add(HYPERNODES, hypernode("spine", 2, "HyperNode", "leaf1", "leaf2", "leaf9"))


def test_hypernodes_are_a_tree(windlass: Any, cluster: FakeCluster) -> None:
    hypernodes(cluster)
    done = windlass("node", "tree")
    assert done.code == 0
    assert done.out == (
        "DOMAIN        LEVEL          NODES  GPUS  FREE  ON ONE NODE\n"
        "HyperNodes    -                3/4    16     9            4\n"
        "├─ spine      tier 2           2/3    12     5            4\n"
        "│  ├─ leaf1   tier 1 (leaf)      2     8     5            4\n"
        "│  └─ leaf2   tier 1 (leaf)    0/1     4     0            0\n"
        "└─ (in none)  -                  1     4     4            4\n"
    )
    assert "HyperNode spine has a member leaf9 that does not exist" in done.err


def test_labels_are_levels(windlass: Any, cluster: FakeCluster) -> None:
    assert "No HyperNode and no Topology" in windlass("node", "tree").err
    levels = [{"nodeLabel": "zone"}, {"nodeLabel": "rack", "alias": "shelf"}]
    cluster.add(
        KAI_TOPOLOGIES,
        {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "net"},
            "spec": {"levels": levels},
        },
    )
    assert windlass("node", "tree", "net").out == (
        "DOMAIN           LEVEL  NODES  GPUS  FREE  ON ONE NODE\n"
        "net              -        3/4    16     9            4\n"
        "└─ a             zone     3/4    16     9            4\n"
        "   ├─ r1         shelf      2     8     5            4\n"
        "   ├─ r2         shelf    0/1     4     0            0\n"
        "   └─ (in none)  shelf      1     4     4            4\n"
    )
    assert windlass("node", "tree", "rack").out.splitlines()[2].split() == [
        "├─",
        "r1",
        "rack",
        "2",
        "8",
        "5",
        "4",
    ]


def test_as_a_record(windlass: Any, cluster: FakeCluster) -> None:
    hypernodes(cluster)
    found = json.loads(windlass("node", "tree", "-o", "json").out)
    (tree,) = found["items"]
    assert tree["gpusFree"] == 9
    spine, outside = tree["domains"]
    assert (spine["name"], spine["level"], spine["domains"][0]["nodeNames"]) == (
        "spine",
        "tier 2",
        ["n1", "n2"],
    )
    assert outside["nodeNames"] == ["n4"]
    assert found["problems"] == ["HyperNode spine has a member leaf9 that does not exist"]


def test_a_name_that_is_nothing(windlass: Any, cluster: FakeCluster) -> None:
    hypernodes(cluster)
    done = windlass("node", "tree", "row")
    assert done.code == 3
    assert "no node carries a label of that name" in done.err
    assert "hypernodes" in done.err

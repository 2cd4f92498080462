"""``windlass node tree``: trees of HyperNodes, of Topologies and of labels, with what is free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakecluster import FakeCluster
from kubeobjects import group
from kubeobjects import node as kube_node
from kubeobjects import pod as waiting

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
        "DOMAIN          LEVEL          NODES  GPUS  FREE  ON ONE NODE\n"
        "HyperNodes      -                3/4    16     9            4\n"
        "├─ spine        tier 2           2/3    12     5            4\n"
        "│  ├─ leaf1     tier 1 (leaf)      2     8     5            4\n"
        "│  └─ leaf2     tier 1 (leaf)    0/1     4     0            0\n"
        "└─ (no domain)  -                  1     4     4            4\n"
    )
    assert "HyperNode spine has a member leaf9 that does not exist" in done.err


def test_labels_are_levels(windlass: Any, cluster: FakeCluster) -> None:
    assert "No HyperNode or Topology exists" in windlass("node", "tree").err
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
        "DOMAIN             LEVEL  NODES  GPUS  FREE  ON ONE NODE\n"
        "net                -        3/4    16     9            4\n"
        "└─ a               zone     3/4    16     9            4\n"
        "   ├─ r1           shelf      2     8     5            4\n"
        "   ├─ r2           shelf    0/1     4     0            0\n"
        "   └─ (no domain)  shelf      1     4     4            4\n"
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


def test_a_card_of_which_somebody_has_a_part_is_not_free(windlass: Any, cluster: FakeCluster) -> None:
    sharer = pod("half", "n2", 0)
    sharer["metadata"]["annotations"] = {
        "gpu-fraction": "0.5",
        "windlass.dev/devices": "1",
        "windlass.dev/device-shares": "1:500/0",
    }
    cluster.add(PODS, sharer)
    (tree,) = json.loads(windlass("node", "tree", "rack", "-o", "json").out)["items"]
    (rack,) = (one for one in tree["domains"] if one["name"] == "r1")
    assert (rack["gpus"], rack["gpusFree"], rack["gpusFreeOnOneNode"]) == (8, 1 + 3, 3)


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
    assert "no node has a label of that name" in done.err
    assert "hypernodes" in done.err


# ---------------------------------------------------------------------- plans


def test_a_plan_says_which_domains_were_tried(windlass: Any, tmp_path: Path) -> None:
    leaf2 = hypernode("leaf2", 1, "Node", "n3", "n2")  # n2 is in leaf1, too
    job = group("g", 3)
    job["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    objects = [
        *(kube_node(f"n{at}", gpus=2) for at in range(1, 4)),
        hypernode("leaf1", 1, "Node", "n1", "n2"),
        leaf2,
        job,
        *(waiting(f"p{at}", group="g", requests={"nvidia.com/gpu": 2}) for at in range(3)),
    ]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    done = windlass("plan", "-f", str(file), "-o", "json")
    assert done.code == 0
    assert "HyperNodes leaf1 and leaf2 (both tier 1) have 1 node in common; leaf1 keeps it" in done.err
    (entry,) = json.loads(done.out)["pending"]
    assert (entry["code"], entry["waitingHelps"]) == ("ExceedsEveryDomain", "no")
    assert [(b["detail"], b["needed"], b["available"]) for b in entry["blockers"][1:]] == [
        ("tier 1 leaf1", "3", "2"),
        ("tier 1 leaf2", "3", "1"),
    ]


def test_a_hypernode_that_cannot_be_read_is_no_dump(windlass: Any, tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    bad = hypernode("h", 1, "Node")
    bad["spec"]["members"] = [{"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}]
    file.write_text(yaml.safe_dump(bad))
    done = windlass("plan", "-f", str(file))
    assert done.code == 65
    assert "spec.members[0].selector.regexMatch.pattern" in done.err


def test_an_island_asked_for_in_kueues_words(windlass: Any, tmp_path: Path) -> None:
    """Nodes of one NVLink domain, of which one holds the gang; on the larger one is a pod already."""
    notes = {"kueue.x-k8s.io/podset-required-topology": "nvidia.com/gpu.clique"}
    nodes = [kube_node(f"n{at}", gpus=4) for at in range(5)]
    for at, item in enumerate(nodes):
        item["metadata"].setdefault("labels", {})["nvidia.com/gpu.clique"] = f"cluster.{at % 2}"
    objects = [
        *nodes,
        waiting("busy", requests={"nvidia.com/gpu": 4}, node="n0"),
        group("g", 2),
        *(
            waiting(f"p{at}", group="g", requests={"nvidia.com/gpu": 4}, annotations=dict(notes))
            for at in range(2)
        ),
        group("h", 3),
        *(
            waiting(f"q{at}", group="h", requests={"nvidia.com/gpu": 4}, annotations=dict(notes))
            for at in range(3)
        ),
    ]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    plan = json.loads(windlass("plan", "-f", str(file), "-o", "json").out)
    places = {bind["node"] for bind in plan["binds"]}
    assert places in ({"n1", "n3"}, {"n2", "n4"})
    (entry,) = plan["pending"]
    assert (entry["podGroup"], entry["code"]) == ("h", "InsufficientResources")
    assert "3 pods must lie in one domain of nvidia.com/gpu.clique" in entry["message"]

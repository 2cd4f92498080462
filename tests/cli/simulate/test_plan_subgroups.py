"""``windlass plan``: sub-groups of Volcano's policies that each lie in one leaf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeobjects import group, node, pod, queue

Json = dict[str, Any]
TWO = {"cpu": 2}


def leaf(name: str, nodes: int) -> list[Json]:
    """Return a HyperNode with nodes of two CPUs."""
    names = [f"{name}{at}" for at in range(nodes)]
    members = [{"type": "Node", "selector": {"exactMatch": {"name": each}}} for each in names]
    hyper_node = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": 1, "members": members},
    }
    return [*(node(each, cpu="2") for each in names), hyper_node]


def policy(name: str, size: int = 2, **more: Any) -> Json:
    topology = {"mode": "hard", "highestTierAllowed": 1}
    selector = {"matchLabels": {"role": name}}
    return {
        "name": name,
        "subGroupSize": size,
        "labelSelector": selector,
        "networkTopology": topology,
        **more,
    }


def members(role: str, count: int, part: str = "0") -> list[Json]:
    labels = {"role": role, "part": part}
    return [
        pod(f"{role}{part}-{at}", group="g", scheduler="volcano", requests=TWO, labels=labels)
        for at in range(count)
    ]


def busy(on: str) -> list[Json]:
    """Return a pod that keeps a node."""
    return [pod("busy", scheduler="volcano", node=on, phase="Running", requests=TWO)]


def planned(windlass: Any, path: Path, *objects: Json) -> tuple[dict[str, str], Json]:
    """Return the node of each bound pod, and the entry of the waiting group."""
    dump = path / "cluster.yaml"
    dump.write_text(yaml.safe_dump_all([queue("q"), *objects]))
    done = windlass("plan", "-f", str(dump), "--until-stable", "-o", "json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    return {bind["pod"]: bind["node"] for bind in plan["binds"]}, next(iter(plan["pending"]), {})


@pytest.mark.parametrize("more", [{}, {"minSubGroups": 0}, {"minSubGroups": 1}, {"matchLabelKeys": ["part"]}])
@pytest.mark.parametrize("taken", ["x0", "y1"])
def test_a_policy_without_keys_is_one_subgroup(windlass: Any, tmp_path: Path, taken: str, more: Json) -> None:
    gang = group("g", 2, queue="q", subGroupPolicy=[policy("a", **more)])
    binds, waiting = planned(
        windlass, tmp_path, *leaf("x", 2), *leaf("y", 2), *busy(taken), gang, *members("a", 2)
    )
    free = "y" if taken == "x0" else "x"
    assert (sorted(binds.values()), waiting) == ([f"{free}0", f"{free}1"], {})


def test_each_policy_has_a_leaf_that_holds_it(windlass: Any, tmp_path: Path) -> None:
    """Whichever is placed first must not take the only leaf of the other."""
    gang = group("g", 5, queue="q", subGroupPolicy=[policy("a"), policy("b", 3)])
    binds, _ = planned(
        windlass, tmp_path, *leaf("x", 3), *leaf("y", 2), gang, *members("a", 2), *members("b", 3)
    )
    leaves = {name[0]: {node[0] for pod, node in binds.items() if pod[0] == name[0]} for name in binds}
    assert leaves == {"a": {"y"}, "b": {"x"}}


@pytest.mark.parametrize("keys", [{}, {"matchLabelKeys": ["part"]}])
@pytest.mark.parametrize("least", [{}, {"minSubGroups": 1}])
def test_a_subgroup_that_no_leaf_holds_is_named(
    windlass: Any, tmp_path: Path, keys: Json, least: Json
) -> None:
    gang = group("g", 2, queue="q", subGroupPolicy=[policy("a", **keys, **least)])
    binds, waiting = planned(windlass, tmp_path, *leaf("x", 1), *leaf("y", 1), gang, *members("a", 2))
    name = "a/0" if keys else "a"
    assert (binds, waiting["code"], waiting["waitingHelps"]) == ({}, "ExceedsEveryDomain", "no")
    assert waiting["message"].startswith(f"2 pods of sub-group {name} must lie in one domain of tier 1")
    assert "x would hold 1" in waiting["message"]


def test_a_subgroup_that_waits_names_what_its_leaf_lacks(windlass: Any, tmp_path: Path) -> None:
    gang = group("g", 2, queue="q", subGroupPolicy=[policy("a")])
    _, waiting = planned(
        windlass, tmp_path, *leaf("x", 2), *leaf("y", 1), *busy("x0"), gang, *members("a", 2)
    )
    assert (waiting["code"], waiting["waitingHelps"]) == ("TopologyPlacementFailed", "yes")
    assert "none holds them now: x holds 1, y holds 1" in waiting["message"]


def test_subgroups_that_fit_alone_but_not_together(windlass: Any, tmp_path: Path) -> None:
    gang = group("g", 4, queue="q", subGroupPolicy=[policy("a", matchLabelKeys=["part"])])
    pods = [*members("a", 2, "0"), *members("a", 2, "1")]
    _, waiting = planned(windlass, tmp_path, *leaf("x", 3), *leaf("y", 1), gang, *pods)
    assert waiting["message"].startswith(
        "With sub-group a/0 placed: 2 pods of sub-group a/1 must lie in one domain"
    )


def test_subgroups_that_are_missing_are_counted_as_subgroups(windlass: Any, tmp_path: Path) -> None:
    gang = group("g", 2, queue="q", subGroupPolicy=[policy("a", minSubGroups=3, matchLabelKeys=["part"])])
    _, waiting = planned(
        windlass, tmp_path, *leaf("x", 2), gang, *members("a", 2, "0"), *members("a", 1, "1")
    )
    assert waiting["code"] == "WaitingForMembers"
    assert waiting["message"] == "It has the pods of 1 of the 3 sub-groups of a that it needs."
    assert waiting["remedies"] == [
        "Create the pods of 2 more sub-groups of a, or lower minSubGroups of a to 1."
    ]

"""Pods that a foreign operator creates are one gang, by the rule of their owner's kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from definitions import GROUP, definition
from single_node import Box

from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS, Resource

TRAININGS = Resource(GROUP, "v1", "trainings", "Training", custom=True)
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:4") as one:
        crd = definition("trainings", "Training", schema={"type": "object", "properties": {"spec": FREE}})
        crd["metadata"]["annotations"] = {"windlass.dev/min-member-path": "1 + .spec.groups[*].workers"}
        with one.client() as client:
            client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        yield one


def make(box: Box, name: str, workers: int, gpus: int = 1, scheduler: str = "default-scheduler") -> list[str]:
    """Create a Training and its pods, as its operator does, and return the pods' names."""
    body = {
        "apiVersion": TRAININGS.api_version,
        "kind": TRAININGS.kind,
        "metadata": {"name": name},
        "spec": {"groups": [{"workers": workers}]},
    }
    with box.client() as client:
        owner = client.create(TRAININGS, body, "default")
        reference = {
            "apiVersion": TRAININGS.api_version,
            "kind": TRAININGS.kind,
            "name": name,
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        names = [f"{name}-{index}" for index in range(workers + 1)]
        for pod in names:
            container = {
                "name": "main",
                "image": "python",
                "command": ["sleep", "600"],
                "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
            }
            metadata = {"name": pod, "ownerReferences": [reference]}
            spec = {"containers": [container], "schedulerName": scheduler, "terminationGracePeriodSeconds": 0}
            manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            client.create(PODS, manifest, "default")
    return names


def phases(box: Box, names: list[str]) -> list[str]:
    return [box.get("pod", name).get("status", {}).get("phase", "") for name in names]


def group_of(box: Box, name: str) -> dict[str, Any]:
    annotation = (box.get("pod", f"{name}-0")["metadata"].get("annotations") or {}).get(
        "scheduling.k8s.io/group-name", ""
    )
    return box.get("podgroup", annotation) if annotation else {}


def test_gang_waits_until_all_its_pods_fit(box: Box) -> None:
    first = make(box, "first", workers=1)
    box.wait_for("the first gang", lambda: phases(box, first) == ["Running"] * 2)
    second = make(box, "second", workers=2)  # three GPUs, and two are free
    group = box.wait_for("the second group", lambda: group_of(box, "second"))
    assert group["spec"]["minMember"] == 3
    assert group["metadata"]["annotations"]["windlass.dev/grouped-by"] == (
        "Training second: minMember 3 from 1 + .spec.groups[*].workers"
    )
    explained = box.windlass("explain", "second-0", check=False).stdout
    assert "grouped by" in explained
    assert "rule declared by the CustomResourceDefinition of Training" in explained
    shown = json.loads(box.windlass("show", "second", "-o", "json", check=False).stdout or "{}")
    assert (shown["groupedBy"]["rule"], shown["groupedBy"]["minMember"]) == ("declared", 3)
    assert phases(box, second) == ["Pending"] * 3
    with box.client() as client:
        client.delete(TRAININGS, "first", "default")
    box.wait_for("the second gang", lambda: phases(box, second) == ["Running"] * 3)


def test_scaling_resizes_the_gang_and_recreates_no_pod(box: Box) -> None:
    """A patch of the owner's scale is no reason to touch its pods."""
    names = [f"second-{index}" for index in range(3)]
    uids = [box.get("pod", name)["metadata"]["uid"] for name in names]
    with box.client() as client:
        client.patch(TRAININGS, "second", {"spec": {"groups": [{"workers": 1}]}}, "default")
        client.delete(PODS, "second-2", "default")  # as the operator does
    box.wait_for("the smaller gang", lambda: group_of(box, "second")["spec"]["minMember"] == 2)
    assert [box.get("pod", name)["metadata"]["uid"] for name in names[:2]] == uids[:2]
    assert phases(box, names[:2]) == ["Running"] * 2
    with box.client() as client:
        client.delete(TRAININGS, "second", "default")
    box.wait_for("the group's removal", lambda: not box.items("podgroup"))


def test_rule_with_a_mistake_is_refused(box: Box) -> None:
    crd = definition("others", "Other", schema={"type": "object", "properties": {"spec": FREE}})
    crd["metadata"]["annotations"] = {"windlass.dev/min-member-path": "spec.workers"}
    refused = box.kubectl("apply", "-f", "-", stdin=json.dumps(crd), check=False)
    assert "windlass.dev/min-member-path" in refused.stderr
    assert "write it as .spec.workers" in refused.stderr

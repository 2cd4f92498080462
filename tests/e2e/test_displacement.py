"""Evictions for others and notices of nodes on a running box, as its users see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from single_node import Box

from windlass.api.resources import NODES

PRIORITY = {"low": "aigc-low", "high": "aigc-high", "kept": "kept"}


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        one.windlass("node", "add-simulated", "--gpus", "4", "--prefix", "gpu", "--label", "pool=gpu")
        kept = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "kept", "annotations": {"volcano.sh/preemptable": "false"}},
            "value": 50,
        }
        one.windlass("apply", "-f", "-", stdin=yaml.safe_dump(kept))
        yield one


def job(box: Box, name: str, priority: str, gpus: int) -> None:
    spec = {
        "priorityClassName": PRIORITY[priority],
        "nodeSelector": {"pool": "gpu"},
        "restartPolicy": "OnFailure",
        "containers": [
            {"name": "c", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": 1}}}
        ],
    }
    made = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "minAvailable": 1,
            "priorityClassName": PRIORITY[priority],
            "tasks": [{"name": "main", "replicas": 1, "template": {"spec": spec}}],
        },
    }
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(made))


def shown(box: Box, command: str, name: str) -> dict[str, Any]:
    return json.loads(box.windlass(command, name, "-o", "json").stdout)


def runs(box: Box, name: str) -> bool:
    return shown(box, "show", name)["state"] == "Running"


def test_who_displaced_whom_and_who_was_spared(box: Box) -> None:
    """F45, F61, D10: as many low pods as needed are evicted; both sides and the spared one are named."""
    for name in ("low-1", "low-2", "low-3"):
        job(box, name, "low", 1)
    job(box, "service", "kept", 1)
    for name in ("low-1", "low-2", "low-3", "service"):
        box.wait_for(name, lambda name=name: runs(box, name))  # type: ignore[misc]
    job(box, "urgent", "high", 2)
    box.wait_for("urgent", lambda: runs(box, "urgent"))
    evictions = shown(box, "show", "urgent")["evictions"]
    victims = {entry["group"].removeprefix("default/") for entry in evictions["evicted"]}
    assert len(victims) == 2
    assert victims < {"low-1", "low-2", "low-3"}
    spared = {entry["group"]: entry["reason"] for entry in evictions["spared"]}
    assert spared["default/service"] == "protected: volcano.sh/preemptable=false on PriorityClass kept"
    for name in victims:
        assert shown(box, "explain", name)["evictedFor"]["group"] == "default/urgent"
    assert shown(box, "explain", "service")["eviction"]["preemptible"] is False
    assert runs(box, "service")


def test_a_pod_leaves_a_spot_machine_that_ends(box: Box) -> None:
    """F44: it comes again elsewhere, with the age that it had."""
    box.windlass(
        "node", "add-simulated", "--gpus", "1", "--prefix", "spot", "--count", "2", "--label", "spot=true"
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "spot-training"},
        "spec": {
            "schedulerName": "volcano",
            "nodeSelector": {"spot": "true"},
            "containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        },
    }
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    box.wait_for("spot-training", lambda: runs(box, "spot-training"))
    before = box.get("pod", "spot-training")
    node = before["spec"]["nodeName"]
    notice = {"metadata": {"annotations": {"windlass.dev/spot-notice": "2999-01-01T00:00:00Z"}}}
    with box.client() as client:
        client.patch(NODES, node, notice)

    def elsewhere() -> bool:
        nodes = [
            pod["spec"].get("nodeName")
            for pod in box.items("pod")
            if pod["metadata"]["name"] == "spot-training"
        ]
        return bool(nodes) and nodes[0] not in (None, node)

    box.wait_for("another node", elsewhere)
    after = box.get("pod", "spot-training")
    notes = after["metadata"]["annotations"]
    assert notes["windlass.dev/queued-since"] == before["metadata"]["creationTimestamp"]
    assert shown(box, "show", "spot-training")["evictedFor"]["action"] == "SpotInterruption"

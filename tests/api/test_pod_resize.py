"""Pods that are resized in place count with the larger of what they ask and what they hold, as in kube-scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.api import views

GI = 1 << 30


def decoded(spec: dict[str, Any], status: dict[str, Any]) -> views.Pod:
    obj = {"metadata": {"name": "p", "namespace": "d"}, "spec": spec, "status": status}
    return views.decode_pod(json.dumps(obj, separators=(",", ":")).encode())


def container(name: str = "c", cpu: str = "1", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def said(name: str, actual: str, allocated: str) -> dict[str, Any]:
    return {
        "name": name,
        "resources": {"requests": {"cpu": actual}},
        "allocatedResources": {"cpu": allocated},
    }


@pytest.mark.parametrize(
    ("asked", "actual", "allocated", "counts"),
    [
        ("1", "1", "1", 1000),
        ("2", "1", "1", 2000),
        ("1", "2", "2", 2000),
        ("1", "1", "2", 2000),
        ("1", "1500m", "1", 1500),
    ],
)
def test_largest_of_requested_actual_and_allocated_counts(
    asked: str, actual: str, allocated: str, counts: int
) -> None:
    pod = decoded(
        {"containers": [container(cpu=asked)]}, {"containerStatuses": [said("c", actual, allocated)]}
    )
    assert pod.shape.request == {"cpu": counts}


def test_invalid_amounts_are_not_counted() -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    status = {"containerStatuses": [said("c", "1", "1")], "conditions": [pending]}
    assert decoded({"containers": [container(cpu="64")]}, status).shape.request == {"cpu": 1000}
    deferred = {**status, "conditions": [{**pending, "reason": "Deferred"}]}
    assert decoded({"containers": [container(cpu="64")]}, deferred).shape.request == {"cpu": 64000}


def test_sidecars_are_resized_and_init_containers_are_not() -> None:
    spec = {
        "initContainers": [container("s", restartPolicy="Always"), container("i", "4")],
        "containers": [container()],
    }
    status = {
        "initContainerStatuses": [said("s", "2", "2"), said("i", "8", "8")],
        "containerStatuses": [said("c", "1", "1")],
    }
    assert decoded(spec, status).shape.request == {"cpu": 6000}


def test_the_pod_as_a_whole_and_its_overhead() -> None:
    spec = {
        "containers": [container()],
        "resources": {"requests": {"cpu": "3", "memory": "1Gi"}},
        "overhead": {"cpu": "250m"},
    }
    held = {
        "resources": {"requests": {"cpu": "5", "memory": "1Gi"}},
        "allocatedResources": {"cpu": "4", "memory": "2Gi"},
    }
    status = {"containerStatuses": [said("c", "1", "1")], **held}
    assert decoded(spec, status).shape.request == {"cpu": 5250, "memory": 2 * GI}


def test_pod_with_its_requested_amounts_shares_the_shape_of_pending_pods() -> None:
    waiting = decoded({"containers": [container()]}, {})
    running = decoded({"containers": [container()]}, {"containerStatuses": [said("c", "1", "1")]})
    assert running.shape is waiting.shape
    status = {"containerStatuses": [{"name": "c", "resources": {}}]}
    assert decoded({"containers": [container()]}, status).shape.request == {"cpu": 1000}


def test_older_kubelet_reports_nothing() -> None:
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "9"}}]}
    assert decoded({"containers": [container()]}, status).shape.request == {"cpu": 1000}

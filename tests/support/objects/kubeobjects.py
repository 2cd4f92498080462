"""Plain Kubernetes objects, short to write."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
_CREATED = "2026-01-01T12:00:00Z"


def pod(
    name: str,
    *,
    namespace: str = "default",
    uid: str = "",
    scheduler: str = "windlass",
    group: str = "",
    node: str = "",
    phase: str = "",
    requests: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    metadata: Json | None = None,
    **spec: Any,
) -> Json:
    """One container that asks for one GPU, unless told otherwise."""
    notes = dict(annotations or {})
    if group:
        notes["scheduling.k8s.io/group-name"] = group
    obj: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{namespace}-{name}",
            "resourceVersion": "1",
            "creationTimestamp": _CREATED,
            **(metadata or {}),
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [
                {
                    "name": "main",
                    "image": "x",
                    "resources": {"requests": {"nvidia.com/gpu": "1"} if requests is None else requests},
                }
            ],
            **spec,
        },
        "status": {"phase": phase or ("Running" if node else "Pending")},
    }
    if notes:
        obj["metadata"]["annotations"] = notes
    if labels:
        obj["metadata"]["labels"] = labels
    if node:
        obj["spec"]["nodeName"] = node
    return obj


def node(
    name: str,
    *,
    gpus: int = 8,
    cpu: str = "64",
    memory: str = "512Gi",
    pods: int = 110,
    labels: dict[str, str] | None = None,
    ready: str | None = "True",
    **spec: Any,
) -> Json:
    allocatable: Json = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    status: Json = {"allocatable": allocatable, "capacity": allocatable}
    if ready is not None:
        status["conditions"] = [{"type": "Ready", "status": ready}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": status,
    }


def group(
    name: str,
    members: int,
    *,
    namespace: str = "default",
    queue: str = "default",
    phase: str = "",
    **spec: Any,
) -> Json:
    obj: Json = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": _CREATED},
        "spec": {"minMember": members, "queue": queue, **spec},
    }
    if phase:
        obj["status"] = {"phase": phase}
    return obj


def queue(name: str, *, state: str = "Open", **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"state": state},
    }


def priority_class(name: str, value: int, **fields: Any) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **fields,
    }


def namespace(name: str, labels: dict[str, str] | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels or {}, **metadata},
        "status": {"phase": "Active"},
    }

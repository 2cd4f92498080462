"""KAI's objects, short to write."""

from __future__ import annotations

from typing import Any

from kubeobjects import pod

Json = dict[str, Any]
_CREATED = "2026-01-01T12:00:00Z"
_OPEN = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def kai_queue(name: str, parent: str = "", *, gpus: float = -1, weight: float = 1, **spec: Any) -> Json:
    """``gpus``: the quota; CPU and memory are unlimited."""
    resources = {
        "gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": weight},
        "cpu": _OPEN,
        "memory": _OPEN,
    }
    body: Json = {"resources": resources, **spec}
    if parent:
        body["parentQueue"] = parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name, "uid": name, "creationTimestamp": _CREATED},
        "spec": body,
    }


def kai_group(
    name: str, members: int | None, queue: str, *, notes: dict[str, str] | None = None, **spec: Any
) -> Json:
    body: Json = {"queue": queue, **spec}
    if members is not None:
        body["minMember"] = members
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": _CREATED,
            **({"annotations": notes} if notes else {}),
        },
        "spec": body,
    }


def kai_pod(name: str, group: str = "", queue: str = "", **more: Any) -> Json:
    """A pod of scheduler ``kai-scheduler``, in a group or only in a queue."""
    labels = {**more.pop("labels", {}), **({"kai.scheduler/queue": queue} if queue else {})}
    annotations = {"pod-group-name": group} if group else {}
    return pod(name, scheduler="kai-scheduler", labels=labels, annotations=annotations, **more)

"""What pods ask for and what nodes have, in engine units (``api.quantities``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import pod_amounts, quantities

Vector = dict[str, int]


def vector(resources: Mapping[str, Any] | None) -> Vector:
    """A ResourceList in engine units; what cannot be read counts as nothing (the server refused it)."""
    try:
        return quantities.to_vector(resources)
    except quantities.QuantityError:
        return {}


def pod_request(spec: Mapping[str, Any]) -> Vector:
    """What a pod asks for; a limit without a request counts as the request, as the server fills it in."""
    filled = dict(spec)
    for which in ("containers", "initContainers"):
        filled[which] = [_filled(container) for container in spec.get(which) or ()]
    try:
        return pod_amounts.pod_requests(filled)
    except quantities.QuantityError:
        return {}


def _filled(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {"requests": requests}}


def job_request(job: Mapping[str, Any]) -> Vector:
    """All replicas of all tasks of a Volcano Job together."""
    total: Vector = {}
    for task in (job.get("spec") or {}).get("tasks") or ():
        each = pod_request((task.get("template") or {}).get("spec") or {})
        count = int(task.get("replicas", 1))
        total = quantities.add(total, {name: units * count for name, units in each.items()})
    return total


def allocatable(node: Mapping[str, Any]) -> Vector:
    status = node.get("status") or {}
    return vector(status.get("allocatable") or status.get("capacity"))


def devices(amounts: Mapping[str, int]) -> int:
    """Accelerators of all vendors together, in thousandths. What is said of single models is not added."""
    return sum(units for name, units in amounts.items() if quantities.is_device(name) and "@" not in name)


def gpu_text(amounts: Mapping[str, int]) -> str:
    """The GPUS column: ``8``, ``0.5``, ``-`` for none."""
    milli = devices(amounts)
    return "-" if milli == 0 else f"{milli / 1000:g}"


def total(vectors: Iterable[Mapping[str, int]]) -> Vector:
    return quantities.add(*vectors)


def holds_resources(pod: Mapping[str, Any]) -> bool:
    """Whether a pod occupies its node: bound and not finished."""
    phase = (pod.get("status") or {}).get("phase")
    return bool((pod.get("spec") or {}).get("nodeName")) and phase not in ("Succeeded", "Failed")

"""What pods ask for and what nodes have, in engine units (``api.quantities``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import quantities

Vector = dict[str, int]


def vector(resources: Mapping[str, Any] | None) -> Vector:
    """A ResourceList in engine units; what cannot be read counts as nothing (the server refused it)."""
    try:
        return quantities.to_vector(resources)
    except quantities.QuantityError:
        return {}


def requested(container: Mapping[str, Any]) -> Vector:
    """Requests; a limit without a request counts as the request, as the API server defaults it."""
    resources = container.get("resources") or {}
    return {**vector(resources.get("limits")), **vector(resources.get("requests"))}


def pod_request(spec: Mapping[str, Any]) -> Vector:
    """The larger of the containers' sum and the largest init container (KEP-753), plus overhead."""
    sidecars: Vector = {}
    largest: Vector = {}
    for container in spec.get("initContainers") or ():
        wanted = requested(container)
        if container.get("restartPolicy") == "Always":
            sidecars = quantities.add(sidecars, wanted)
            largest = quantities.maximum((largest, sidecars))
        else:
            largest = quantities.maximum((largest, quantities.add(sidecars, wanted)))
    main = quantities.add(sidecars, *(requested(c) for c in spec.get("containers") or ()))
    total = quantities.maximum((main, largest))
    return quantities.add(total, vector(spec.get("overhead")))


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
    """Accelerators of all vendors together, in thousandths."""
    return sum(units for name, units in amounts.items() if quantities.is_device(name))


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

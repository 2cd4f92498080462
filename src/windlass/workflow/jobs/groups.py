"""Pods and GPUs of a job of any kind, read from its manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
_COUNTS = ("replicas", "parallelism", "numNodes")
_NOT_RANKS = ("Launcher",)
"""Roles without ranks: their pods only start those of the others."""


@dataclass(frozen=True, slots=True)
class PodGroupSize:
    """Equal pods of a job. ``processes``: number in each pod, where the job states it."""

    pods: int
    gpus_per_pod: int
    processes: int = 1


def groups_of(manifest: Json) -> list[PodGroupSize]:
    """Return the groups of pods that a job's manifest has, of any kind with pod templates."""
    spec = manifest.get("spec") or {}
    processes = str(spec.get("nprocPerNode") or "")
    return list(_groups(spec, 1, int(processes) if processes.isdigit() and int(processes) else 1))


def templates_of(manifest: Json) -> Iterator[dict[str, Any]]:
    """Yield the pod templates of a manifest, to be changed in place."""
    yield from _templates(manifest.get("spec") or {})


def _templates(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name.lower().endswith("template") and _containers(item) is not None:
                yield item
            elif name not in _NOT_RANKS:
                yield from _templates(item)
    elif isinstance(value, list):
        for item in value:
            yield from _templates(item)


def _containers(template: Any) -> list[Any] | None:
    found = (template.get("spec") or {}) if isinstance(template, Mapping) else {}
    containers = found.get("containers") if isinstance(found, Mapping) else None
    return containers if isinstance(containers, list) else None


def _groups(value: Any, factor: int, processes: int) -> Iterator[PodGroupSize]:
    if isinstance(value, list):
        for item in value:
            yield from _groups(item, factor, processes)
    if not isinstance(value, Mapping):
        return
    count = factor * next((value[field] for field in _COUNTS if isinstance(value.get(field), int)), 1)
    containers = _containers(value.get("template"))
    if containers is not None:
        yield PodGroupSize(count, sum(map(gpus_of, containers)), processes)
        return
    if isinstance(value.get("leaderWorkerTemplate"), Mapping):
        yield from _leader_and_workers(value["leaderWorkerTemplate"], count)
        return
    if isinstance(value.get("resourcesPerNode"), Mapping) or isinstance(value.get("numNodes"), int):
        own = str(value.get("numProcPerNode") or "")
        gpus = gpus_of({"resources": value.get("resourcesPerNode") or {}})
        yield PodGroupSize(count, gpus, int(own) if own.isdigit() and int(own) else 1)
        return
    for name, item in value.items():
        if name not in _NOT_RANKS:
            yield from _groups(item, count, processes)


def _leader_and_workers(template: Json, replicas: int) -> Iterator[PodGroupSize]:
    """Yield the pods of a LeaderWorkerSet: ``size`` for each replica, the leader among them."""
    stated = template.get("size")
    size = stated if isinstance(stated, int) else 1
    worker = sum(map(gpus_of, _containers(template.get("workerTemplate")) or ()))
    leader = _containers(template.get("leaderTemplate"))
    if leader is None:
        yield PodGroupSize(replicas * size, worker)
        return
    yield PodGroupSize(replicas, sum(map(gpus_of, leader)))
    if size > 1:
        yield PodGroupSize(replicas * (size - 1), worker)


def gpus_of(container: Json) -> int:
    """Return the whole GPUs that a container asks for."""
    resources = container.get("resources") or {}
    return device_count({**(resources.get("requests") or {}), **(resources.get("limits") or {})})


def device_count(amounts: Json) -> int:
    """Return the number of whole GPUs among amounts of resources."""
    found = 0
    for name, amount in amounts.items():
        if name.endswith("/gpu") or "ascend" in name.lower():
            text = str(amount)
            found += int(text) if text.isdigit() else 0
    return found

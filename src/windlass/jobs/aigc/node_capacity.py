"""Number of workers that the nodes of a cluster hold, by GPUs and pods, if nothing else runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.jobs.aigc.job import gpus_of, worker_template

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerCapacity:
    """Limit of the nodes for the workers of a job.

    ``pods``: of workers that the nodes hold. ``shards``: pods of a worker. ``gpus``: of a pod.
    ``limit``: what the nodes have and what a worker needs, in words.
    """

    pods: int
    shards: int
    gpus: int
    limit: str

    @property
    def workers(self) -> int:
        return self.pods // self.shards


def worker_capacity(spec: Json, nodes: Iterable[Json]) -> WorkerCapacity | None:
    """Return the limit for a job without stages; ``None`` if the nodes report no places for pods."""
    shards, gpus = aigc.shards_of(spec), gpus_of(worker_template(aigc.defaulted(spec)))
    known = list(nodes)
    places = sum(_amount(node, "pods") for node in known)
    if not places:
        return None
    present = [_amount(node, aigc.GPU) for node in known]
    by_gpu = sum(count // gpus for count in present) if gpus else places
    worker = "1 worker" if shards == 1 else f"1 worker of {shards} pods"
    limit = f"they allow {places} pods in all"
    if by_gpu < places:
        total = sum(present)
        unit = "GPU" if total == 1 else "GPUs"
        limit = f"they have {total} {unit} in all, and {worker} needs {gpus * shards}"
    return WorkerCapacity(min(places, by_gpu), shards, gpus, limit)


def asks_for_gpus(spec: Json) -> bool:
    """Return whether a pod of a worker has whole GPUs."""
    return gpus_of(worker_template(aigc.defaulted(spec))) > 0


def capacity_problem(spec: Json, nodes: Iterable[Json]) -> str:
    """Return a warning about a worker that the nodes do not hold, even without other work; else an empty text."""
    if spec.get("stages"):
        return ""
    known = list(nodes)
    found = worker_capacity(spec, known)
    if found is None or found.workers:
        return ""
    limit, field, most = found.limit, "spec.shards (windlass generate --shards)", found.pods
    largest = max(_amount(node, aigc.GPU) for node in known)
    if 0 < largest < found.gpus:
        field, most = f"the limit {aigc.GPU} (windlass generate --gpus)", largest
        limit = f"the largest has {largest} GPUs, and each pod of a worker needs {found.gpus}"
    elif found.shards == 1:
        return ""  # without any GPU: nodes with GPUs may be added on demand
    helps = f"set {field} to at most {most}, or " if most else ""
    return (
        f"the nodes do not hold 1 worker, even without other work: {limit}. "
        f"The job waits until there are such nodes: {helps}add nodes"
    )


def _amount(node: Json, name: str) -> int:
    """Return the whole number of a resource that a node has."""
    status = aigc.part(node, "status")
    text = str((aigc.part(status, "allocatable") or aigc.part(status, "capacity")).get(name) or "")
    return int(text) if text.isdecimal() else 0

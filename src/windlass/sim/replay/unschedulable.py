"""Jobs that can never run on given nodes, however empty these are, and what they lack there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from windlass.engine.devices.matching import matches
from windlass.sim.cluster import GPU, capacity, gpus_of, model_of
from windlass.sim.jobs import WHOLE, TraceJob, elastic_pods, pod_sizes
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Node

_Asked = tuple[object, ...]


def nowhere(jobs: Sequence[TraceJob], nodes: Sequence[Node], pod_gpus: int = 0) -> Counter[str]:
    """Return missing capacity → number of jobs that can never start for it.

    ``pod_gpus``: maximum GPUs of one pod, 0 for those of the largest node. A job counts once, by its first shortage.
    """
    found: Counter[str] = Counter()
    known: dict[_Asked, str] = {}
    largest = pod_gpus or max(map(gpus_of, nodes), default=0)
    for job in jobs:
        asked: _Asked = (
            job.gpus,
            job.min_gpus,
            job.pod_gpus,
            job.gpu_milli,
            job.cpu_milli,
            job.memory_bytes,
            job.gpu_models,
        )
        if asked not in known:
            known[asked] = _lacks(job, nodes, largest)
        if known[asked]:
            found[known[asked]] += 1
    return found


def _lacks(job: TraceJob, nodes: Sequence[Node], largest: int) -> str:
    fit = [node for node in nodes if _takes(node, job)]
    if not fit:
        there = ", ".join(sorted({model_of(node) for node in nodes} - {""})) or "GPUs of no named model"
        return f"a {' or '.join(job.gpu_models)}, and there are {there}"
    gpus, of = capacity(fit), f" {' or '.join(job.gpu_models)}" if job.gpu_models else ""
    least, shares = job.min_gpus or job.gpus, WHOLE // job.gpu_milli
    if least > gpus * shares:
        parts = f"{gpus * shares} parts of {job.gpu_milli}/{WHOLE} of " if shares > 1 else ""
        return f"more than the {parts}{gpus} GPU{'' if gpus == 1 else 's'}{of} there are"
    size = (elastic_pods(job)[0] if job.elastic else pod_sizes(job, largest))[0]
    if all(gpus_of(node) < size for node in fit):
        most = max(map(gpus_of, fit))
        smaller = f" (--pod-gpus {most} makes smaller ones)" if most else ""
        return f"pods of {size} GPUs{of}, which no node has{smaller}"
    part, over = (size, job.gpus) if job.gpus else (1, 1)
    asked = {"cpu": -(-job.cpu_milli * part // over), "memory": -(-job.memory_bytes * part // over)}
    for name, each in asked.items():
        if all(node.allocatable.get(name, 0) < each for node in fit if gpus_of(node) >= size):
            return f"more {name} for a pod than any node has"
    pods = least // size if size else 1
    room = sum(_room(node, size, shares, asked) for node in fit)
    if pods > room:
        return (
            f"room for {pods} pods of {size} GPU{'' if size == 1 else 's'}{of}, and there is room for {room}"
        )
    return ""


def _takes(node: Node, job: TraceJob) -> bool:
    """Return whether its devices are of a model that the job takes."""
    if not job.gpus or not job.gpu_models:
        return True
    need = DeviceNeed(GPU, models=job.gpu_models)
    return any(matches(need, device, "") for device in node.devices[:1])


def _room(node: Node, size: int, shares: int, asked: Mapping[str, int]) -> int:
    """Return how many pods of ``size`` devices fit on the empty node."""
    cards = gpus_of(node)
    if cards < size:
        return 0
    room = [cards * shares // size] if size else []
    room += [node.allocatable.get(name, 0) // each for name, each in asked.items() if each]
    return min(room, default=1)

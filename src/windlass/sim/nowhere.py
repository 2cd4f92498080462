"""Jobs that can never run on given nodes, however empty these are, and what they lack there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windlass.sim.cluster import capacity, gpus_of, model_of
from windlass.sim.jobs import TraceJob, pod_sizes
from windlass.spi.objects import Node

_Asked = tuple[object, ...]


def nowhere(jobs: Sequence[TraceJob], nodes: Sequence[Node], pod_gpus: int = 0) -> Counter[str]:
    """What is lacking → how many jobs lack it. ``pod_gpus``: the most GPUs of one pod, 0 for as many as the largest
    node has. A job counts once, by the first thing that it lacks."""
    found: Counter[str] = Counter()
    known: dict[_Asked, str] = {}
    largest = pod_gpus or max(map(gpus_of, nodes), default=0)
    for job in jobs:
        asked: _Asked = (
            job.gpus,
            job.min_gpus,
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
    fit = [node for node in nodes if not job.gpus or not job.gpu_models or model_of(node) in job.gpu_models]
    if not fit:
        there = ", ".join(sorted({model_of(node) for node in nodes} - {""})) or "cards of no named model"
        return f"a {' or '.join(job.gpu_models)}, and there are {there}"
    cards, of = capacity(fit), f" {' or '.join(job.gpu_models)}" if job.gpu_models else ""
    least = job.min_gpus or job.gpus
    if least > cards:
        return f"more than the {cards} GPU{'' if cards == 1 else 's'}{of} there are"
    size = 1 if 0 < job.min_gpus < job.gpus else pod_sizes(job, largest)[0]
    if all(gpus_of(node) < size for node in fit):
        most = max(map(gpus_of, fit))
        smaller = f" (--pod-gpus {most} makes smaller ones)" if most else ""
        return f"pods of {size} GPUs{of}, which no node has{smaller}"
    part, over = (size, job.gpus) if job.gpus else (1, 1)
    for name, whole in (("cpu", job.cpu_milli), ("memory", job.memory_bytes)):
        each = -(-whole * part // over)
        if all(node.allocatable.get(name, 0) < each for node in fit if gpus_of(node) >= size):
            return f"more {name} for a pod than any node has"
    return ""

"""Requests put together: what one process generates with one model, before another model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windlass.sim.jobs import TraceJob, in_order


def batches(jobs: Sequence[TraceJob], seconds: float) -> list[TraceJob]:
    """Requests of one model, queue and shape in the order they came, as jobs of about ``seconds``: a batch is full as
    soon as it lasts that long. It comes with the last of its requests, and has its first one's name. Jobs that name no
    model stay as they are. The work stays the same."""
    done: list[TraceJob] = []
    open_: dict[tuple[object, ...], TraceJob] = {}
    for job in in_order(jobs):
        if not job.model:
            done.append(job)
            continue
        kind = (job.model, job.queue, job.gpus, job.gpu_milli, job.cpu_milli, job.memory_bytes, job.priority)
        begun = open_.pop(kind, None)
        if begun is not None:
            whole = begun.duration_seconds + job.duration_seconds
            job = replace(begun, submit_seconds=job.submit_seconds, duration_seconds=whole)
        if job.duration_seconds >= seconds:
            done.append(job)
        else:
            open_[kind] = job
    return in_order([*done, *open_.values()])

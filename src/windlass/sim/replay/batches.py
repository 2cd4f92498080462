"""Requests put together: what one process generates with one model, before another model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windlass.sim.jobs import TraceJob, in_order


def batches(jobs: Sequence[TraceJob], seconds: float) -> list[TraceJob]:
    """Requests that are alike but for whose they are and how long they run, in the order they came, as jobs of about
    ``seconds``: a batch is full as soon as it lasts that long. It comes with the last of its requests, and has its
    first one's name. Jobs that name no model stay as they are. The work stays the same."""
    done: list[TraceJob] = []
    open_: dict[TraceJob, TraceJob] = {}
    for job in in_order(jobs):
        if not job.model:
            done.append(job)
            continue
        kind = replace(
            job, id="", submit_seconds=0.0, duration_seconds=0.0, user="", name="", requested_seconds=None
        )
        begun = open_.pop(kind, None)
        if begun is not None:
            job = _one(begun, job)
        if job.duration_seconds >= seconds:
            done.append(job)
        else:
            open_[kind] = job
    return in_order([*done, *open_.values()])


def _one(begun: TraceJob, job: TraceJob) -> TraceJob:
    """The batch with one request more; of what owners say nobody knows the sum where one of them says nothing."""
    said = (begun.requested_seconds, job.requested_seconds)
    return replace(
        begun,
        submit_seconds=job.submit_seconds,
        duration_seconds=begun.duration_seconds + job.duration_seconds,
        requested_seconds=None if said[0] is None or said[1] is None else said[0] + said[1],
    )

"""Requests put together: what one process generates with one model, before another model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windlass.sim.jobs import TraceJob, in_order


def batches(jobs: Sequence[TraceJob], seconds: float) -> list[TraceJob]:
    """Merge requests that differ only in user and duration into jobs of about ``seconds``, in order of arrival.

    A batch is full once it lasts that long. It arrives with its last request and has the name of its first. Jobs
    without a model stay unchanged. The total work stays the same.
    """
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
    """Return the batch with one more request. A stated value is unknown if one of the requests lacks it."""
    said = (begun.requested_seconds, job.requested_seconds)
    return replace(
        begun,
        submit_seconds=job.submit_seconds,
        duration_seconds=begun.duration_seconds + job.duration_seconds,
        requested_seconds=None if said[0] is None or said[1] is None else said[0] + said[1],
    )

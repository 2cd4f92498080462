"""The figures of a replay, as published tables define them.

* completion: from a job's submission to its end. Queue: that less the job's duration, so that restarts and slow
  places count as waiting. Means in seconds; percentile ``p``: the smallest value that at least ``p`` percent of
  all jobs do not exceed.
* ``bounded_slowdown``: completion by duration, of jobs below ten seconds by ten seconds, at least 1 (Feitelson,
  *Metrics for Parallel Job Scheduling and Their Convergence*, JSSPP 2001).
* ``allocation_percent``: running GPU time between the 5th and the 95th percentile of submissions, as part of
  what the cluster has in that time; GPUs held by gangs in part do not run.
  ``None`` where that is no time at all.
* ``fragmented_percent``: GPUs of nodes that are there, idle while at least one job waits, over the same time.
* ``gpu_hours``: what jobs held, restarts, loads and gangs in part included. ``model_loads``: how often a device
  loaded another AI model.
* ``makespan_seconds``: from the first submission to the last end. Times of no job at all are ``None``.
* ``fairness_jain``: Jain's index (Σx)²/(n·Σx²) over queues; x is a queue's GPU time by duration as part of its
  GPU time by completion: 1 where its jobs never wait. ``None`` of fewer than two queues.
* ``first_start_ok_percent_ge8_gpus``: of the jobs with that many GPUs, those of which no start ever failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from statistics import fmean
from typing import Any

from windlass.sim.jobs import WHOLE
from windlass.sim.replay.outcome import EndedJob, ReplayOutcome, UnfinishedJobs

SHOWN = (50, 90, 99)
SHORT_SECONDS = 10.0
"""Shorter jobs count as so long where their wait is held against their duration."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of one replay under their names in documents; see the module.

    ``left``: unfinished jobs, if requested.
    """

    policy: str
    figures: dict[str, Any]
    left: Sequence[UnfinishedJobs] = ()

    @property
    def document(self) -> dict[str, Any]:
        """Return the metrics, and the unfinished jobs if there are any."""
        never = {"never_ended": [asdict(one) for one in self.left]} if self.left else {}
        return {**self.figures, **never}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the percentile of ascending values; 0 for an empty list."""
    if not ordered:
        return 0.0
    return ordered[max(0, ceil(percent / 100 * len(ordered)) - 1)]


def summary(values: Sequence[float], digits: int = 1) -> dict[str, float | None]:
    """``mean``, ``p50``, ``p90``, ``p99``; ``None`` of no values."""
    if not values:
        return dict.fromkeys(("mean", *(f"p{percent}" for percent in SHOWN)))
    ordered = sorted(values)
    found = {"mean": fmean(ordered)}
    found |= {f"p{percent}": percentile(ordered, percent) for percent in SHOWN}
    return {name: _rounded(value, digits) for name, value in found.items()}


def measure(policy: str, outcome: ReplayOutcome) -> Metrics:
    """All figures of a replay. Jobs that never ended count in ``unfinished_jobs`` alone."""
    done = [ended for ended in outcome.jobs if ended.ended is not None]
    jobs = len(outcome.jobs)
    preemptions = sum(ended.preemptions for ended in outcome.jobs)
    submitted = sorted(ended.job.submit_seconds for ended in outcome.jobs)
    window = (percentile(submitted, 5), percentile(submitted, 95))
    last = max((ended.ended or 0.0 for ended in done), default=0.0)
    figures: dict[str, Any] = {
        "policy": policy,
        "jobs": jobs,
        "seconds": round(outcome.seconds, 2),
        "makespan_seconds": round(last - submitted[0], 1) if done else None,
        "queue_seconds": summary([queue_seconds(ended) for ended in done]),
        "queue_seconds_ge8_gpus": _mean_of(done, lambda ended: ended.job.gpus >= 8),
        "queue_seconds_ge32_gpus": _mean_of(done, lambda ended: ended.job.gpus >= 32),
        "completion_seconds": summary([completion_seconds(ended) for ended in done]),
        "bounded_slowdown": summary([slowdown(ended) for ended in done], 3),
        "allocation_percent": _rounded(_allocation(outcome, window), 2),
        "fragmented_percent": _rounded(_fragmented(outcome, window), 2),
        "preemptions": preemptions,
        "preemptions_per_job": round(preemptions / jobs, 4) if jobs else 0.0,
        "lost_gpu_seconds": round(sum(ended.lost_gpu_seconds for ended in outcome.jobs), 1),
        "gpu_hours": round(sum(span.gpus * (span.end - span.start) for span in outcome.spans) / 3600, 2),
        "model_loads": outcome.model_loads,
        "failed_gang_starts": sum(ended.failed_starts for ended in outcome.jobs),
        "partial_gang_gpu_seconds": round(outcome.partial_gang_gpu_seconds, 1),
        "first_start_ok_percent_ge8_gpus": _first_starts(outcome),
        "fairness_jain": _rounded(fairness(done), 4),
        "node_failures_hit": sum(ended.failures for ended in outcome.jobs),
        "spot_interruptions": sum(ended.spot_interruptions for ended in outcome.jobs),
        "degraded_moves": sum(ended.degraded_moves for ended in outcome.jobs),
        "unfinished_jobs": jobs - len(done),
        "cycles": outcome.cycles,
        "memory_mib": round(outcome.memory_bytes / 2**20, 1),
    }
    return Metrics(policy, figures)


def completion_seconds(ended: EndedJob) -> float:
    """From submission to end. Raises ``ValueError`` for a job that has not ended."""
    if ended.ended is None:
        raise ValueError(f"job {ended.job.id} has not ended")
    return ended.ended - ended.job.submit_seconds


def queue_seconds(ended: EndedJob) -> float:
    """Return completion time minus duration, in seconds."""
    return completion_seconds(ended) - ended.job.duration_seconds


def slowdown(ended: EndedJob) -> float:
    """Return completion time divided by undisturbed duration; see ``bounded_slowdown``.

    Raises ``ValueError`` for an unfinished job.
    """
    return max(1.0, completion_seconds(ended) / max(ended.job.duration_seconds, SHORT_SECONDS))


def fairness(done: Sequence[EndedJob]) -> float | None:
    """Return Jain's index over queues; ``None`` for fewer than two."""
    sums: dict[str, list[float]] = {}
    for ended in done:
        job = ended.job
        gpus = job.gpus * job.gpu_milli / WHOLE or 1.0
        both = sums.setdefault(job.queue, [0.0, 0.0])
        both[0] += job.duration_seconds * gpus
        both[1] += completion_seconds(ended) * gpus
    shares = [run / whole for run, whole in sums.values() if whole > 0]
    if len(shares) < 2:
        return None
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits) + 0.0  # no -0.0


def _mean_of(done: Sequence[EndedJob], chosen: Callable[[EndedJob], bool]) -> dict[str, float | None]:
    values = [queue_seconds(ended) for ended in done if chosen(ended)]
    return {"mean": _rounded(fmean(values), 1) if values else None, "jobs": len(values)}


def _first_starts(outcome: ReplayOutcome) -> float | None:
    large = [ended for ended in outcome.jobs if ended.job.gpus >= 8]
    if not large:
        return None
    return round(100 * sum(1 for ended in large if not ended.failed_starts) / len(large), 1)


def _allocation(outcome: ReplayOutcome, window: tuple[float, float]) -> float | None:
    begin, end = window
    whole = outcome.capacity_gpus * (end - begin)
    if whole <= 0:
        return None
    used = sum(
        span.gpus * (min(span.end, end) - max(span.start, begin))
        for span in outcome.spans
        if not span.held and span.start < end and span.end > begin
    )
    return 100 * used / whole


def _fragmented(outcome: ReplayOutcome, window: tuple[float, float]) -> float | None:
    begin, end = window
    whole = outcome.capacity_gpus * (end - begin)
    if whole <= 0:
        return None
    idle = 0.0
    moments = outcome.moments
    for at, moment in enumerate(moments):
        until = moments[at + 1].time if at + 1 < len(moments) else moment.time
        length = min(until, end) - max(moment.time, begin)
        if moment.waiting_jobs and length > 0:
            idle += (outcome.capacity_gpus - moment.away_gpus - moment.used_gpus) * length
    return 100 * idle / whole

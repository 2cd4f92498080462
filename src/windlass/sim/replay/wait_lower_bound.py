"""How long jobs must wait at least: a yardstick for every policy, oracles included.

A linear program over mean busy times (Goemans, 1997; Goemans, Queyranne, Schulz, Skutella and Wang, 2002): all cards
are one fast machine, on which a job's work is its seconds times its part of the cards. Whatever a policy does on the
cards it does on that machine, and a job that works at speed 1 at most ends no earlier than its mean busy time plus half
of its duration. The least sum of mean busy times is that of whoever always works on the job with the least work; so the
program needs no solver. Nodes, gangs and models are left out, restarts cost nothing: the bound holds whatever is done.

What no job can do is begin before it comes; the greater of both is the bound. Jobs without cards wait for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from windlass.sim.jobs import TraceJob, in_order


def least_mean_queue(jobs: Sequence[TraceJob], power: float, fastest: float = 1.0) -> float:
    """Seconds that completions take at least longer than durations, on the mean over all jobs. ``power``: the speeds of
    all cards in sum; ``fastest``: of one. Where that is more than 1, the least may be less than nothing."""
    if not jobs:
        return 0.0
    alone = [job.duration_seconds / fastest - job.duration_seconds for job in jobs]
    some = in_order([job for job in jobs if job.gpu_seconds and power > 0])
    rest = sum(wait for job, wait in zip(jobs, alone, strict=True) if not job.gpu_seconds)
    waits = [
        busy - job.submit_seconds + job.duration_seconds / fastest / 2 - job.duration_seconds
        for job, busy in zip(some, _mean_busy_times(some, power), strict=True)
    ]
    return max(sum(alone), sum(waits) + rest if some else -inf) / len(jobs)


def _mean_busy_times(jobs: Sequence[TraceJob], power: float) -> list[float]:
    """Of each, on one machine that does ``power`` card-seconds a second, always of the job with the least work; jobs as
    they come."""
    means = [0.0] * len(jobs)
    left = [job.gpu_seconds / power for job in jobs]
    waiting: list[tuple[float, int]] = []
    now, coming = 0.0, 0
    while coming < len(jobs) or waiting:
        if not waiting:
            now = max(now, jobs[coming].submit_seconds)
        while coming < len(jobs) and jobs[coming].submit_seconds <= now:
            heappush(waiting, (left[coming], coming))
            coming += 1
        until = jobs[coming].submit_seconds if coming < len(jobs) else inf
        work, job = waiting[0]
        end = now + left[job]
        begun, now = now, min(end, until)
        means[job] += (now - begun) * (begun + now) / 2 / work
        left[job] -= now - begun
        if end <= until:
            heappop(waiting)
    return means

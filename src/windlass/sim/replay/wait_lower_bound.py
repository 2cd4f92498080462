"""Lower bound on the mean waiting time of jobs under any policy, oracles included.

It is a linear program over mean busy times (Goemans, 1997; Goemans, Queyranne, Schulz, Skutella and Wang, 2002). All
devices are one fast machine, and the work of a job on it is its seconds times its part of the devices. Every schedule
on the devices is a schedule on that machine. A job with a speed of at most 1 ends no earlier than its mean busy time
plus half of its duration. The minimum sum of mean busy times is reached by always working on the job with the least
work, so the program needs no solver. Nodes, gangs and models are relaxed, and restarts cost nothing.

A job also cannot start before its arrival; the greater of both is the bound. Jobs without devices never wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from windlass.sim.jobs import TraceJob, in_order


def least_mean_queue(jobs: Sequence[TraceJob], power: float, fastest: float = 1.0) -> float:
    """Return the lower bound on mean completion time minus mean duration, in seconds.

    ``power``: sum of the speeds of all devices; ``fastest``: highest speed of one device. If it exceeds 1, the bound
    may be negative.
    """
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
    """Return the mean busy time of each job on one machine that does ``power`` device-seconds a second.

    The machine always works on the job with the least work. ``jobs`` are in order of arrival.
    """
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

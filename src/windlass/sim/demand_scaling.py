"""Jobs on capacity that follows a forecast of demand, with overcommitment of the forecast error.

A simulation of its own, in GPUs without nodes: jobs start by age as soon as their GPUs are
free. Capacity of a step is the forecast demand times a margin, plus the GPUs of waiting
jobs, up to a maximum. It never takes GPUs from running jobs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from windlass.predict.demand import STEP_SECONDS
from windlass.sim.jobs import WHOLE, TraceJob, in_order


@dataclass(frozen=True, slots=True)
class ScalingOutcome:
    """Mean wait in seconds, and GPU-hours of capacity."""

    wait_seconds: float
    gpu_hours: float


def demand(jobs: Sequence[TraceJob]) -> list[float]:
    """Return the mean GPUs per step that jobs would use if none waited, from the day of the first one."""
    if not jobs:
        return []
    begin = start_of(jobs)
    last = max(job.submit_seconds + job.duration_seconds for job in jobs) - begin
    used = [0.0] * (int(last // STEP_SECONDS) + 1)
    for job in jobs:
        at, end = job.submit_seconds - begin, job.submit_seconds - begin + job.duration_seconds
        step = int(at // STEP_SECONDS)
        while step * STEP_SECONDS < end:
            length = min(end, (step + 1) * STEP_SECONDS) - max(at, step * STEP_SECONDS)
            used[step] += job.milli / WHOLE * length / STEP_SECONDS
            step += 1
    until = int((max(job.submit_seconds for job in jobs) - begin) // STEP_SECONDS) + 1
    return used[:until]


def start_of(jobs: Sequence[TraceJob]) -> float:
    """Return the start of the day of the first submission."""
    first = min(job.submit_seconds for job in jobs)
    return first - first % 86_400.0


def play(
    jobs: Sequence[TraceJob], forecast: Sequence[float], most_gpus: float, margin: float
) -> ScalingOutcome:
    """Play jobs on capacity by a forecast for each step; after the last step its value holds."""
    begin = start_of(jobs)
    coming = deque(in_order(jobs))
    waiting: deque[TraceJob] = deque()
    ends: list[tuple[float, float]] = []
    used = paid = waited = 0.0
    step = 0
    while coming or waiting:
        now = begin + step * STEP_SECONDS
        backlog = sum(job.milli for job in waiting) / WHOLE
        planned = forecast[min(step, len(forecast) - 1)] * margin + backlog
        capacity = min(most_gpus, planned)
        moment = now
        while True:
            while ends and ends[0][0] <= moment:
                used -= heapq.heappop(ends)[1]
            while coming and coming[0].submit_seconds <= moment:
                waiting.append(coming.popleft())
            while waiting and used + waiting[0].milli / WHOLE <= max(capacity, 0.0) + 1e-9:
                job = waiting.popleft()
                used += job.milli / WHOLE
                waited += moment - job.submit_seconds
                heapq.heappush(ends, (moment + job.duration_seconds, job.milli / WHOLE))
            following = min(
                ends[0][0] if ends else now + STEP_SECONDS,
                coming[0].submit_seconds if coming else now + STEP_SECONDS,
            )
            if following >= now + STEP_SECONDS:
                break
            moment = following
        paid += max(capacity, used) * STEP_SECONDS
        step += 1
    return ScalingOutcome(waited / len(jobs), paid / 3600)


def margin_of(forecast: Sequence[float], series: Sequence[float], percent: float = 90.0) -> float:
    """Return the factor by which a forecast must be raised to cover demand in so many percent of the steps.

    1 / factor is the overcommitment: the part of the raised capacity that the forecast expects to be used.
    """
    ratios = sorted(was / said for said, was in zip(forecast, series, strict=True) if said > 0)
    if not ratios:
        return 1.0
    return max(1.0, ratios[min(len(ratios) - 1, int(percent / 100 * len(ratios)))])

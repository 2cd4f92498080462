"""An outcome reduced to what is drawn of it: a size that does not grow with the trace.

Time is cut into :data:`COLUMNS` columns of equal length; a value of a column is the mean over its time. Invariant:
the mean of a series over its columns equals the mean over the whole time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windlass.sim.replay.metrics import Metrics, completion_seconds, queue_seconds
from windlass.sim.replay.outcome import ClusterMoment, JobSpan, ReplayOutcome

COLUMNS = 720
POINTS = 400
"""Maximum number of points of a distribution."""
MOST_QUEUES = 8
"""Queues drawn by name; the others are one more."""
MOST_NODES = 128
"""Nodes with rows of their own; of more, so many at even distances are drawn."""
OTHERS = "others"
FREE, HELD = 0, 1
"""Cell values of a chart of nodes: idle, held by a partly started gang. Above: 2 + the queue's index."""
TAKEN = 2

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """``parts[i]`` of all jobs take at most ``seconds[i]``; both ascend."""

    seconds: Floats
    parts: Floats


@dataclass(frozen=True, slots=True)
class Chart:
    """Device usage over time: ``cells[lane, column]`` is :data:`FREE`, :data:`HELD` or :data:`TAKEN` + a queue's
    index (with one queue: a number that distinguishes jobs). ``nodes``: name → its first lane;
    ``left_out``: nodes that are not drawn."""

    cells: NDArray[np.uint8]
    nodes: dict[str, int]
    left_out: int


@dataclass(frozen=True, slots=True)
class Study:
    """Chart data of one policy. Series have one value per column, ``hours`` are the columns' beginnings."""

    policy: str
    figures: dict[str, Any]
    capacity_gpus: int
    hours: Floats
    used_gpus: Floats
    waiting_jobs: Floats
    waiting_gpus: Floats
    idle_while_waiting_gpus: Floats
    queue_time: Distribution
    completion_time: Distribution
    queues: tuple[str, ...]
    by_queue: NDArray[np.float64]
    """``[queue, column]``: GPUs in use."""
    chart: Chart


def study(metrics: Metrics, outcome: ReplayOutcome) -> Study:
    """Reduce a replay, from its first submission on. An empty one gives series of zeros."""
    times = [moment.time for moment in outcome.moments]
    begin = min((ended.job.submit_seconds for ended in outcome.jobs), default=times[0] if times else 0.0)
    end = max([span.end for span in outcome.spans] + times[-1:], default=begin)
    edges = np.linspace(begin, max(end, begin + 1.0), COLUMNS + 1)
    moments = np.array(outcome.moments or [ClusterMoment(begin, 0.0, 0, 0.0)], dtype=np.float64)
    idle = np.where(moments[:, 2] > 0, outcome.capacity_gpus - moments[:, 4] - moments[:, 1], 0.0)
    queues, index = _queues(outcome)
    done = [ended for ended in outcome.jobs if ended.ended is not None]
    return Study(
        policy=metrics.policy,
        figures=metrics.figures,
        capacity_gpus=outcome.capacity_gpus,
        hours=(edges[:-1] - begin) / 3600,
        used_gpus=_means(moments[:, 0], moments[:, 1], edges),
        waiting_jobs=_means(moments[:, 0], moments[:, 2], edges),
        waiting_gpus=_means(moments[:, 0], moments[:, 3], edges),
        idle_while_waiting_gpus=_means(moments[:, 0], idle, edges),
        queue_time=distribution([queue_seconds(ended) for ended in done]),
        completion_time=distribution([completion_seconds(ended) for ended in done]),
        queues=queues,
        by_queue=_by_queue(outcome, index, len(queues), edges),
        chart=_chart(outcome, index if len(queues) > 1 else _by_job(outcome), edges),
    )


def distribution(values: Sequence[float]) -> Distribution:
    """At most :data:`POINTS` points, the least and the greatest value among them."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not len(ordered):
        return Distribution(np.zeros(0), np.zeros(0))
    at = np.unique(np.linspace(0, len(ordered) - 1, min(POINTS, len(ordered))).round().astype(np.int64))
    return Distribution(ordered[at], (at + 1) / len(ordered))


def _means(times: Floats, values: Floats, edges: Floats) -> Floats:
    """The mean per column of a value that changes at ``times``; 0 before the first, the last one stays."""
    whole = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(times))))
    at = np.searchsorted(times, edges, side="right") - 1
    inside = np.maximum(at, 0)
    integral = np.where(at < 0, 0.0, whole[inside] + values[inside] * (edges - times[inside]))
    return np.diff(integral) / np.diff(edges)


def _queues(outcome: ReplayOutcome) -> tuple[tuple[str, ...], list[int]]:
    """The names drawn, those with the most work first, and of each job the index of its queue's name."""
    work: dict[str, float] = {}
    for ended in outcome.jobs:
        work[ended.job.queue] = work.get(ended.job.queue, 0.0) + ended.job.gpu_seconds
    names = sorted(work, key=lambda name: (-work[name], name))
    shown = names if len(names) <= MOST_QUEUES + 1 else [*names[:MOST_QUEUES], OTHERS]
    place = {name: min(at, len(shown) - 1) for at, name in enumerate(names)}
    return tuple(shown), [place[ended.job.queue] for ended in outcome.jobs]


def _by_job(outcome: ReplayOutcome) -> list[int]:
    """Return a number per job that differs from those of its neighbours."""
    return [number % (MOST_QUEUES + 1) for number in range(len(outcome.jobs))]


def _by_queue(outcome: ReplayOutcome, index: Sequence[int], count: int, edges: Floats) -> NDArray[np.float64]:
    found = np.zeros((max(count, 1), COLUMNS))
    for queue in range(count):
        spans = [span for span in outcome.spans if index[span.job] == queue and not span.held]
        steps = sorted(
            [(span.start, span.gpus) for span in spans] + [(span.end, -span.gpus) for span in spans]
        )
        if steps:
            changes = np.array(steps)
            found[queue] = _means(changes[:, 0], np.cumsum(changes[:, 1]), edges)
    return found


def _chart(outcome: ReplayOutcome, index: Sequence[int], edges: Floats) -> Chart:
    """Lanes are given out first come, first served; a span that is shorter than a column still takes one."""
    most = _most_lanes(outcome.spans)
    names = sorted(most)
    drawn = names[:: max(1, ceil(len(names) / MOST_NODES))]
    first: dict[str, int] = {}
    lanes = 0
    for name in drawn:
        first[name] = lanes
        lanes += most[name]
    cells = np.zeros((lanes, COLUMNS), dtype=np.uint8)
    free_at = np.full(lanes, -np.inf)
    scale = COLUMNS / (edges[-1] - edges[0])
    for span in sorted(outcome.spans, key=lambda span: span.start):
        begin = min(int((span.start - edges[0]) * scale), COLUMNS - 1)
        end = max(begin + 1, ceil((span.end - edges[0]) * scale - 1e-9))
        colour = HELD if span.held else TAKEN + index[span.job]
        for name, count in _lanes_of(span).items():
            base = first.get(name)
            if base is None:
                continue
            own = np.argsort(free_at[base : base + most[name]], kind="stable")[:count] + base
            free_at[own] = span.end
            cells[own, begin:end] = colour
    return Chart(cells, first, len(names) - len(drawn))


def _lanes_of(span: JobSpan) -> dict[str, int]:
    """Node → devices of it; parts of devices take a lane."""
    return {name: max(1, ceil(gpus - 1e-9)) for name, gpus in span.by_node().items()}


def _most_lanes(spans: Sequence[JobSpan]) -> dict[str, int]:
    """Node → the most lanes that are taken at once."""
    steps: dict[str, list[tuple[float, int]]] = {}
    for span in spans:
        for name, count in _lanes_of(span).items():
            steps.setdefault(name, []).extend(((span.start, count), (span.end, -count)))
    most: dict[str, int] = {}
    for name, changes in steps.items():
        now = highest = 0
        for _, change in sorted(changes):
            now += change
            highest = max(highest, now)
        most[name] = highest
    return most

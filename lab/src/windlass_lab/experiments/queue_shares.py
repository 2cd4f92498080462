"""E11: queues with weights get what their weights say, hour by hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from windlass.sim.cluster import parse
from windlass.sim.replay.metrics import percentile
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import ReplayPolicy
from windlass.spi.objects import Queue
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal
from windlass_lab.experiments.configured import MOVING, RECLAIMING
from windlass_lab.experiments.lab import PHILLY, USUAL, Lab
from windlass_lab.experiments.shortfalls import Shortfall, reasons

HOUR = 3600.0
NODES = "48x8"
WEIGHTS = (100, 50)
MOST_POINTS = 5.0


@dataclass(frozen=True, slots=True)
class Hour:
    """One window: the part that each queue with waiting work had of what such queues had, and the part due to it.
    ``least``: the smallest job of each that waited all the time, as a part of the same. ``middle``: half past it, in
    seconds of the trace."""

    had: Mapping[str, float]
    due: Mapping[str, float]
    least: Mapping[str, float] = field(default_factory=dict)
    middle: float = 0.0

    @property
    def deviation(self) -> float:
        """The largest difference, in points."""
        return max(100 * abs(self.had[name] - self.due[name]) for name in self.due)

    @property
    def lack(self) -> float:
        """The most that a queue lacked of its part while a job of it waited that would have fitted into that, in
        points."""
        lacks = {name: self.due[name] - self.had[name] for name in self.due}
        return 100 * max(
            (lack for name, lack in lacks.items() if self.least.get(name, 1.0) <= lack), default=0.0
        )

    @property
    def jain(self) -> float:
        """Jain's index of had by due."""
        ratios = [self.had[name] / self.due[name] for name in self.due]
        squares = sum(ratio * ratio for ratio in ratios)
        return sum(ratios) ** 2 / (len(ratios) * squares) if squares else 0.0


def shares(lab: Lab) -> ExperimentFinding:
    """E11."""
    names = sorted({job.queue for job in lab.jobs(PHILLY)})
    weights = {name: WEIGHTS[at % 2] for at, name in enumerate(names)}
    before = windows(_play(lab, "fifo-backfill", weights), weights)
    unmoved = windows(_play(lab, RECLAIMING, weights), weights)
    outcome = _play(lab, MOVING, weights)
    after = windows(outcome, weights)
    was, now = (sorted(hour.deviation for hour in hours) for hours in (before, after))
    lacked, lacks = (sorted(hour.lack for hour in hours) for hours in (before, after))
    jain_was, jain_now = (sum(hour.jain for hour in hours) / len(hours) for hours in (before, after))
    return ExperimentFinding(
        (
            Figure("mean of the largest deviation, points", _mean(was), _mean(now), "", 1),
            Figure("p90 of it", percentile(was, 90), percentile(now, 90), "", 1),
            Figure("largest of all", was[-1], now[-1], "", 1),
            Figure(
                "mean of what a queue lacks that has a job for it, points", _mean(lacked), _mean(lacks), "", 1
            ),
            Figure("the most that one lacks", lacked[-1], lacks[-1], "", 1),
            Figure("Jain's index, mean", jain_was, jain_now, "", 3),
            Figure("windows with two or more queues that wait throughout", len(before), len(after)),
            Figure("stops and moves per job", 0.0, _stops(outcome), "", 3),
            Figure(
                "by reclaim alone, without moves: mean of the largest deviation, points",
                _mean(was),
                _mean([hour.deviation for hour in unmoved]),
                "",
                1,
            ),
            *_why(outcome, weights, [hour.middle for hour in after if hour.deviation > MOST_POINTS]),
        ),
        (
            Goal("no deviation above 5 points", now[-1] <= MOST_POINTS),
            Goal(
                "no queue lacks more than 5 points that a job of it would have fitted into",
                lacks[-1] <= MOST_POINTS,
            ),
            Goal("Jain's index of at least 0.95", jain_now >= 0.95),
        ),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _stops(outcome: ReplayOutcome) -> float:
    return sum(ended.preemptions for ended in outcome.jobs) / len(outcome.jobs)


def _why(outcome: ReplayOutcome, weights: Mapping[str, int], middles: Sequence[float]) -> Iterable[Figure]:
    """Yield the obstacles at half past each hour with a deviation."""
    shape = parse(NODES)[0]
    found = reasons(outcome, weights, middles, shape.count, shape.gpus)
    yield Figure("hours more than 5 points off", None, len(middles))
    for shortfall in Shortfall:
        yield Figure(f"of these: {shortfall}", None, found[shortfall])


def _play(lab: Lab, policy: str | ReplayPolicy, weights: Mapping[str, int]) -> ReplayOutcome:
    terms = {name: Queue(name, weight=weight) for name, weight in weights.items()}
    options = replace(USUAL, queues=not isinstance(policy, str), terms=terms, time_share=False)
    return lab.play(lab.jobs(PHILLY), NODES, policy, options)


def windows(outcome: ReplayOutcome, weights: Mapping[str, int]) -> list[Hour]:
    """The windows of an hour between the first and the last submission in which at least two queues have waiting
    work all the time, and use GPUs."""
    begin = min(ended.job.submit_seconds for ended in outcome.jobs)
    last = max(ended.job.submit_seconds for ended in outcome.jobs)
    count = int((last - begin) // HOUR)
    used = {name: [0.0] * count for name in weights}
    queues = [ended.job.queue for ended in outcome.jobs]
    runs: dict[int, list[tuple[float, float]]] = {}
    for span in outcome.spans:
        _add(used[queues[span.job]], span.start - begin, span.end - begin, span.gpus)
        if not span.held:
            runs.setdefault(span.job, []).append((span.start - begin, span.end - begin))
    waits: dict[str, list[tuple[float, float]]] = {name: [] for name in weights}
    least = {name: [inf] * count for name in weights}
    for at, ended in enumerate(outcome.jobs):
        until = (ended.ended if ended.ended is not None else last) - begin
        gaps = _gaps(ended.job.submit_seconds - begin, until, runs.get(at, []))
        waits[ended.job.queue] += gaps
        smallest = least[ended.job.queue]
        for hour in (hour for gap in gaps for hour in _whole(*gap, count)):
            smallest[hour] = min(smallest[hour], ended.job.gpus)
    backlog = {name: _throughout(spells, count) for name, spells in waits.items()}
    found: list[Hour] = []
    for at in range(count):
        names = [name for name in weights if backlog[name][at]]
        total = sum(used[name][at] for name in names)
        whole = sum(weights[name] for name in names)
        if len(names) >= 2 and total > 0:
            had = {name: used[name][at] / total for name in names}
            smallest_part = {name: least[name][at] * HOUR / total for name in names}
            due = {name: weights[name] / whole for name in names}
            found.append(Hour(had, due, smallest_part, begin + (at + 0.5) * HOUR))
    return found


def _add(hours: list[float], start: float, end: float, gpus: float) -> None:
    """GPU time from ``start`` to ``end``, by hours."""
    at = max(0, int(start // HOUR))
    while at < len(hours) and at * HOUR < end:
        hours[at] += gpus * (min(end, (at + 1) * HOUR) - max(start, at * HOUR))
        at += 1


def _gaps(start: float, end: float, runs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the periods in which a job waits: from submission to end, except its runs."""
    found = []
    for begun, over in sorted(runs):
        if begun > start:
            found.append((start, begun))
        start = max(start, over)
    if end > start:
        found.append((start, end))
    return found


def _throughout(spells: Sequence[tuple[float, float]], count: int) -> list[bool]:
    """For each hour whether spells cover all of it."""
    found = [False] * count
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spells):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    for start, end in merged:
        for at in _whole(start, end, count):
            found[at] = True
    return found


def _whole(start: float, end: float, count: int) -> range:
    """The hours, of so many, that lie between two moments."""
    return range(int(-(-start // HOUR)), min(count, int(end // HOUR)))


EXPERIMENTS = (
    Experiment(
        "E11",
        "queues get their fair share (weights 100 : 50)",
        "Philly, October 2017; its 11 virtual clusters are queues of weight 100 and 50 in turn",
        "48 nodes of 8 GPUs (load 1.13: there is always pending work)",
        "fifo-backfill: one queue, by age",
        "windlass: queues by dominant share, with reclaim, then consolidation of work that agreed to be moved, as all"
        " has here (no time-sharing)",
        "in windows of an hour, among queues that wait throughout: difference between a queue's part of the GPUs and"
        " its weight's; Jain's index of the one by the other",
        (PHILLY,),
        "A queue of which only a large gang waits counts as waiting, though it may be within one gang of its share:"
        " therefore what a queue lacks is also told where a job of it waits that would fit into that. In the worst"
        " hours these are jobs of eight GPUs, and their pod needs a node for itself: shares are amounts, reclaim stops"
        " no job of a queue within its share, and consolidation moves only pods that fit elsewhere without stopping"
        " others. The last rows say what stood in the way half past each hour that is off. A restart costs 7/30/60 s,"
        " whether a job was stopped or moved.",
        shares,
    ),
)

"""E15: 100,000 items by one static group of workers, and by grouped, autoscaled workers on spot nodes.

A simulation of its own. A worker is a node of one GPU, which processes one item at a time and loads the base model
of an item (``LOAD``) if it has another one. Static workers take items in the order of their submission. Autoscaled
workers take batches of one base model. Every ``TICK`` the autoscaler wants a node for each waiting or running batch,
within ``LEAST`` and ``MOST``. A node serves ``START`` seconds after it is requested, and is paid for from then on;
an idle one is released after ``COOLDOWN``. Nodes beyond the minimum are spot: one is taken away after ``SPOT_HOURS``
on average, and its item is processed again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

from windlass.kits.rng import seeded
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal, less
from windlass_lab.experiments.lab import Lab

ITEMS, BRIEF_ITEMS = 100_000, 4_000
BASE_MODELS = 80
LOAD, START, TICK, COOLDOWN = 22.0, 120.0, 60.0, 600.0
LEAST, MOST = 2, 200
BATCH_SECONDS = 600.0
SPOT_HOURS = 8.0
HOUR, DAY_HOURS = 3600.0, 24
ON_DEMAND, SPOT = 1.00, 0.35
"""Prices of a GPU-hour, relative to on-demand capacity: an assumption, as published discounts are 60 to 70 %."""
CLAIMED_HOURS, RATIO = 24.0, 6.0


@dataclass(frozen=True, slots=True)
class WorkItem:
    """WorkItem of a batch job: its base model and the seconds that it takes."""

    model: int
    seconds: float


@dataclass(slots=True)
class ScaledRun:
    """``nodes``: time in seconds → nodes from then on. GPU-hours as paid."""

    makespan: float = 0.0
    on_demand_hours: float = 0.0
    spot_hours: float = 0.0
    interruptions: int = 0
    nodes: list[tuple[float, int]] = field(default_factory=list)

    @property
    def peak(self) -> int:
        return max((count for _, count in self.nodes), default=0)

    def at(self, seconds: float) -> int:
        """Return the nodes at a time."""
        return next((count for time, count in reversed(self.nodes) if time <= seconds), 0)


def items(count: int) -> list[WorkItem]:
    """Return items of base models, the k-th with a weight of 1/k."""
    chance = seeded("items")
    weights = [1.0 / (rank + 1) for rank in range(BASE_MODELS)]
    models = chance.choices(range(BASE_MODELS), weights, k=count)
    return [WorkItem(model, min(max(5.0, exp(chance.gauss(3.2, 0.5))), 300.0)) for model in models]


def static(work: Sequence[WorkItem], workers: int) -> float:
    """Return the makespan in seconds of a static group that takes items in order."""
    free = [(0.0, number) for number in range(workers)]
    loaded = [-1] * workers
    last = 0.0
    for item in work:
        begin, number = heapq.heappop(free)
        load = 0.0 if loaded[number] == item.model else LOAD
        loaded[number] = item.model
        end = begin + load + item.seconds
        last = max(last, end)
        heapq.heappush(free, (end, number))
    return last


def batches(work: Sequence[WorkItem]) -> deque[list[WorkItem]]:
    """Return batches of one base model of about ``BATCH_SECONDS``, batches of one model in a row."""
    by_model: dict[int, list[WorkItem]] = {}
    for item in work:
        by_model.setdefault(item.model, []).append(item)
    found: deque[list[WorkItem]] = deque()
    for model in sorted(by_model):
        batch: list[WorkItem] = []
        seconds = 0.0
        for item in by_model[model]:
            batch.append(item)
            seconds += item.seconds
            if seconds >= BATCH_SECONDS:
                found.append(batch)
                batch, seconds = [], 0.0
        if batch:
            found.append(batch)
    return found


@dataclass(slots=True)
class _Worker:
    """Node with one GPU. ``free_at``: end of its start or of its batch; ``lost_at``: when spot capacity is gone."""

    since: float
    free_at: float
    lost_at: float
    spot: bool
    model: int = -1
    begun: float = 0.0
    batch: list[WorkItem] = field(default_factory=list)


class ScaledWorkers:
    """One run of grouped, autoscaled workers, in ticks."""

    def __init__(self, work: Sequence[WorkItem]) -> None:
        self._waiting = batches(work)
        self._chance = seeded("spot")
        self._workers: list[_Worker] = []
        self.run_ = ScaledRun()

    def run(self, horizon: float) -> ScaledRun:
        """Play until all is processed, and on to ``horizon`` (seconds)."""
        now = 0.0
        while now < horizon or self._waiting or any(worker.batch for worker in self._workers):
            self._end_batches(now)
            self._scale(now)
            self._begin_batches(now)
            if not self.run_.nodes or self.run_.nodes[-1][1] != len(self._workers):
                self.run_.nodes.append((now, len(self._workers)))
            now += TICK
        for worker in self._workers:
            self._pay(worker, now)
        return self.run_

    def _end_batches(self, now: float) -> None:
        """Return finished batches, and those of nodes that were taken away until now."""
        kept = []
        for worker in self._workers:
            if worker.lost_at <= now:
                self._lose(worker)
                continue
            if worker.batch and worker.free_at <= now:
                self.run_.makespan = max(self.run_.makespan, worker.free_at)
                worker.batch = []
            kept.append(worker)
        self._workers = kept

    def _lose(self, worker: _Worker) -> None:
        self.run_.interruptions += 1
        self._pay(worker, worker.lost_at)
        if not worker.batch:
            return
        if worker.free_at <= worker.lost_at:
            self.run_.makespan = max(self.run_.makespan, worker.free_at)
            return
        at, left = worker.begun, list(worker.batch)
        while left and at + left[0].seconds <= worker.lost_at:
            at += left.pop(0).seconds
        if left:
            self._waiting.appendleft(left)

    def _scale(self, now: float) -> None:
        busy = sum(bool(worker.batch) for worker in self._workers)
        wanted = min(MOST, max(LEAST, busy + len(self._waiting)))
        while len(self._workers) < wanted:
            spot = sum(not worker.spot for worker in self._workers) >= LEAST
            away = self._chance.expovariate(1 / (SPOT_HOURS * HOUR)) if spot else float("inf")
            begin = now + START if now else 0.0
            self._workers.append(_Worker(now, begin, now + away, spot))
        for worker in sorted(self._workers, key=lambda one: not one.spot):
            if len(self._workers) <= wanted or worker.batch or now - worker.free_at < COOLDOWN:
                continue
            self._pay(worker, now)
            self._workers.remove(worker)

    def _begin_batches(self, now: float) -> None:
        for worker in self._workers:
            if not self._waiting or worker.batch or worker.free_at > now:
                continue
            worker.batch = self._waiting.popleft()
            model = worker.batch[0].model
            worker.begun = now + (0.0 if worker.model == model else LOAD)
            worker.model = model
            worker.free_at = worker.begun + sum(item.seconds for item in worker.batch)

    def _pay(self, worker: _Worker, until: float) -> None:
        hours = (until - worker.since) / HOUR
        if worker.spot:
            self.run_.spot_hours += hours
        else:
            self.run_.on_demand_hours += hours


def static_size(work: Sequence[WorkItem], hours: float) -> int:
    """Return the least number of workers with which a static group needs at most so many hours."""
    low, high = 1, MOST
    while low < high:
        middle = (low + high) // 2
        if static(work, middle) <= hours * HOUR:
            high = middle
        else:
            low = middle + 1
    return low


def shop(lab: Lab) -> ExperimentFinding:
    """E15."""
    work = items(BRIEF_ITEMS if lab.brief else ITEMS)
    size = static_size(work, CLAIMED_HOURS)
    slow, fast = static(work, size) / HOUR, static(work, MOST) / HOUR
    run = ScaledWorkers(work).run(DAY_HOURS * HOUR)
    hours = run.makespan / HOUR
    peak_hours, paid_hours = MOST * DAY_HOURS, run.on_demand_hours + run.spot_hours
    peak_price = peak_hours * ON_DEMAND
    price = run.on_demand_hours * ON_DEMAND + run.spot_hours * SPOT
    saved = less(peak_price, price)
    over_time = [
        Figure(f"nodes after {at} h", MOST, run.at(at * HOUR)) for at in (0, 1, 2, 3, 4, 5, 6, 12, 23)
    ]
    return ExperimentFinding(
        (
            Figure(f"makespan of {len(work):,} items, static group of {size}", slow, hours, "h", 2),
            Figure(f"makespan of {len(work):,} items, static group of {MOST}", fast, hours, "h", 2),
            Figure(f"ratio to the static group of {size}", None, slow / hours, "", 2),
            Figure(f"ratio to the static group of {MOST}", None, fast / hours, "", 2),
            Figure("price table: on-demand GPU-hour", ON_DEMAND, ON_DEMAND, "", 2),
            Figure("price table: spot GPU-hour", None, SPOT, "", 2),
            Figure("GPU-hours of a day", peak_hours, paid_hours, "h", 1),
            Figure("of these on spot nodes", 0, run.spot_hours, "h", 1),
            Figure("price of a day", peak_price, price, "", 1),
            Figure("price saved", None, saved, "%", 1),
            Figure("spot nodes taken away", None, run.interruptions),
            *over_time,
            Figure("peak of nodes", MOST, run.peak),
        ),
        (
            Goal(f"ratio of {RATIO:g} or better to the static group of {size} (N3)", slow / hours >= RATIO),
            Goal("price at least 60 % lower (N4)", saved >= 60.0),
            Goal(
                f"at most {MOST} nodes, and {LEAST} again after the backlog (N5)",
                run.peak <= MOST and run.at((DAY_HOURS - 1) * HOUR) == LEAST,
            ),
        ),
        note="Prices are relative to on-demand capacity, and assumed. The static group is as large as the claim's 24 h"
        " need; that of 200 shows how much of the ratio is the number of GPUs, and how much grouping by base model.",
    )


EXPERIMENTS = (
    Experiment(
        "E15",
        "over 100,000 items a day take 4 instead of 24 h, at 60 % less cost, with a peak of 200 GPU nodes",
        "generated: 100,000 items of 80 base models, submitted at once",
        "nodes of one GPU; 2 to 200 of them by autoscaling",
        "static groups of workers, items in order; for GPU-hours and price, 200 nodes for 24 h",
        "batches of one base model on autoscaled nodes, 2 on demand and the others spot (mean life 8 h)",
        "makespan; GPU-hours; price; nodes over time",
        (),
        "A simulation of its own: workers, model loads and nodes that come and go, without the scheduler's engine.",
        shop,
    ),
)

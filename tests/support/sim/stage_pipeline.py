"""Discrete-event model of a batch with stages: workers, a bounded spool, and the balancer at intervals."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from windlass.scaling.balance import StageLoad

Balance = Callable[[Sequence[StageLoad], Mapping[str, int]], Mapping[str, int]]


@dataclass
class ModelStage:
    """``seconds``: mean time of an item. ``devices``: whether a worker holds a device."""

    name: str
    seconds: float
    pool: str = "slots"
    devices: bool = False
    most: int = 1_000_000
    workers: int = 0
    busy: int = 0
    pending: int = 0
    done: int = 0
    measured: float = 0.0
    held_seconds: float = 0.0
    used_seconds: float = 0.0


@dataclass
class Pipeline:
    """Model of one batch. ``history``: (time, workers of each stage) after each decision."""

    stages: list[ModelStage]
    rows: int
    budgets: Mapping[str, int]
    balance: Balance
    spool: int = 10_000
    interval: float = 1.0
    seed: int = 1
    history: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def run(self) -> float:
        """Run until all rows have left the last stage; return the model time."""
        self._chance, self._now = random.Random(self.seed), 0.0
        self._ends: list[tuple[float, int, float]] = []
        self.stages[0].pending = self.rows
        decide = 0.0
        while self.stages[-1].done < self.rows:
            if self._now >= decide:
                self._decide()
                decide = self._now + self.interval
            self._begin()
            upcoming = self._ends[0][0] if self._ends else decide
            self._pass(min(upcoming, decide))
            while self._ends and self._ends[0][0] <= self._now:
                _, index, seconds = heapq.heappop(self._ends)
                self._end(index, seconds)
        return self._now

    def _pass(self, until: float) -> None:
        for stage in self.stages:
            stage.held_seconds += max(stage.workers, stage.busy) * (until - self._now)
            stage.used_seconds += stage.busy * (until - self._now)
        self._now = until

    def _decide(self) -> None:
        loads = [
            StageLoad(
                stage.name,
                stage.pool,
                stage.measured,
                self.rows - stage.done,
                stage.pending,
                index > 0 and stage.pending >= self.spool,
                stage.workers,
                most=stage.most,
                devices=stage.devices,
            )
            for index, stage in enumerate(self.stages)
            if index == 0 or stage.pending or stage.busy or not stage.devices
        ]
        found = self.balance(loads, self.budgets)
        for stage in self.stages:
            stage.workers = found.get(stage.name, 0)
        self.history.append((self._now, tuple(stage.workers for stage in self.stages)))

    def _begin(self) -> None:
        """Let free workers begin items. A worker ends its item before its stage has fewer of them."""
        for index, stage in enumerate(self.stages):
            behind = self.stages[index + 1].pending if index + 1 < len(self.stages) else -self.rows
            while stage.busy < stage.workers and stage.pending and behind + stage.busy < self.spool:
                if sum(one.busy for one in self.stages if one.pool == stage.pool) >= self.budgets[stage.pool]:
                    break  # a worker of another stage has not given its slot back yet
                seconds = stage.seconds * self._chance.uniform(0.8, 1.2)
                stage.pending -= 1
                stage.busy += 1
                heapq.heappush(self._ends, (self._now + seconds, index, seconds))

    def _end(self, index: int, seconds: float) -> None:
        stage = self.stages[index]
        stage.busy -= 1
        stage.done += 1
        stage.measured += 0.05 * (seconds - stage.measured) if stage.measured else seconds
        if index + 1 < len(self.stages):
            self.stages[index + 1].pending += 1

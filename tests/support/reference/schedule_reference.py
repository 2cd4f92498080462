"""Schedules by the published definitions of policies, worked out without the engine: small, slow and plain.

Jobs are ``(submit, duration, GPUs)``, of one kind of card; what comes back has the moments by the number of the job.
A job is a gang of pods, each of as many GPUs as the largest node has, the last of the rest. Of nodes that fit, the one
that is in use most (for ``kube`` least) once the pod is there is taken, of equal ones the first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

Job = tuple[float, float, int]
PATIENCE, PAUSE = 1800.0, 300.0
"""Of ``kube``: a job in part is looked at every half hour, and comes again five minutes after it was given up."""


class Nodes:
    """What is free on nodes of these sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self.free, self.largest = sizes, list(sizes), max(sizes)

    def pods(self, gpus: int, most: int = 0) -> list[int]:
        most = most or self.largest
        return [most] * (gpus // most) + [gpus % most] * (gpus % most > 0)

    def pick(self, gpus: int, *, emptiest: bool = False) -> int | None:
        sign = 1 if emptiest else -1
        found = [
            (sign * (size - free + gpus) / size, at)
            for at, (size, free) in enumerate(zip(self.sizes, self.free, strict=True))
            if free >= gpus
        ]
        return min(found)[1] if found else None

    def gang(self, gpus: int) -> list[tuple[int, int]] | None:
        """Where all of its pods go, or nothing."""
        before, seats = list(self.free), list[tuple[int, int]]()
        for pod in self.pods(gpus):
            node = self.pick(pod)
            if node is None:
                self.free = before
                return None
            self.free[node] -= pod
            seats.append((node, pod))
        return seats


class Queue:
    """Jobs that are never stopped. ``policy``: ``fifo``, ``fifo-backfill``, ``sjf``, or ``easy`` (on one node)."""

    def __init__(self, jobs: Sequence[Job], sizes: Sequence[int], policy: str) -> None:
        self.jobs, self.policy, self.nodes = jobs, policy, Nodes(sizes)
        self.starts: list[float | None] = [None] * len(jobs)
        self.running: list[tuple[float, int]] = []
        self.seats: dict[int, list[tuple[int, int]]] = {}
        self.waiting: list[int] = []

    def play(self) -> list[float | None]:
        coming = sorted(range(len(self.jobs)), key=lambda at: (self.jobs[at][0], at))
        while coming or self.running:
            now = min(self.jobs[coming[0]][0] if coming else inf, self.running[0][0] if self.running else inf)
            while self.running and self.running[0][0] <= now:
                for node, gpus in self.seats.pop(heapq.heappop(self.running)[1]):
                    self.nodes.free[node] += gpus
            while coming and self.jobs[coming[0]][0] <= now:
                self.waiting.append(coming.pop(0))
            self._decide(now)
        return self.starts

    def _go(self, at: int, now: float) -> bool:
        seats = self.nodes.gang(self.jobs[at][2])
        if seats is None:
            return False
        self.seats[at], self.starts[at] = seats, now
        heapq.heappush(self.running, (now + self.jobs[at][1], at))
        return True

    def _decide(self, now: float) -> None:
        if self.policy == "sjf":
            self.waiting.sort(key=lambda at: (self.jobs[at][1], self.jobs[at][0], at))
        if self.policy in ("sjf", "fifo-backfill"):
            self.waiting = [at for at in self.waiting if not self._go(at, now)]
            return
        while self.waiting and self._go(self.waiting[0], now):
            self.waiting.pop(0)
        if self.policy == "easy" and self.waiting:
            self._pass(now)

    def _pass(self, now: float) -> None:
        """EASY (Lifka 1995): whoever is over before the first can start, or leaves it what it needs, goes before."""
        first = self.waiting[0]
        ends = sorted(self.running)
        due = next(end for end, _ in ends if self._free_at(end, ends) >= self.jobs[first][2])
        extra = self._free_at(due, ends) - self.jobs[first][2]
        left = [first]
        for at in self.waiting[1:]:
            late = now + self.jobs[at][1] > due
            if (late and self.jobs[at][2] > extra) or not self._go(at, now):
                left.append(at)
            elif late:
                extra -= self.jobs[at][2]
        self.waiting = left

    def _free_at(self, moment: float, ends: Sequence[tuple[float, int]]) -> int:
        return self.nodes.free[0] + sum(self.jobs[at][2] for end, at in ends if end <= moment)


class Bound(NamedTuple):
    """What became of jobs whose pods are bound one by one."""

    starts: list[float]
    failed: list[int]
    held: float
    """GPU-seconds of jobs in part."""


class OneByOne:
    """``kube``: pods are bound by age, whoever fits; who holds some of his places holds them in vain. ``most``: GPUs
    of one pod, 0 for as many as the largest node has."""

    def __init__(self, jobs: Sequence[Job], sizes: Sequence[int], most: int = 0, *, emptiest: bool) -> None:
        self.jobs, self.nodes, self.emptiest = jobs, Nodes(sizes), emptiest
        self.pods = [self.nodes.pods(job[2], most) for job in jobs]
        self.seats: list[dict[int, tuple[int, float]]] = [{} for _ in jobs]
        self.bound = Bound([inf] * len(jobs), [0] * len(jobs), 0.0)
        self.came = [0.0] * len(jobs)
        self.pending: set[tuple[float, int, int]] = set()
        self.events: list[tuple[float, int, int, int]] = []
        """Moment, kind (0: ends, 1: is looked at, 2: comes), job, and in which of its tries."""

    def play(self, most_failed: int) -> Bound | None:
        """``None`` where a job fails to start more often than that: some are in one another's way for ever."""
        for at, job in enumerate(self.jobs):
            heapq.heappush(self.events, (job[0], 2, at, 0))
        while self.events:
            if max(self.bound.failed) > most_failed:
                return None
            now = self.events[0][0]
            while self.events and self.events[0][0] <= now:
                _, kind, at, tries = heapq.heappop(self.events)
                (self._ends, self._looked_at, self._comes)[kind](at, tries, now)
            for pod in sorted(self.pending):
                self._bind(pod, now)
        return self.bound

    def _comes(self, at: int, tries: int, now: float) -> None:
        self.came[at] = now
        self.pending |= {(now, at, number) for number in range(len(self.pods[at]))}

    def _ends(self, at: int, tries: int, now: float) -> None:
        for number, (node, _) in self.seats[at].items():
            self.nodes.free[node] += self.pods[at][number]

    def _looked_at(self, at: int, tries: int, now: float) -> None:
        if self.bound.failed[at] != tries or not 0 < len(self.seats[at]) < len(self.pods[at]):
            return
        self.bound.failed[at] += 1
        self._hold(at, now)
        self._ends(at, tries, now)
        self.seats[at] = {}
        self.pending = {pod for pod in self.pending if pod[1] != at}
        heapq.heappush(self.events, (now + PAUSE, 2, at, 0))

    def _hold(self, at: int, now: float) -> None:
        held = sum(self.pods[at][number] * (now - since) for number, (_, since) in self.seats[at].items())
        self.bound = self.bound._replace(held=self.bound.held + held)

    def _bind(self, pod: tuple[float, int, int], now: float) -> None:
        _, at, number = pod
        gpus = self.pods[at][number]
        node = self.nodes.pick(gpus, emptiest=self.emptiest)
        if node is None:
            return
        self.pending.discard(pod)
        self.nodes.free[node] -= gpus
        if not self.seats[at] and len(self.pods[at]) > 1:
            spans = (now - self.came[at]) // PATIENCE + 1
            look = self.came[at] + spans * PATIENCE
            heapq.heappush(self.events, (look, 1, at, self.bound.failed[at]))
        self.seats[at][number] = (node, now)
        if len(self.seats[at]) == len(self.pods[at]):
            self._hold(at, now)
            self.bound.starts[at] = now
            heapq.heappush(self.events, (now + self.jobs[at][1], 0, at, 0))

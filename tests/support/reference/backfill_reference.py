"""Conservative backfilling with schedule compression, and EASY backfilling, on one node, straight from their
definitions: nothing of the engine.

Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2
with Backfilling", IEEE TPDS 12(6), 2001: each job has a reservation from when it comes; a job begins as soon as that is
in the way of no reservation; and whenever one ends before its limit, reservations are moved forward in the order of
arrival, each to the earliest start that is in nobody's way. As in Windlass (docs/concepts/backfill.md), no reservation
starts before that of a job that came earlier.

Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995 (EASY): the first that waits has a reservation, and no other.
As in Windlass it stays as it was made; its job begins as soon as there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Held = tuple[float, float, int]
"""From when, until when, how many cards."""


@dataclass(frozen=True, slots=True)
class Asked:
    """``limit``: how long it may run, ``runs``: how long it does, no longer than that. Seconds."""

    name: str
    comes: int
    cards: int
    limit: int
    runs: int


@dataclass(slots=True)
class Naive:
    """``promised``: by job, the start that it was promised first. ``moved``: how often one was brought forward."""

    cards: int
    started: dict[str, float] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)
    moved: int = 0
    _starts: dict[str, float] = field(default_factory=dict)
    """Of those that wait, in the order in which they came."""
    _jobs: dict[str, Asked] = field(default_factory=dict)
    _running: dict[str, Held] = field(default_factory=dict)

    def play(self, jobs: Sequence[Asked]) -> Naive:
        coming = sorted(jobs, key=lambda job: job.comes)
        self._jobs = {job.name: job for job in coming}
        ends: dict[str, float] = {}
        while coming or ends:
            now = min([float(job.comes) for job in coming[:1]] + list(ends.values()))
            for name in [name for name, end in ends.items() if end <= now]:
                del ends[name], self._running[name]
            came = [coming.pop(0).name for _ in range(sum(job.comes <= now for job in coming))]
            self._move_forward(now)
            while self._begin(now, came):
                came = []
                self._move_forward(now)
            for name in self._running.keys() - ends.keys():
                ends[name] = now + self._jobs[name].runs
        return self

    def _begin(self, now: float, came: Iterable[str]) -> bool:
        """Whoever can begin begins, in order; who has come and cannot is promised a start. Whether anybody began."""
        begun = False
        for name in [*self._starts, *came]:
            job = self._jobs[name]
            if self._fits(job, now):
                self._running[name] = (now, now + job.limit, job.cards)
                self._starts.pop(name, None)
                self.started[name] = now
                begun = True
            elif name not in self._starts:
                last = max([now, *self._starts.values()])
                self._starts[name] = self.promised[name] = self._earliest(job, last)
        return begun

    def _move_forward(self, now: float) -> None:
        last = now
        for name, start in self._starts.items():
            last = self._starts[name] = min(self._earliest(self._jobs[name], last), start)
            self.moved += last < start

    def _earliest(self, job: Asked, begin: float) -> float:
        """When the job can begin, from ``begin`` on, which is a moment at which somebody ends."""
        ends = sorted(end for _, end, _ in self._held(job) if end > begin)
        return next(at for at in [begin, *ends] if self._fits(job, at))

    def _fits(self, job: Asked, at: float) -> bool:
        """Whether the job is in nobody's way if it runs from then on until its limit."""
        held, until = self._held(job), at + job.limit
        moments = [at] + [start for start, _, _ in held if at < start < until]
        return all(
            job.cards + sum(cards for start, end, cards in held if start <= moment < end) <= self.cards
            for moment in moments
        )

    def _held(self, job: Asked) -> list[Held]:
        """What all others hold, or are promised."""
        waiting = [(name, start) for name, start in self._starts.items() if name != job.name]
        return [
            *self._running.values(),
            *((start, start + self._jobs[name].limit, self._jobs[name].cards) for name, start in waiting),
        ]


@dataclass(slots=True)
class Easy(Naive):
    _waiting: list[str] = field(default_factory=list)
    """In the order in which they came."""

    def _begin(self, now: float, came: Iterable[str]) -> bool:
        """Whoever can begin begins, in order; the first that cannot is promised a start, unless one is already."""
        begun = False
        self._waiting += came
        for name in list(self._waiting):
            job = self._jobs[name]
            if name in self._starts and self._has_room(job):
                del self._starts[name]
            if name not in self._starts and self._fits(job, now):
                self._running[name] = (now, now + job.limit, job.cards)
                self._waiting.remove(name)
                self.started[name] = now
                begun = True
            elif not self._starts:
                self._starts[name] = self.promised[name] = self._earliest(job, now)
        return begun

    def _move_forward(self, now: float) -> None:
        """What is promised stays."""
        self._starts = {name: max(start, now) for name, start in self._starts.items()}

    def _has_room(self, job: Asked) -> bool:
        return job.cards + sum(cards for _, _, cards in self._running.values()) <= self.cards

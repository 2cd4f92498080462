"""Jobs of one size that are stopped for one another, by the published definitions, without the engine.

Jobs are ``(submit, duration)``; ``slots`` of them run at a time. What a stop loses and a restart takes is part of what
remains. Of equals who runs goes on, and the older one starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

EXACT = 1e-6


@dataclass(frozen=True, slots=True)
class Rules:
    """``bound``: of how much time the first of two queues has the jobs that had less (Tiresias without run times, Gu et
    al., NSDI 2019); 0: the shortest remaining time goes first. ``quantum``: so long a start is left alone. ``every``:
    after so much work it is saved, 0 always, ``None`` never. ``restart``: what a start after a stop takes."""

    bound: float = 0.0
    quantum: float = 0.0
    every: float | None = 0.0
    restart: float = 0.0


@dataclass(slots=True)
class Shared:
    submit: float
    duration: float
    left: float
    warm: float = 0.0
    had: float = 0.0
    since: float | None = None
    start: float | None = None
    end: float | None = None
    stops: int = 0


class Slots:
    def __init__(self, jobs: Sequence[tuple[float, float]], slots: int, rules: Rules) -> None:
        self.jobs = [Shared(submit, duration, duration) for submit, duration in jobs]
        self.slots, self.rules = slots, rules
        self.running: list[int] = []
        self.waiting: list[int] = []

    def play(self) -> list[Shared]:
        coming = sorted(range(len(self.jobs)), key=lambda at: (self.jobs[at].submit, at))
        now = 0.0
        while coming or self.running:
            then = min(
                [self.jobs[at].submit for at in coming[:1]] + [m for m in self._moments(now) if m > now]
            )
            self._work(now, then)
            now = then
            while coming and self.jobs[coming[0]].submit <= now:
                self.waiting.append(coming.pop(0))
            while self._one_more(now):
                pass
        return self.jobs

    def _moments(self, now: float) -> list[float]:
        """When somebody ends, comes into the second queue, or is left alone no longer."""
        found = []
        for job in (self.jobs[at] for at in self.running):
            found.append(now + job.warm + job.left)
            if self.rules.bound - job.had > EXACT:
                found.append(now + self.rules.bound - job.had)
            found.append((job.since or 0.0) + self.rules.quantum)
        return found

    def _work(self, now: float, then: float) -> None:
        for at in list(self.running):
            job = self.jobs[at]
            warm = min(then - now, job.warm)
            job.warm -= warm
            job.left -= then - now - warm
            job.had += then - now
            if job.left <= EXACT and job.warm <= EXACT:
                job.end = then
                self.running.remove(at)

    def rank(self, at: int) -> float:
        job = self.jobs[at]
        if self.rules.bound:
            return float(job.had + EXACT >= self.rules.bound)
        return job.left + (job.warm if at in self.running else self.rules.restart * (job.had > 0))

    def _place(self, at: int) -> tuple[float, float, int]:
        return self.rank(at), self.jobs[at].submit, at

    def _one_more(self, now: float) -> bool:
        """The first of those that wait that finds a slot, or has somebody stopped, starts."""
        for at in sorted(self.waiting, key=self._place):
            if len(self.running) >= self.slots and not self._stop_for(at, now):
                continue
            job = self.jobs[at]
            self.waiting.remove(at)
            self.running.append(at)
            job.since, job.warm = now, self.rules.restart * (job.had > 0)
            job.start = now if job.start is None else job.start
            return True
        return False

    def _stop_for(self, claimer: int, now: float) -> bool:
        over = [at for at in self.running if now - (self.jobs[at].since or 0.0) >= self.rules.quantum - EXACT]
        worse = [at for at in over if self.rank(at) > self.rank(claimer) + EXACT]
        if not worse:
            return False
        at = max(worse, key=self._place)
        job, every = self.jobs[at], self.rules.every
        done = job.duration - job.left
        kept = 0.0 if every is None else done if not every else floor((done + EXACT) / every) * every
        job.left, job.stops, job.since = job.duration - kept, job.stops + 1, None
        self.running.remove(at)
        self.waiting.append(at)
        return True

"""Rates, latencies and scores of a batch, in constant memory."""

from __future__ import annotations

import math
from collections import deque

_STEPS = 10
"""Buckets of latencies for each factor of ten."""
_LOWEST = 1e-5
"""Upper bound of the first bucket of latencies (seconds)."""
RATE_SECONDS = 30.0
"""Window of the rate (seconds)."""
_COMMIT_SECONDS = 0.5
"""Interval between commits of a worker (seconds)."""


class Latencies:
    """Histogram of seconds with buckets of equal ratio, and their sum."""

    def __init__(self) -> None:
        self._counts = [0] * (10 * _STEPS)
        self._total = 0
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        bucket = 0
        if seconds > _LOWEST:
            bucket = min(int(math.log10(seconds / _LOWEST) * _STEPS) + 1, len(self._counts) - 1)
        self._counts[bucket] += 1
        self._total += 1
        self.sum += seconds

    def quantile(self, part: float) -> float | None:
        """Return a quantile; ``None`` without values."""
        rest = part * self._total
        if not self._total:
            return None
        for bucket, count in enumerate(self._counts):
            rest -= count
            if rest <= 0 and count:
                return float(f"{_LOWEST * 10 ** ((bucket - 0.5) / _STEPS):.3g}") if bucket else _LOWEST
        return None


class ScoreHistogram:
    """Histogram of scores from 0 to 100, their mean, and the number below the minimum."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._counts = [0] * 101
        self._sum = 0.0
        self.total = 0
        self.below = 0

    def add(self, score: float) -> None:
        self._counts[max(0, min(100, int(score)))] += 1
        self._sum += score
        self.total += 1
        self.below += score < self._least

    def mean(self) -> float:
        return self._sum / self.total if self.total else 0.0

    def lowest(self, part: float) -> float:
        """Return the score that ``part`` of all scores do not exceed."""
        rest = part * self.total
        for score, count in enumerate(self._counts):
            rest -= count
            if rest <= 0 and count:
                return float(score)
        return 0.0


class Rate:
    """Events for each second, over the last :data:`RATE_SECONDS`.

    Time without events before them does not count: workers that start late, or go on after
    a pause, have their own rate at once.
    """

    def __init__(self) -> None:
        self._since = -math.inf
        self._events: deque[tuple[float, int]] = deque()
        self._sum = 0

    def add(self, now: float, count: int, seconds: float = 0.0) -> None:
        """Count events. ``seconds``: time that led to the first of them."""
        self._forget(now)
        if not self._events:
            self._since = now - max(_COMMIT_SECONDS, seconds)
        if self._events and now - self._events[-1][0] < 0.25:
            self._events[-1] = (self._events[-1][0], self._events[-1][1] + count)
        else:
            self._events.append((now, count))
        self._sum += count

    def per_second(self, now: float, started: float) -> float:
        """Return the rate. ``started``: time before which there was nothing to count."""
        self._forget(now)
        span = min(RATE_SECONDS, now - max(started, self._since))
        return self._sum / max(span, 0.25) if self._sum else 0.0

    def _forget(self, now: float) -> None:
        while self._events and now - self._events[0][0] > RATE_SECONDS:
            self._sum -= self._events.popleft()[1]

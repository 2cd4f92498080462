"""Limit of concurrent requests: additive increase, multiplicative decrease.

A full window of successes raises the limit by one, unless they took ``CALM_SECONDS`` on
average: then the server has work enough. A window that took ``SLOW_SECONDS``, a
rejection for overload (429, 503) or a timeout halves the limit, at most once per
window. A ``Retry-After`` stops new requests until it has passed. Pure; times are
monotonic seconds.
"""

from __future__ import annotations

CALM_SECONDS = 0.1
"""Mean duration of a request in seconds from which the limit is not raised."""
SLOW_SECONDS = 1.0
"""Mean duration of a request in seconds from which the limit is halved.

Kubernetes promises that 99 of 100 mutating requests are answered within a second.
"""


class AdaptiveLimit:
    """Limit between ``floor`` and ``ceiling``."""

    __slots__ = ("_cooling", "_seconds", "_window", "ceiling", "floor", "limit", "paused_until")

    def __init__(self, start: int, *, floor: int = 1, ceiling: int = 128) -> None:
        self.limit = max(floor, min(start, ceiling))
        self.floor = floor
        self.ceiling = ceiling
        self.paused_until = 0.0
        self._window = 0
        self._seconds = 0.0
        self._cooling = 0

    def may_start(self, in_progress: int, now: float) -> bool:
        """Return whether another request may start."""
        return in_progress < self.limit and now >= self.paused_until

    def succeeded(self, seconds: float = 0.0) -> None:
        """Take in a request that was answered after ``seconds``."""
        if self._cooling > 0:  # sent before the limit was last lowered
            self._cooling -= 1
            return
        self._window += 1
        self._seconds += seconds
        if self._window < self.limit:
            return
        mean = self._seconds / self._window
        self._window, self._seconds = 0, 0.0
        if mean >= SLOW_SECONDS:
            self._halve()
        elif mean < CALM_SECONDS:
            self.limit = min(self.ceiling, self.limit + 1)

    def overloaded(self, now: float, retry_after: float | None = None) -> None:
        """Take in a request that was rejected for overload.

        Answers to requests sent before the limit was last lowered do not lower it
        again.
        """
        if retry_after is not None:
            self.paused_until = max(self.paused_until, now + retry_after)
        if self._cooling > 0:
            self._cooling -= 1
            return
        self._halve()

    def _halve(self) -> None:
        self._cooling = self.limit
        self._window, self._seconds = 0, 0.0
        self.limit = max(self.floor, self.limit // 2)

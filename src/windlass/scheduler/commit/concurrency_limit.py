"""How many requests may be under way at once: additive increase, multiplicative decrease.

A full window of successes raises the limit by one, unless they took ``CALM_SECONDS`` on average: then the server
has work enough. A window that took ``SLOW_SECONDS``, a refusal for overload (429, 503) or a time-out halves it,
at most once per window, and a ``Retry-After`` stops new requests until it has passed. Pure: time comes in
as an argument.
"""

from __future__ import annotations

CALM_SECONDS = 0.1
SLOW_SECONDS = 1.0
"""Kubernetes promises that 99 of 100 requests that change something are answered within a second."""


class AdaptiveLimit:
    """``limit`` moves between ``floor`` and ``ceiling``."""

    __slots__ = ("_cooling", "_seconds", "_window", "ceiling", "floor", "limit", "paused_until")

    def __init__(self, start: int, *, floor: int = 1, ceiling: int = 128) -> None:
        self.limit = max(floor, min(start, ceiling))
        self.floor = floor
        self.ceiling = ceiling
        self.paused_until = 0.0
        self._window = 0
        self._seconds = 0.0
        self._cooling = 0

    def may_start(self, under_way: int, now: float) -> bool:
        return under_way < self.limit and now >= self.paused_until

    def succeeded(self, seconds: float = 0.0) -> None:
        """A request was answered, ``seconds`` after it was sent."""
        if self._cooling > 0:  # sent before the last cut
            self._cooling -= 1
            return
        self._window += 1
        self._seconds += seconds
        if self._window < self.limit:
            return
        mean = self._seconds / self._window
        self._window, self._seconds = 0, 0.0
        if mean >= SLOW_SECONDS:
            self._cut()
        elif mean < CALM_SECONDS:
            self.limit = min(self.ceiling, self.limit + 1)

    def overloaded(self, now: float, retry_after: float | None = None) -> None:
        """The server asked for less. Answers to requests sent before the last cut do not cut again."""
        if retry_after is not None:
            self.paused_until = max(self.paused_until, now + retry_after)
        if self._cooling > 0:
            self._cooling -= 1
            return
        self._cut()

    def _cut(self) -> None:
        self._cooling = self.limit
        self._window, self._seconds = 0, 0.0
        self.limit = max(self.floor, self.limit // 2)

"""Binds first, what is told of them afterwards: whether the API server has better to do just now.

It is a rush while binds queue up, or pods come and are bound in numbers. What is said then costs the binds their
server: an event as much as a bind, a patch of a PodGroup as much as three. So news that nobody waits for is kept
until the rush is over, which a lull of ``WINDOW_SECONDS`` to twice that shows; how long it is kept at most, who keeps
it says. Why something waits is no such news, nor what a bind needs.

Cheap: two numbers, looked at only when asked.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.kits.clock import Clock

WINDOW_SECONDS = 0.5
CROWD = 16
"""So many binds that are under way or wait, or pods that come or are bound within a window."""


class Backpressure:
    """``pressed()``: whether binds queue up."""

    def __init__(self, clock: Clock, pressed: Callable[[], bool]) -> None:
        self._clock = clock
        self._pressed = pressed
        self._since = clock.monotonic()
        self._now = self._before = 0
        self._over = False

    def count(self) -> None:
        """A pod has come, or was bound."""
        self._roll()
        self._now += 1

    def end(self) -> None:
        """There is none any more, whatever comes: this process stops."""
        self._over = True

    def __call__(self) -> bool:
        """Whether it is one now."""
        if self._over:
            return False
        self._roll()
        return max(self._now, self._before) >= CROWD or self._pressed()

    def _roll(self) -> None:
        windows = int((self._clock.monotonic() - self._since) / WINDOW_SECONDS)
        if windows:
            self._before = self._now if windows == 1 else 0
            self._now = 0
            self._since += windows * WINDOW_SECONDS

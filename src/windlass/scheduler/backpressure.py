"""Backpressure: the API server is busy with binds, and other writes have to wait.

There is pressure while binds queue up, or while pods arrive and are bound in numbers.
Other writes then cost the binds their server: an event as much as a bind, a patch of a
PodGroup as much as three. Writes that may wait are deferred until the pressure is over,
which a lull of one to two windows shows. Each writer limits the delay itself. Reasons
for waiting, and writes that a bind needs, are never deferred.

The check is cheap: it compares two numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.kits.clock import Clock

WINDOW_SECONDS = 0.5
"""Length in seconds of the windows in which pods are counted."""
MIN_BUSY = 16
"""Minimum number of binds, or of pods in a window, for pressure.

Binds in progress and waiting binds count.
"""


class Backpressure:
    """Detects pressure on the API server. ``backed_up()``: whether binds queue up."""

    def __init__(self, clock: Clock, backed_up: Callable[[], bool]) -> None:
        self._clock = clock
        self._backed_up = backed_up
        self._since = clock.monotonic()
        self._current = self._previous = 0
        self._ended = False

    def count(self) -> None:
        """Count a pod that has arrived or was bound."""
        self._roll()
        self._current += 1

    def end(self) -> None:
        """Report no pressure from now on, since this process stops."""
        self._ended = True

    def __call__(self) -> bool:
        """Return whether there is pressure now."""
        if self._ended:
            return False
        self._roll()
        return max(self._current, self._previous) >= MIN_BUSY or self._backed_up()

    def _roll(self) -> None:
        windows = int((self._clock.monotonic() - self._since) / WINDOW_SECONDS)
        if windows:
            self._previous = self._current if windows == 1 else 0
            self._current = 0
            self._since += windows * WINDOW_SECONDS

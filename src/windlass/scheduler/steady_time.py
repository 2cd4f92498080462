"""Time of one scheduler: Unix seconds that never run backwards."""

from __future__ import annotations

from windlass.kits.clock import Clock


class SteadyTime:
    """Unix seconds counted from the start of the process.

    A change of the machine's clock has no effect. Time during which the machine was
    suspended is included.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_elapsed = clock.elapsed()
        self._start_time = clock.now()

    def now(self) -> float:
        """Return the current time in Unix seconds."""
        return self._start_time + (self._clock.elapsed() - self._start_elapsed)

    def correct(self, ahead: float) -> None:
        """Subtract the seconds by which this machine's clock is ahead of the API server's."""
        self._start_time -= ahead

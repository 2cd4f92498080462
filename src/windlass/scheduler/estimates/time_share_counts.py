"""Run-time counters of time-sharing, carried over to the next engine or process.

:class:`~windlass.scheduler.estimates.run_times.LearnedRunTimes` stores them.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.engine.timesharing import counts_text
from windlass.engine.timesharing.attained_service import TimeSharingState
from windlass.observe import logs

KEY = "time-sharing"
log = logs.get("scheduler")


class TimeShareCounts:
    """Counters of the engine in force.

    ``state()`` returns its time-sharing state. ``now()``: Unix seconds.
    """

    def __init__(self, state: Callable[[], TimeSharingState], now: Callable[[], float]) -> None:
        self._state = state
        self._now = now
        self._saved = 0.0

    @property
    def total(self) -> float:
        """Amount that was counted."""
        return counts_text.counted_total(self._state())

    @property
    def changed(self) -> bool:
        """Return whether something was counted that is not stored yet."""
        return self.total != self._saved

    def text(self) -> str | None:
        """Return the text to store, ``None`` if nothing was counted."""
        return counts_text.as_text(self._state())

    def saved(self, total: float) -> None:
        """Take in that the counters up to ``total`` are stored."""
        self._saved = total

    def resume(self, text: str) -> None:
        """Continue with stored counters."""
        try:
            counts_text.load(self._state(), text, self._now())
        except ValueError as error:
            log.warning("ignoring stored time-sharing counters", why=str(error))
            return
        self._saved = self.total

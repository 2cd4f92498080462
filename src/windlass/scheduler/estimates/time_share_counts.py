"""What time-sharing has counted of runs, for as long as one engine decides and from it to the next.

Whoever keeps learned run times keeps this beside them (:mod:`.runtimes`).
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.engine.engine import Engine
from windlass.engine.timesharing import counts_text
from windlass.observe import logs

KEY = "time-sharing"
log = logs.get("scheduler")


class TimeShareCounts:
    """``engine()``: the one in force. ``now()``: Unix seconds."""

    def __init__(self, engine: Callable[[], Engine], now: Callable[[], float]) -> None:
        self._engine = engine
        self._now = now
        self._saved = 0.0

    @property
    def counted(self) -> float:
        """How much was counted."""
        return counts_text.counted(self._engine().state.time_sharing)

    @property
    def news(self) -> bool:
        """Whether something was counted that is not kept yet."""
        return self.counted != self._saved

    def text(self) -> str | None:
        """What is to be kept; ``None``: nothing was counted."""
        return counts_text.as_text(self._engine().state.time_sharing)

    def saved(self, counted: float) -> None:
        """So much of it is kept."""
        self._saved = counted

    def take(self, text: str) -> None:
        """Go on with what was kept."""
        try:
            counts_text.resume(self._engine().state.time_sharing, text, self._now())
        except ValueError as error:
            log.warning("counts of time-sharing not gone on with", why=str(error))
            return
        self._saved = self.counted

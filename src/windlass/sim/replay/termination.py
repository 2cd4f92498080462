"""When a play is over of which jobs are left: nothing runs, nothing comes, and nothing is decided any more.

Where nodes fail, something always happens: nodes go and come back. Whoever waits may wait for one of them. So it is
tried whether anybody would start if all of them were there; where nobody would, it is over at once.
"""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 2000
"""After so many moments in a row at which nothing is decided it is over in any case: nodes that are hardly ever there
at once, or an engine that wants to be asked for ever."""
ASKED, SECONDS = 50, 30 * 86_400.0
"""Where no node fails it is only the engine that wants to be asked: after so many moments, and so long a time, in which
whoever waits has grown as old as it takes to come before others."""


class Termination:
    """``would_start``: whether anybody who waits would start on a cluster of which no node is away; ``None`` where no
    node ever is."""

    def __init__(self, would_start: Callable[[], bool] | None) -> None:
        self._would_start = would_start
        self._moments = 0
        self._since = self._now = 0.0
        self._hopeless: bool | None = None
        """What came of the trial; ``None`` before it."""

    def note(self, now: float, *, still: bool) -> None:
        """At a moment nothing was decided, while nothing ran and nothing was to come; or something was."""
        if not still:
            self._moments, self._hopeless = 0, None
            return
        self._since = self._since if self._moments else now
        self._now = now
        self._moments += 1

    @property
    def lasts(self) -> bool:
        """Whether nothing was decided at the last moment."""
        return self._moments > 0

    def for_ever(self) -> bool:
        """Whether nothing ever will be."""
        if self._moments >= PATIENCE:
            return True
        if self._would_start is None:
            return self._moments >= ASKED and self._now - self._since >= SECONDS
        if self._hopeless is None:
            self._hopeless = not self._would_start()
        return self._hopeless

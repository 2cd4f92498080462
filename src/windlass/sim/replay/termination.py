"""End of a replay with pending jobs: nothing runs, nothing arrives, and nothing is decided any more.

With node failures, events never end: nodes fail and return, and a pending job may wait for one of them. So a trial
tests whether any job would start with all nodes up. If none would, the replay ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windlass.sim.replay.job_progress import JobRun
from windlass.sim.replay.policies import Singly

PATIENCE = 2000
"""After so many moments in a row at which nothing is decided it is over in any case: nodes that are hardly ever there
at once, or an engine that wants to be asked for ever."""
ASKED, SECONDS = 50, 30 * 86_400.0
"""Number of engine-requested cycles, and time in seconds, after which a replay without node failures ends.

By then aging has had its full effect on every pending job."""


def only_parts_hold(singly: Singly | None, runs: Iterable[JobRun]) -> bool:
    """Return whether all GPUs in use belong to jobs in part, which hold them for ever."""
    return singly is not None and singly.in_turn and not any(run.rate for run in runs)


class Termination:
    """Termination test.

    ``would_start``: returns whether any pending job would start with all nodes up; ``None`` if no node ever fails.
    """

    def __init__(self, would_start: Callable[[], bool] | None) -> None:
        self._would_start = would_start
        self._moments = 0
        self._since = self._now = 0.0
        self._hopeless: bool | None = None
        """Result of the trial; ``None`` before it."""

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
        """True if nothing was decided at the last moment."""
        return self._moments > 0

    def for_ever(self) -> bool:
        """Return whether nothing ever will be."""
        if self._moments >= PATIENCE:
            return True
        if self._would_start is None:
            return self._moments >= ASKED and self._now - self._since >= SECONDS
        if self._hopeless is None:
            self._hopeless = not self._would_start()
        return self._hopeless

"""Well-known time-sharing orders, for comparison: least attained service in two queues,
and oracles.

* ``las``: groups with less than a bound of accelerator time precede all others. Each
  queue is ordered by age (Tiresias without knowledge of run times, with its two
  queues).
* ``srtf``, ``srsf``: the shortest remaining time, or accelerator time, comes first.
  Both know the run times. Work that a suspension lost remains, and so does the restart
  (:mod:`~windlass.plugins.timeshare.suspension_cost`). The expected loss prevents no
  suspension.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.plugins.timeshare.opt_in import QUANTUM_SECONDS, OptIn, OptInSharing, opted_in
from windlass.plugins.timeshare.suspension_cost import EXACT, habit_of, saved_before, saved_seconds
from windlass.spi.objects import Group
from windlass.spi.timeshare import Rank, RunSegment

LAS_BOUND_SECONDS = 7200.0
"""Accelerator seconds in the first queue: two hours of one device."""

RunTime = Callable[[Group], float | None]


def declared(group: Group) -> float | None:
    """Return the run time (seconds) that the group's owner stated."""
    return group.run_estimate


class LeastAttained(OptInSharing):
    name = "las"

    def __init__(
        self,
        joins: OptIn = opted_in,
        quantum_seconds: float = QUANTUM_SECONDS,
        bound_seconds: float = LAS_BOUND_SECONDS,
    ) -> None:
        super().__init__(joins, quantum_seconds)
        self._bound = bound_seconds

    def rank(self, segment: RunSegment) -> Rank:
        until = self._bound / max(segment.devices, 1.0)
        if segment.attained + EXACT >= until:
            return Rank(1.0)
        return Rank(0.0, until=until)


class ShortestRemaining(OptInSharing):
    """Order by shortest remaining time; groups with unknown run time come last.

    :param weighed: by accelerator time
    """

    def __init__(
        self,
        run_time: RunTime = declared,
        joins: OptIn = opted_in,
        quantum_seconds: float = 0.0,
        *,
        weighed: bool = False,
    ) -> None:
        super().__init__(joins, quantum_seconds)
        self._run_time = run_time
        self._weighed = weighed
        self.name = "srsf" if weighed else "srtf"

    def rank(self, segment: RunSegment) -> Rank:
        seconds = self._run_time(segment.group)
        weight = max(segment.devices, 1.0) if self._weighed else 1.0
        if seconds is None:
            return Rank(float("inf"))
        return Rank(max(seconds - _done(segment), 0.0) * weight, falls=weight)


def _done(segment: RunSegment) -> float:
    """Return the finished work of a group in seconds, less a restart in progress.

    ``segment.memory``: work saved by the last suspension, attained time then, and start
    of the current run.
    """
    habit = habit_of(segment)
    if habit.free:
        return segment.attained
    saved, had, started = segment.memory or (saved_before(segment.group.past, habit), segment.attained, None)
    run = segment.attained - had
    if segment.started is None and started is not None:
        saved += saved_seconds(habit, started, started + run, again=segment.resumed)
        had, run = segment.attained, 0.0
    segment.memory = [saved, had, segment.started]
    restarts = segment.resumed if segment.started is not None else segment.attained > 0
    return saved + run - habit.restart * restarts

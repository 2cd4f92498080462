"""Well-known orders of time-sharing, to compare with: least attained service in two queues, and the oracles.

* ``las``: who has had less than a bound of accelerator time goes before all others; within a queue by age
  (Tiresias without knowledge of run times, with its two queues).
* ``srtf``, ``srsf``: the shortest remaining time, or accelerator time, goes first. They know how long work runs.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.plugins.timeshare.sharing import QUANTUM_SECONDS, OptIn, Sharing, opted_in
from windlass.spi.objects import Group
from windlass.spi.timeshare import Rank, Stint

LAS_BOUND_SECONDS = 7200.0
"""Accelerator seconds in the first queue: two hours of one card."""

RunTime = Callable[[Group], float | None]


def declared(group: Group) -> float | None:
    """The run time that the group's owner stated."""
    return group.run_estimate


class LeastAttained(Sharing):
    name = "las"

    def __init__(
        self,
        joins: OptIn = opted_in,
        quantum_seconds: float = QUANTUM_SECONDS,
        bound_seconds: float = LAS_BOUND_SECONDS,
    ) -> None:
        super().__init__(joins, quantum_seconds)
        self._bound = bound_seconds

    def rank(self, stint: Stint) -> Rank:
        until = self._bound / max(stint.devices, 1.0)
        if stint.attained >= until:
            return Rank(1.0)
        return Rank(0.0, until=until)


class ShortestRemaining(Sharing):
    """``weighed``: by accelerator time. Whose run time nobody knows goes last."""

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

    def rank(self, stint: Stint) -> Rank:
        seconds = self._run_time(stint.group)
        weight = max(stint.devices, 1.0) if self._weighed else 1.0
        if seconds is None:
            return Rank(float("inf"))
        return Rank(max(seconds - stint.attained, 0.0) * weight, falls=weight)

"""The learned order of time-sharing, by what earlier runs of the same work took where that is known.

What :class:`~windlass.plugins.timeshare.gittins.LearnedSharing` counts of runs of one size is here only the assumption
for what is known of work like the group: the runs that its estimate was learned of (``Group.runs``: of this name,
this request, this owner, as :mod:`windlass.predict.history` finds them), counted in the same stretches. They weigh as
many as they are, the assumption as ``PRIOR`` runs. The word of an owner (``Group.run_estimate`` that was not learned)
counts as ``PRIOR`` runs that ended there. What outlives all of that ranks by its size again. Of whom nothing is known,
all is as without.
"""

from __future__ import annotations

from bisect import bisect_right

from windlass.plugins.timeshare.gittins import STRETCHES, LearnedSharing, Tuning, least
from windlass.plugins.timeshare.opt_in import OptIn, opted_in
from windlass.spi.objects import Group
from windlass.spi.timeshare import RunSegment

REMEMBERED = 4096
"""Of so many lists of runs the counts are kept."""


class PredictedSharing(LearnedSharing):
    name = "predicted"

    def __init__(self, joins: OptIn = opted_in, tuning: Tuning | None = None) -> None:
        super().__init__(joins, tuning)
        self._counts: dict[tuple[float, ...], tuple[list[float], list[float]]] = {}
        """Runs → :meth:`_counted`: a group is ranked many times by the same."""

    def cost(self, segment: RunSegment, at: int, size: int) -> float:
        return (
            least(self.ways(segment, at, size))
            if self._runs(segment.group)
            else super().cost(segment, at, size)
        )

    def ways(self, segment: RunSegment, at: int, size: int) -> list[tuple[float, float]]:
        runs = self._runs(segment.group)
        if not runs:
            return super().ways(segment, at, size)
        known = self._known(self._of_size(size))
        return self._ways((*known, self._counted(runs)), at)

    def _runs(self, group: Group) -> tuple[float, ...]:
        """The seconds of runs that are likely to tell how long this one is."""
        if group.run_estimate is not None and not group.learned:
            return (group.run_estimate,) * round(self.tuning.prior)
        return group.runs

    def _counted(self, runs: tuple[float, ...]) -> tuple[list[float], list[float]]:
        """By stretch: how many runs ended in it, how many outlived it."""
        counted = self._counts.get(runs)
        if counted is not None:
            return counted
        ended = [0.0] * STRETCHES
        for seconds in runs:
            ended[bisect_right(self._edges, seconds) - 1] += 1
        outlived, left = [], float(len(runs))
        for count in ended:
            left -= count
            outlived.append(left)
        if len(self._counts) >= REMEMBERED:
            self._counts.clear()
        self._counts[runs] = ended, outlived
        return ended, outlived

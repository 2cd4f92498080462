"""Learned time-sharing order that also uses earlier runs of the same work.

For work with a history, the counts of
:class:`~windlass.plugins.timeshare.gittins.LearnedSharing` for its size are only the
prior assumption. The history are the runs from which the group's estimate was learned
(``Group.runs``: of this name, request and owner; see :mod:`windlass.predict.history`),
counted in the same stretches. Each run has weight one, the assumption that of ``PRIOR``
runs. An estimate stated by the owner (``Group.run_estimate`` that was not learned)
counts as ``PRIOR`` runs that ended there. A run that outlives all of that ranks by its
size again. Groups without a history rank as in the base class.
"""

from __future__ import annotations

from bisect import bisect_right

from windlass.plugins.timeshare.gittins import STRETCHES, LearnedSharing, Tuning, least
from windlass.plugins.timeshare.opt_in import OptIn, opted_in
from windlass.spi.objects import Group
from windlass.spi.timeshare import RunSegment

REMEMBERED = 4096
"""Maximum number of run lists with cached counts."""


class PredictedSharing(LearnedSharing):
    name = "predicted"

    def __init__(self, joins: OptIn = opted_in, tuning: Tuning | None = None) -> None:
        super().__init__(joins, tuning)
        self._counts: dict[tuple[float, ...], tuple[list[float], list[float]]] = {}
        """Runs → :meth:`_counted`: a group is ranked many times by the same runs."""

    def cost(self, segment: RunSegment, stretch: int, size: int) -> float:
        return (
            least(self.ways(segment, stretch, size))
            if self._runs(segment.group)
            else super().cost(segment, stretch, size)
        )

    def ways(self, segment: RunSegment, stretch: int, size: int) -> list[tuple[float, float]]:
        runs = self._runs(segment.group)
        if not runs:
            return super().ways(segment, stretch, size)
        known = self._known(self._of_size(size))
        return self._ways((*known, self._counted(runs)), stretch)

    def _runs(self, group: Group) -> tuple[float, ...]:
        """Return the run times (seconds) that predict this run."""
        if group.run_estimate is not None and not group.learned:
            return (group.run_estimate,) * round(self.tuning.prior)
        return group.runs

    def _counted(self, runs: tuple[float, ...]) -> tuple[list[float], list[float]]:
        """Return by stretch the number of runs that ended in it, and the number that
        outlived it."""
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

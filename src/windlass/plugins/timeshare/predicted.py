"""The learned order of time-sharing, by what earlier runs of the same work took where that is known.

What :class:`~windlass.plugins.timeshare.learned.LearnedSharing` counts of runs of one size is here only the assumption
for what is known of work like the group: the runs that its estimate was learned of (``Group.runs``: of this name,
this request, this owner, as :mod:`windlass.predict.history` finds them), counted in the same stretches. They weigh as
many as they are, the assumption as ``PRIOR`` runs. The word of an owner (``Group.run_estimate`` that was not learned)
counts as ``PRIOR`` runs that ended there. What outlives all of that ranks by its size again. Of whom nothing is known,
all is as without.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from windlass.plugins.timeshare.learned import STRETCHES, LearnedSharing
from windlass.spi.objects import Group
from windlass.spi.timeshare import Stint


class PredictedSharing(LearnedSharing):
    name = "predicted"

    def cost(self, stint: Stint, at: int, size: int) -> float:
        known = self._known(stint.group)
        if not known:
            return super().cost(stint, at, size)
        ended, outlived = self._counted(known)
        chances = self._informed(self._chances(self._of_size(size)), ended, outlived)
        return self._least_cost(chances, at)

    def _known(self, group: Group) -> Sequence[float]:
        """The seconds of runs that are likely to tell how long this one is."""
        if group.run_estimate is not None and not group.learned:
            return (group.run_estimate,) * round(self.tuning.prior)
        return group.runs

    def _counted(self, runs: Sequence[float]) -> tuple[list[float], list[float]]:
        """By stretch: how many runs ended in it, how many outlived it."""
        ended = [0.0] * STRETCHES
        for seconds in runs:
            ended[bisect_right(self._edges, seconds) - 1] += 1
        outlived, left = [], float(len(runs))
        for count in ended:
            left -= count
            outlived.append(left)
        return ended, outlived

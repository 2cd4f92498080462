"""What the votes say while groups take their turns: a queue that is passed over, or may not hold more."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.spi.nodes import NodeView
from windlass.spi.plugins import QueueView, Rejection, StepView
from windlass.spi.tiers import Tiers


class TierAdmission:
    """Refuses a step of a queue that is overused, or that the votes do not allot it to.

    What a queue gets depends on what others ask for, so a refused step is looked at again whenever
    anything is given back.
    """

    name = "tiers"
    turns_only = True
    """Actions that evict ask the votes themselves."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        queue = path[0]
        if not self._tiers.serves(queue):
            return None
        if self._tiers.overused(queue):
            return Rejection(
                Reason.WAITING_FOR_SHARE, detail=f"queue {queue.name} holds all that it deserves"
            )
        return self._tiers.may_allocate(path, step.request)

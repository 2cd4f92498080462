"""Admission by the tiers' votes: overused queues, and limits on allocation."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.spi.nodes import NodeView
from windlass.spi.plugins import QueueView, Rejection, StepView
from windlass.spi.tiers import Tiers


class TierAdmission:
    """Rejection of requests of an overused queue, or without an allocation vote.

    The share of a queue depends on the requests of other queues. So a rejected request
    is evaluated again whenever resources are freed.
    """

    name = "tiers"
    turns_only = True
    """Preempting actions query the votes themselves."""

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

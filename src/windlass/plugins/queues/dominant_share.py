"""The queue that has least of what it is entitled to goes next, unless its next step is beyond its share."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, StepView

_KAI = Dialect.KAI

SHIFT = 128
"""Shares are fractions of integers below 2^64; scaled by 2^128 and rounded down they keep their order
exactly (two different ones are at least 2^-128 apart), and compare as plain integers."""

ENDLESS = 1 << 256
"""The share of a queue that holds what it is entitled to nothing of."""

SILENT = (False, 0)
"""The key of queues that have an order of their own."""


def exceeds(queue: QueueView, requested: Iterable[tuple[str, int]]) -> bool:
    """Return whether the queue would hold more than its fair share of something that it is asked for."""
    held, fair = queue.committed, queue.fair_share
    return any(
        [units > 0 and name in fair and held.get(name, 0) + units > fair[name] for name, units in requested]
    )


class DominantShare:
    """A queue that stays within its fair share with its next step goes before one that does not: what starts beyond a
    share is the first to be taken back by who stays within his (KAI Scheduler's order of queues has the same rule, for
    deserved amounts). Then comes the smaller share: the largest, over resources, of what the queue holds divided by
    its due.

    The due is ``deserved`` where the queue states any (only the stated resources count then, as in
    Volcano's capacity plugin), else the part of the cluster that its weight has among its siblings'.
    """

    name = "share"

    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[bool, int]:
        if queue.mixed or queue.spec.dialect is _KAI:
            return SILENT
        return step is not None and exceeds(queue, step.request.items()), self._share(queue)

    @staticmethod
    def _share(queue: QueueView) -> int:
        deserved = queue.spec.deserved
        share = 0
        if deserved:
            for resource, due in deserved.items():
                held = queue.allocated.get(resource, 0)
                if held > 0:
                    share = max(share, (held << SHIFT) // due if due > 0 else ENDLESS)
            return share
        weights, weight = queue.sibling_weight, queue.spec.weight
        for resource, total in queue.cluster.items():
            held = queue.allocated.get(resource, 0)
            if held > 0:
                due = total * weight
                share = max(share, (held * weights << SHIFT) // due if due > 0 else ENDLESS)
        return share

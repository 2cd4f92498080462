"""Queue order by dominant share; a queue that would exceed its fair share comes last."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, StepView

_KAI = Dialect.KAI

SHIFT = 128
"""Bits by which shares are scaled.

Shares are fractions of integers below 2^64. Two different fractions differ by at least
2^-128, so scaled by 2^128 and rounded down they keep their order exactly and compare as
integers.
"""

ENDLESS = 1 << 256
"""Share of a queue that holds a resource to which it is not entitled."""

SILENT = (False, 0)
"""Key of queues that have their own order."""


def exceeds(queue: QueueView, requested: Iterable[tuple[str, int]]) -> bool:
    """Return whether the queue would exceed its fair share of any requested resource."""
    held, fair = queue.committed, queue.fair_share
    return any(
        [units > 0 and name in fair and held.get(name, 0) + units > fair[name] for name, units in requested]
    )


class DominantShare:
    """Queue order by dominant share.

    A queue that stays within its fair share with its next request precedes one that
    exceeds it. Pods started beyond a share are the first to be reclaimed. KAI
    Scheduler's queue order has the same rule, for deserved amounts. Among the rest the
    smaller dominant share comes first. That is the largest ratio, over resources, of
    allocated amount and entitlement.

    The entitlement is ``deserved`` if the queue states any; then only the stated
    resources count, as in Volcano's capacity plugin. Otherwise it is the cluster's
    amount times the queue's part of its siblings' weights.
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

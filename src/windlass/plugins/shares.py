"""The queue that has least of what it is entitled to goes next."""

from __future__ import annotations

from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, StepView

_KAI = Dialect.KAI

SHIFT = 128
"""Shares are fractions of integers below 2^64; scaled by 2^128 and rounded down they keep their order
exactly (two different ones are at least 2^-128 apart), and compare as plain integers."""

ENDLESS = 1 << 256
"""The share of a queue that holds what it is entitled to nothing of."""


class DominantShare:
    """The largest, over resources, of what the queue holds divided by its due.

    The due is ``deserved`` where the queue states any (only the stated resources count then, as in
    Volcano's capacity plugin), else the part of the cluster that its weight has among its siblings'.
    """

    name = "share"

    def queue_key(self, queue: QueueView, step: StepView | None) -> int:
        if queue.mixed or queue.spec.dialect is _KAI:
            return 0  # these have an order of their own
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

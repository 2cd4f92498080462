"""Order of Volcano's queues: ``spec.priority``, then the smaller share.

A queue's share is the largest ratio, over resources, of held and deserved amount
(``QueueView.fair_share``, computed by the division of the same name). Shares are
compared exactly.
"""

from __future__ import annotations

from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, StepView

SHIFT = 128
"""Bits by which fractions are scaled; fractions of integers below 2^64 keep their order."""

WHOLE = 1 << SHIFT

SILENT = (0, 0, False)
"""Key of other queues than Volcano's, and among roots of both APIs."""


class ProportionOrder:
    """Queue order by share; only resources that the queue deserves count."""

    name = "proportion-order"

    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[int, int, bool]:
        if queue.mixed or queue.spec.dialect is Dialect.KAI:
            return SILENT
        return (-queue.spec.priority, proportion_share(queue), False)


class CapacityOrder:
    """Queue order by share, with a rule for queues without deserved amounts.

    Such a queue comes after those below their deserved amounts and before those above.
    On a tie the queue with deserved amounts comes first.
    """

    name = "capacity-order"

    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[int, int, bool]:
        if queue.mixed or queue.spec.dialect is Dialect.KAI:
            return SILENT
        share = capacity_share(queue)
        return (-queue.spec.priority, WHOLE if share is None else share, share is None)


def proportion_share(queue: QueueView) -> int:
    """Return the share in parts of ``WHOLE``."""
    held = queue.committed
    return max(
        ((held.get(name, 0) << SHIFT) // due for name, due in queue.fair_share.items() if due > 0), default=0
    )


def capacity_share(queue: QueueView) -> int | None:
    """Return the share in parts of ``WHOLE``; ``None`` without stated deserved amounts."""
    due = queue.fair_share
    if not due:
        return None
    held = queue.committed
    return max(_ratio(held.get(name, 0), units) for name, units in due.items())


def _ratio(held: int, due: int) -> int:
    if due > 0:
        return (held << SHIFT) // due
    return WHOLE if held > 0 else 0

"""Which of two of Volcano's queues is served next: ``spec.priority``, then the smaller share.

A queue's share is the largest, over resources, of what it holds divided by what it deserves
(``QueueView.fair_share``, made by the division of the same name). Shares are compared exactly.
"""

from __future__ import annotations

from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, StepView

SHIFT = 128
"""Fractions of integers below 2^64 keep their order, scaled by this many bits and rounded down."""

WHOLE = 1 << SHIFT

SILENT = (0, 0, False)
"""The key of queues that are none of Volcano's, and among roots of both APIs."""


class ProportionOrder:
    """Only resources of which the queue deserves something count."""

    name = "proportion-order"

    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[int, int, bool]:
        if queue.mixed or queue.spec.dialect is Dialect.KAI:
            return SILENT
        return (-queue.spec.priority, proportion_share(queue), False)


class CapacityOrder:
    """A queue that deserves nothing stated stands between those below and those above what they deserve;
    on a tie the one that deserves something goes first."""

    name = "capacity-order"

    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[int, int, bool]:
        if queue.mixed or queue.spec.dialect is Dialect.KAI:
            return SILENT
        share = capacity_share(queue)
        return (-queue.spec.priority, WHOLE if share is None else share, share is None)


def proportion_share(queue: QueueView) -> int:
    """In parts of ``WHOLE``."""
    held = queue.committed
    return max(
        ((held.get(name, 0) << SHIFT) // due for name, due in queue.fair_share.items() if due > 0), default=0
    )


def capacity_share(queue: QueueView) -> int | None:
    """In parts of ``WHOLE``; ``None`` for a queue that deserves nothing stated."""
    due = queue.fair_share
    if not due:
        return None
    held = queue.committed
    return max(_part(held.get(name, 0), units) for name, units in due.items())


def _part(held: int, due: int) -> int:
    if due > 0:
        return (held << SHIFT) // due
    return WHOLE if held > 0 else 0

"""Transitions of a queue: ``(state, trigger) → state``. Any other pair changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class QueuePhase(StrEnum):
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"


class QueueTrigger(StrEnum):
    OPEN = "OpenQueue"
    """Requested by a Command, or the parent that closed this queue is open again."""
    CLOSE = "CloseQueue"
    """Requested by a Command, or the parent is closing or closed."""
    EMPTIED = "Emptied"
    """No group is in the queue that has not completed."""
    NEW = "New"
    """No state was written yet."""


TRANSITIONS: Mapping[tuple[QueuePhase, QueueTrigger], QueuePhase] = {
    (QueuePhase.UNKNOWN, QueueTrigger.NEW): QueuePhase.OPEN,
    (QueuePhase.UNKNOWN, QueueTrigger.OPEN): QueuePhase.OPEN,
    (QueuePhase.UNKNOWN, QueueTrigger.CLOSE): QueuePhase.CLOSING,
    (QueuePhase.OPEN, QueueTrigger.CLOSE): QueuePhase.CLOSING,
    (QueuePhase.CLOSING, QueueTrigger.OPEN): QueuePhase.OPEN,
    (QueuePhase.CLOSING, QueueTrigger.EMPTIED): QueuePhase.CLOSED,
    (QueuePhase.CLOSED, QueueTrigger.OPEN): QueuePhase.OPEN,
}


def follow(state: QueuePhase, trigger: QueueTrigger) -> QueuePhase | None:
    return TRANSITIONS.get((state, trigger))

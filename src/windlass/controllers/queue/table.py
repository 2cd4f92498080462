"""When a queue opens and closes: ``(state, trigger) → state``. Any other pair changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"


class Trigger(StrEnum):
    OPEN = "OpenQueue"
    """Asked for, or the parent opened again after it had closed this one."""
    CLOSE = "CloseQueue"
    """Asked for, or the parent is closing or closed."""
    EMPTIED = "Emptied"
    """No group is in the queue that has not completed."""
    NEW = "New"
    """Nobody has written a state yet."""


TRANSITIONS: Mapping[tuple[State, Trigger], State] = {
    (State.UNKNOWN, Trigger.NEW): State.OPEN,
    (State.UNKNOWN, Trigger.OPEN): State.OPEN,
    (State.UNKNOWN, Trigger.CLOSE): State.CLOSING,
    (State.OPEN, Trigger.CLOSE): State.CLOSING,
    (State.CLOSING, Trigger.OPEN): State.OPEN,
    (State.CLOSING, Trigger.EMPTIED): State.CLOSED,
    (State.CLOSED, Trigger.OPEN): State.OPEN,
}


def follow(state: State, trigger: Trigger) -> State | None:
    return TRANSITIONS.get((state, trigger))

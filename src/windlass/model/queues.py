"""Queue view → the engine's queue."""

from __future__ import annotations

from windlass.api import views
from windlass.spi.objects import Queue, QueueState

ROOT = "root"
DEFAULT = "default"

_STATES = {
    "": QueueState.OPEN,
    "Open": QueueState.OPEN,
    "Closing": QueueState.CLOSING,
    "Closed": QueueState.CLOSED,
}


def queue_of(view: views.Queue) -> Queue:
    """An absent parent is ``root``, an absent state Open; a state that is no known one takes no work.

    A resource whose limit cannot be read is left out of its list (``view.problems`` say so).
    """
    return Queue(
        name=view.name,
        parent="" if view.name == ROOT else view.parent or ROOT,
        weight=max(1, view.weight),
        priority=view.priority,
        guarantee={name: units for name, units in view.guarantee.items() if units > 0},
        deserved={name: units for name, units in view.deserved.items() if units > 0},
        capability=view.capability,
        reclaimable=view.reclaimable,
        state=_STATES.get(view.state, QueueState.CLOSED),
        created=view.created,
        uid=view.uid,
    )


def implied(name: str) -> Queue:
    """``root`` or ``default`` while nobody has made the object."""
    return Queue(name=name, parent="" if name == ROOT else ROOT)

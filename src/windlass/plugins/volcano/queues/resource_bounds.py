"""Comparing amounts over several resources, as Volcano's share policies do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.api.reasons import Reason
from windlass.spi.objects import QueueState, Resources
from windlass.spi.plugins import QueueView, Rejection
from windlass.spi.quantities import from_units

DESERVED = "deserved"
"""A bound that is stated."""


def requested(request: Resources) -> dict[str, int]:
    """What is asked for at all."""
    return {name: units for name, units in request.items() if units > 0}


def plus(held: Mapping[str, int], more: Mapping[str, int], sign: int = 1) -> dict[str, int]:
    found = dict(held)
    for name, units in more.items():
        found[name] = found.get(name, 0) + sign * units
    return found


def closed(path: Sequence[QueueView]) -> Rejection | None:
    """The refusal of a queue that is not open, or whose ancestor is not."""
    for queue in path:
        if queue.spec.state is not QueueState.OPEN:
            return Rejection(Reason.QUEUE_CLOSED, queue=queue.name, detail=f"queue {queue.name} is not open")
    return None


def beyond(
    queue: QueueView, held: Resources, request: Resources, bounds: Resources, what: str
) -> Rejection | None:
    """The refusal for the first requested resource of which ``held`` and ``request`` exceed the bound.

    A resource without a bound is unbounded. ``what`` names the bound to people. A bound below what the queue was given
    follows from what the cluster has, and grows with it: that is a share, else it is a quota.
    """
    for name, units in request.items():
        bound = bounds.get(name)
        if units <= 0 or bound is None:
            continue
        left = bound - held.get(name, 0)
        if units > left:
            stated = queue.spec.capability.get(name)
            shared = what != DESERVED and (stated is None or bound < stated)
            return Rejection(
                Reason.WAITING_FOR_SHARE if shared else Reason.WAITING_FOR_QUOTA,
                queue=queue.name,
                resource=name,
                needed=units,
                available=max(left, 0),
                detail=f"{what} {from_units(name, bound)} of queue {queue.name}",
            )
    return None

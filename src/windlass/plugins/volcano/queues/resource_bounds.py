"""Comparison of amounts over several resources, as in Volcano's share policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from windlass.api.reasons import Reason
from windlass.spi.objects import QueueState, Resources
from windlass.spi.plugins import QueueView, Rejection
from windlass.spi.quantities import from_units

DESERVED = "deserved"
"""Name of a stated bound."""


def requested(request: Resources) -> dict[str, int]:
    """Return the requested amounts above 0."""
    return {name: units for name, units in request.items() if units > 0}


def plus(held: Mapping[str, int], more: Mapping[str, int], sign: int = 1) -> dict[str, int]:
    total = dict(held)
    for name, units in more.items():
        total[name] = total.get(name, 0) + sign * units
    return total


def closed(path: Sequence[QueueView]) -> Rejection | None:
    """Return the rejection of a queue that is not open, or has an ancestor that is not."""
    for queue in path:
        if queue.spec.state is not QueueState.OPEN:
            return Rejection(Reason.QUEUE_CLOSED, queue=queue.name, detail=f"queue {queue.name} is not open")
    return None


def beyond(
    queue: QueueView, held: Resources, request: Resources, bounds: Resources, what: str
) -> Rejection | None:
    """Return the rejection for the first requested resource that exceeds its bound.

    Held and requested amounts are added. A resource without a bound is unbounded. A
    bound below the queue's capability follows from the cluster's capacity and grows
    with it: it is a share, otherwise a quota.

    :param what: name of the bound in messages
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


def never_admitted(queue: QueueView, request: Resources, bounds: Resources, what: str) -> Rejection | None:
    """Return the rejection for the first requested resource that alone exceeds its bound.

    Waiting does not help such a group: an empty queue does not admit it either.
    """
    rejection = beyond(queue, {}, request, bounds, what)
    if rejection is None:
        return None
    shared = rejection.code is Reason.WAITING_FOR_SHARE
    return structs.replace(rejection, code=Reason.EXCEEDS_CLUSTER if shared else Reason.EXCEEDS_QUEUE_LIMIT)

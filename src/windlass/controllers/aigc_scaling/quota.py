"""Number of workers for which a queue has quota. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.api.quantities import QuantityError, from_units, to_units
from windlass.api.views import QueueObject

ROOT = "root"
_MOST_LEVELS = 32


def workers_within(
    queues: Mapping[str, QueueObject], queue: str, request: Mapping[str, int], bound: int
) -> tuple[int | None, str]:
    """Return how many workers the queue and those above it have quota for, and why; ``None``: unlimited.

    ``request``: of one worker, in engine units. ``bound``: workers of the job that the amounts
    of the queue already contain.
    """
    least: int | None = None
    words = ""
    for each in _chain(queues, queue):
        for resource, limit in sorted(each.capability.items()):
            amount = request.get(resource, 0)
            if amount <= 0:
                continue
            used = max(0, _allocated(each, resource) - amount * bound)
            workers = max(0, limit - used) // amount
            if least is None or workers < least:
                least = workers
                others = f", others use {from_units(resource, used)}" if used else ""
                words = f"quota: queue {each.name} has {from_units(resource, limit)} {resource}{others}"
    return least, words


def _chain(queues: Mapping[str, QueueObject], name: str) -> Iterator[QueueObject]:
    for _ in range(_MOST_LEVELS):
        found = queues.get(name)
        if found is None:
            return
        yield found
        if name == ROOT:
            return
        name = found.parent or ROOT


def _allocated(queue: QueueObject, resource: str) -> int:
    try:
        return to_units(resource, queue.allocated.get(resource, "0"))
    except QuantityError:
        return 0

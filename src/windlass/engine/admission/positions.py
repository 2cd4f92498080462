"""Where a group stands among those that wait in its queue. Groups that can never run as things are, or are held until
somebody mends them, do not count: nobody waits for them.

The order of a queue is made when somebody asks, and kept until the engine is told something new or
decides something: ten thousand questions in a row cost one sort.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.engine.books.world import World
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.waiting.parking import Bucket


class Positions:
    def __init__(self, world: World, waits: Callable[[GroupEntry], bool]) -> None:
        self._world = world
        self._waits = waits
        self._stamp = -1
        self._orders: dict[str, tuple[list[str], dict[str, int]]] = {}

    def find(self, group: GroupEntry) -> tuple[int, tuple[str, ...]]:
        """The position, from 1, and the first of those ahead; (0, ()) outside of every queue."""
        if group.queue is None or group.group is None:
            return 0, ()
        keys, places = self._ordered(group.queue)
        place = places.get(group.key)
        if place is None:
            return 0, ()
        return place + 1, tuple(keys[: min(place, self._world.config.explain_ahead)])

    def in_order(self, queue: QueueEntry) -> list[str]:
        """The keys of all groups that wait in the queue, first come first."""
        return self._ordered(queue)[0]

    def _ordered(self, queue: QueueEntry) -> tuple[list[str], dict[str, int]]:
        if self._stamp != self._world.stamp:
            self._stamp = self._world.stamp
            self._orders.clear()
        order = self._orders.get(queue.name)
        if order is None:
            order = self._orders[queue.name] = self._order(queue)
        return order

    def _order(self, queue: QueueEntry) -> tuple[list[str], dict[str, int]]:
        waiting: list[tuple[Any, str]] = [
            (group.order_key or self._world.group_order(group), group.key)
            for group in queue.groups.values()
            if group.group is not None and not group.group.held and self._waits(group) and not hopeless(group)
        ]
        waiting.sort()
        keys = [key for _, key in waiting]
        return keys, {key: place for place, key in enumerate(keys)}


def hopeless(group: GroupEntry) -> bool:
    """Whether it was judged, on the nodes and queues as they are, that the group can never run."""
    if group.bucket is not None:
        return all_hopeless(group.bucket)
    said = group.reported.explanation if group.reported is not None else None
    return said is not None and said.facts.tier == 1


def all_hopeless(bucket: Bucket) -> bool:
    """:func:`hopeless` of all who wait for the same."""
    said = bucket.explanation if bucket.parked else None
    return said is not None and said.facts.tier == 1

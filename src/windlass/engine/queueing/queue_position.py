"""Position of a group among the waiting groups of its queue.

Groups that can never run as things are, or are held, do not count, because no group
waits for them.

The order of a queue is computed on demand and cached until the state changes. Ten
thousand queries in a row cost one sort. In a long queue the state changes between any
two queries. Its order is kept for a while nevertheless, so a reported position can be
that much older.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.state.cluster_state import ClusterState

MAX_EXACT = 1000
"""Maximum size of a queue with an order that is never outdated (running groups included)."""
KEEP_SECONDS_PER_GROUP = 1e-4
"""Time in seconds per group to keep the order of a longer queue, about fifty times its cost."""
MAX_KEEP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Order:
    """Waiting groups of a queue in order, as of a ``stamp`` of the state.

    Valid ``until`` a time.
    """

    stamp: int
    until: float
    keys: list[str]
    positions: dict[str, int]


class QueuePositions:
    def __init__(self, state: ClusterState, waits: Callable[[GroupEntry], bool]) -> None:
        self._state = state
        self._is_waiting = waits
        self._orders: dict[str, _Order] = {}

    def find(self, group: GroupEntry, now: float) -> tuple[int, tuple[str, ...]]:
        """Return the position, from 1, and the first groups ahead.

        ``(0, ())`` outside of every queue.
        """
        if group.queue is None or not self._counts(group):
            return 0, ()
        order = self._orders.get(group.queue.name)
        if order is None or order.until <= now or group.key not in order.positions:
            order = self._order(group.queue, now)
        position = order.positions.get(group.key)
        if position is None:
            return 0, ()
        ahead = order.keys[:position]
        if order.stamp != self._state.stamp:
            ahead = filter(self._still_waits, ahead)
        return position + 1, tuple(islice(ahead, self._state.config.explain_ahead))

    def in_order(self, queue: QueueEntry, now: float) -> list[str]:
        """Return the keys of all waiting groups of the queue in order."""
        return self._order(queue, now).keys

    def _order(self, queue: QueueEntry, now: float) -> _Order:
        stamp = self._state.stamp
        order = self._orders.get(queue.name)
        if order is not None and order.stamp == stamp:
            return order
        size = len(queue.groups)
        keep_seconds = min(size * KEEP_SECONDS_PER_GROUP, MAX_KEEP_SECONDS) if size > MAX_EXACT else 0.0
        waiting: list[tuple[Any, str]] = [
            (group.order_key or self._state.group_order(group), group.key)
            for group in queue.groups.values()
            if self._counts(group)
        ]
        waiting.sort()
        keys = [key for _, key in waiting]
        positions = {key: position for position, key in enumerate(keys)}
        order = self._orders[queue.name] = _Order(stamp, now + keep_seconds, keys, positions)
        return order

    def _counts(self, group: GroupEntry) -> bool:
        return (
            group.group is not None
            and not group.group.held
            and self._is_waiting(group)
            and not hopeless(group)
        )

    def _still_waits(self, key: str) -> bool:
        group = self._state.groups.get(key)
        return group is not None and self._counts(group)


def hopeless(group: GroupEntry) -> bool:
    """Return whether the group was found to never run, on the present nodes and queues."""
    if group.pending_class is not None:
        return all_hopeless(group.pending_class)
    explanation = group.reported.explanation if group.reported is not None else None
    return explanation is not None and explanation.facts.tier == 1


def all_hopeless(pending_class: PendingClass) -> bool:
    """Return :func:`hopeless` for all groups of a class."""
    explanation = pending_class.explanation if pending_class.parked else None
    return explanation is not None and explanation.facts.tier == 1

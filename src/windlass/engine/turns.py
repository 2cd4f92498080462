"""Whose turn it is: the queue tree walked from the top to a leaf, then the first group of the leaf.

Every level is a heap of the queues that have something to try below them; a queue whose figures have
moved is entered again with its new key, and old entries are recognised by their ticket. The order is
therefore current after every single placement, at a cost of the depth of the tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Any

from windlass.engine.groups import GroupEntry
from windlass.engine.parking import Bucket
from windlass.engine.policies import Policies
from windlass.engine.queues import QueueEntry, QueueTree


class Turns:
    def __init__(self, queues: QueueTree, policies: Policies) -> None:
        self._queues = queues
        self._orders = policies.queue_orders
        self._top: list[tuple[Any, ...]] = []
        self._tickets = count()
        self._leaves: dict[str, QueueEntry] = {}
        """Leaves with something to try."""

    def push(self, bucket: Bucket) -> None:
        """The bucket's first group is to be tried. Pushing again after its head changed is allowed."""
        head = bucket.head()
        if head is None:
            return
        leaf = bucket.queue
        bucket.ticket = next(self._tickets)
        heapq.heappush(leaf.waiting, (head.order_key, bucket.ticket, bucket, head))
        if leaf.name not in self._leaves:
            self._leaves[leaf.name] = leaf
            self._activate(leaf)

    def pop(self) -> tuple[Bucket, GroupEntry] | None:
        """The bucket whose turn it is and its first group; to be pushed again if it stays active."""
        while self._leaves:
            leaf = self._leaf()
            found = self._first(leaf)
            if not leaf.waiting:
                self._deactivate(leaf)
            if found is not None:
                return found
        return None

    def rebuild(self, buckets: Iterable[Bucket]) -> None:
        """Start anew after queues were moved in the tree; ``buckets`` are the active ones."""
        for entry in self._queues:
            entry.active = False
            entry.heap.clear()
            entry.waiting.clear()
        self._top.clear()
        self._leaves.clear()
        for bucket in buckets:
            self.push(bucket)

    # ------------------------------------------------------------------ leaves

    def _first(self, leaf: QueueEntry) -> tuple[Bucket, GroupEntry] | None:
        waiting = leaf.waiting
        while waiting:
            order_key, ticket, bucket, group = heapq.heappop(waiting)
            if bucket.ticket != ticket or bucket.parked:
                continue
            if group.bucket is bucket and group.order_key == order_key:
                return bucket, group
            self.push(bucket)  # its first group has left
        return None

    def _leaf(self) -> QueueEntry:
        if len(self._leaves) == 1:
            return next(iter(self._leaves.values()))
        self._resort()
        heap = self._top
        while True:
            entry = self._peek(heap)
            if not entry.heap:
                return entry
            heap = entry.heap

    # ------------------------------------------------------------------ the tree

    def _activate(self, entry: QueueEntry | None) -> None:
        while entry is not None and not entry.active:
            entry.active = True
            self._enter(entry)
            entry = entry.parent

    def _deactivate(self, leaf: QueueEntry) -> None:
        del self._leaves[leaf.name]
        entry: QueueEntry | None = leaf
        while entry is not None:
            entry.active = False
            entry.ticket = -1
            parent = entry.parent
            if parent is None or any(child.active for child in parent.children.values()):
                break
            parent.heap.clear()
            entry = parent

    def _enter(self, entry: QueueEntry) -> None:
        heap = entry.parent.heap if entry.parent is not None else self._top
        entry.ticket = next(self._tickets)
        key = tuple([order.queue_key(entry, None) for order in self._orders])
        heapq.heappush(heap, (key, entry.spec.created, entry.name, entry.ticket, entry))

    def _resort(self) -> None:
        unsorted, self._queues.unsorted = self._queues.unsorted, {}
        for entry in unsorted.values():
            if entry.active:
                self._enter(entry)

    @staticmethod
    def _peek(heap: list[tuple[Any, ...]]) -> QueueEntry:
        while True:
            entry = heap[0][-1]
            if entry.active and entry.ticket == heap[0][-2]:
                return entry
            heapq.heappop(heap)

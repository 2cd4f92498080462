"""Whose turn it is: the queue tree walked from the top to a leaf, then the first group of the leaf.

Every level is a heap of the queues that have something to try below them; a queue whose figures or
whose next step have moved is entered again with its new key, and old entries are recognised by their
ticket. The order is therefore current after every single placement, at a cost of the depth of the tree.
The next step of an inner queue is that of its child whose turn it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Any

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import whole_step
from windlass.engine.pending.scheduling_queue import PendingClass
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.tree import QueueEntry, QueueTree
from windlass.spi.plugins import StepView


class QueueHeap:
    def __init__(self, queues: QueueTree, plugins: PluginSet) -> None:
        self._queues = queues
        self._orders = plugins.queue_orders
        self._entangled = any(getattr(order, "entangled", False) for order in self._orders)
        """Whether any placement may change the place of any queue."""
        self._top: list[tuple[Any, ...]] = []
        self._tickets = count()
        self._leaves: dict[str, QueueEntry] = {}
        """Leaves that may have something to try."""
        self._moved: dict[str, QueueEntry] = {}
        """Leaves whose first group may be another one than when they were entered."""

    @property
    def waiting(self) -> bool:
        """Whether a queue may have something to try."""
        return bool(self._leaves)

    def push(self, pending_class: PendingClass) -> bool:
        """The bucket's first group is to be tried. Pushing again after its head changed is allowed. False: nobody
        of it is to be tried."""
        head = pending_class.head()
        if head is None:
            return False
        leaf = pending_class.queue
        if (
            pending_class.ticket < 0
            or pending_class.entered is not head
            or pending_class.entered_key != head.order_key
        ):
            self._line_up(pending_class, head)
        self._leaves[leaf.name] = self._moved[leaf.name] = leaf
        return True

    def came(self, pending_class: PendingClass, group: GroupEntry) -> None:
        """A group has come to an active bucket: it is to be tried if it is the first now."""
        if pending_class.ticket < 0 or group.order_key < pending_class.entered_key:
            self.push(pending_class)

    def _line_up(self, pending_class: PendingClass, head: GroupEntry) -> None:
        """Enter the bucket among those of its leaf; what it was entered as before is void."""
        pending_class.ticket = next(self._tickets)
        pending_class.entered, pending_class.entered_key = head, head.order_key
        heapq.heappush(
            pending_class.queue.waiting, (head.order_key, pending_class.ticket, pending_class, head)
        )

    def left(self, pending_class: PendingClass) -> None:
        """The bucket is not to be tried any more."""
        self._moved[pending_class.queue.name] = pending_class.queue

    def pop(self) -> tuple[PendingClass, GroupEntry] | None:
        """The bucket whose turn it is and its first group; to be pushed again if it stays active."""
        while leaves := self._leaves:
            leaf = next(iter(leaves.values())) if len(leaves) == 1 else self._leaf()
            if leaf is None:
                return None
            found = self._head(leaf)
            if found is None:
                self._leaves.pop(leaf.name, None)
                self._moved[leaf.name] = leaf
                continue
            heapq.heappop(leaf.waiting)
            found[0].ticket = -1
            self._moved[leaf.name] = leaf
            return found
        return None

    def rebuild(self, pending_classes: Iterable[PendingClass]) -> None:
        """Start anew after queues were moved in the tree; ``buckets`` are the active ones."""
        for entry in self._queues:
            entry.ticket = -1
            entry.next_step = None
            entry.heap.clear()
            for _, _, pending_class, _ in entry.waiting:
                pending_class.ticket = -1
            entry.waiting.clear()
        self._top.clear()
        self._leaves.clear()
        self._moved.clear()
        for pending_class in pending_classes:
            self.push(pending_class)

    # ------------------------------------------------------------------ leaves

    def _head(self, leaf: QueueEntry) -> tuple[PendingClass, GroupEntry] | None:
        """The first group of the leaf; stale entries before it are dropped."""
        waiting = leaf.waiting
        while waiting:
            order_key, ticket, pending_class, group = waiting[0]
            current = pending_class.ticket == ticket
            if (
                current
                and not pending_class.parked
                and group.bucket is pending_class
                and group.order_key == order_key
            ):
                return pending_class, group
            heapq.heappop(waiting)
            if current:
                pending_class.ticket = -1
                head = None if pending_class.parked else pending_class.head()
                if head is not None:  # the first group has left, another is the first
                    self._line_up(pending_class, head)
        return None

    def _leaf(self) -> QueueEntry | None:
        """The one whose turn it is, of several."""
        self._resort()
        entry = self._peek(self._top)
        while entry is not None and entry.heap:
            below = self._peek(entry.heap)
            if below is None:
                break
            entry = below
        return entry

    # ------------------------------------------------------------------ the tree

    def _resort(self) -> None:
        """Enter anew, the deepest first, whatever may stand at another place now."""
        unsorted, self._queues.unsorted = self._queues.unsorted, {}
        moved, self._moved = self._moved, {}
        if self._entangled:
            moved |= self._leaves
        for leaf in moved.values():
            for entry in leaf.path:
                unsorted[entry.name] = entry
        if not unsorted:
            return
        for entry in sorted(unsorted.values(), key=_depth, reverse=True):
            self._enter(entry)

    def _enter(self, entry: QueueEntry) -> None:
        """Put a queue in its place among its siblings, or out of it if nothing is to be tried below."""
        if entry.name in self._leaves:
            found = self._head(entry)
            if found is None:
                del self._leaves[entry.name]
            entry.next_step = None if found is None else _step(found[1])
            active = found is not None
        else:
            best = self._peek(entry.heap)
            entry.next_step = None if best is None else best.next_step
            active = best is not None
        if not active:
            entry.ticket = -1
            return
        heap = entry.parent.heap if entry.parent is not None else self._top
        entry.ticket = next(self._tickets)
        step = entry.next_step
        key = tuple([order.queue_key(entry, step) for order in self._orders])
        heapq.heappush(heap, (key, entry.spec.created, entry.name, entry.ticket, entry))

    @staticmethod
    def _peek(heap: list[tuple[Any, ...]]) -> QueueEntry | None:
        while heap:
            entry = heap[0][-1]
            if entry.ticket == heap[0][-2]:
                return entry
            heapq.heappop(heap)
        return None


def _step(group: GroupEntry) -> StepView | None:
    step, spec = group.step, group.group
    if step is None or spec is None:
        return None
    if step.members == 1 and len(step.batches) == 1:
        return StepView(spec, step.batches[0].cls.request, 1, step.extra)
    return whole_step(group, step)


def _depth(entry: QueueEntry) -> int:
    return len(entry.path)

"""Queue order: the queue tree is walked from the top to a leaf, then its first group.

Every level is a heap of the queues with something to try below them. A queue with
changed sums, or with another next step, is added again with a new key. Tickets identify
outdated entries. The order is therefore current after every placement, at a cost of the
depth of the tree. The next step of an inner queue is that of its first child.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Any

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import whole_step_view
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.tree import QueueEntry, QueueTree
from windlass.spi.plugins import StepView


class QueueHeap:
    """Heap over the queue tree."""

    def __init__(self, queues: QueueTree, plugins: PluginSet) -> None:
        self._queues = queues
        self._orders = plugins.queue_orders
        self._interdependent = any(getattr(order, "entangled", False) for order in self._orders)
        """True if any placement may change the position of any queue."""
        self._top: list[tuple[Any, ...]] = []
        self._tickets = count()
        self._leaves: dict[str, QueueEntry] = {}
        """Leaves that may have something to try."""
        self._changed: dict[str, QueueEntry] = {}
        """Leaves with a possibly changed first group."""

    @property
    def waiting(self) -> bool:
        """Return whether a queue may have something to try."""
        return bool(self._leaves)

    def push(self, pending_class: PendingClass) -> bool:
        """Add a pending class, to try its first group.

        It may be added again after a change of its head. False: it has no group to try.
        """
        head = pending_class.head()
        if head is None:
            return False
        leaf = pending_class.queue
        if (
            pending_class.ticket < 0
            or pending_class.entered is not head
            or pending_class.entered_key != head.order_key
        ):
            self._add_to_leaf(pending_class, head)
        self._leaves[leaf.name] = self._changed[leaf.name] = leaf
        return True

    def group_added(self, pending_class: PendingClass, group: GroupEntry) -> None:
        """Record a new group of an active class; it is tried if it is the first now."""
        if pending_class.ticket < 0 or group.order_key < pending_class.entered_key:
            self.push(pending_class)

    def _add_to_leaf(self, pending_class: PendingClass, head: GroupEntry) -> None:
        """Add the class to its leaf. Its earlier entry becomes invalid."""
        pending_class.ticket = next(self._tickets)
        pending_class.entered, pending_class.entered_key = head, head.order_key
        heapq.heappush(
            pending_class.queue.waiting, (head.order_key, pending_class.ticket, pending_class, head)
        )

    def remove(self, pending_class: PendingClass) -> None:
        """Record that the class is not to be tried any more."""
        self._changed[pending_class.queue.name] = pending_class.queue

    def pop(self) -> tuple[PendingClass, GroupEntry] | None:
        """Return the next class and its first group. Push the class again if it stays active."""
        while leaves := self._leaves:
            leaf = next(iter(leaves.values())) if len(leaves) == 1 else self._leaf()
            if leaf is None:
                return None
            entry = self._head(leaf)
            if entry is None:
                self._leaves.pop(leaf.name, None)
                self._changed[leaf.name] = leaf
                continue
            heapq.heappop(leaf.waiting)
            entry[0].ticket = -1
            self._changed[leaf.name] = leaf
            return entry
        return None

    def rebuild(self, pending_classes: Iterable[PendingClass]) -> None:
        """Rebuild the heap after moves of queues in the tree. ``pending_classes``: the active ones."""
        for entry in self._queues:
            entry.ticket = -1
            entry.next_step = None
            entry.heap.clear()
            for _, _, pending_class, _ in entry.waiting:
                pending_class.ticket = -1
            entry.waiting.clear()
        self._top.clear()
        self._leaves.clear()
        self._changed.clear()
        for pending_class in pending_classes:
            self.push(pending_class)

    # ------------------------------------------------------------------ leaves

    def _head(self, leaf: QueueEntry) -> tuple[PendingClass, GroupEntry] | None:
        """Return the first group of the leaf; outdated entries before it are dropped."""
        waiting = leaf.waiting
        while waiting:
            order_key, ticket, pending_class, group = waiting[0]
            current = pending_class.ticket == ticket
            if (
                current
                and not pending_class.parked
                and group.pending_class is pending_class
                and group.order_key == order_key
            ):
                return pending_class, group
            heapq.heappop(waiting)
            if current:
                pending_class.ticket = -1
                head = None if pending_class.parked else pending_class.head()
                if head is not None:  # the first group has left, another one is first
                    self._add_to_leaf(pending_class, head)
        return None

    def _leaf(self) -> QueueEntry | None:
        """Return the next leaf, of several."""
        self._resort()
        entry = self._peek(self._top)
        while entry is not None and entry.heap:
            child = self._peek(entry.heap)
            if child is None:
                break
            entry = child
        return entry

    # ------------------------------------------------------------------ tree

    def _resort(self) -> None:
        """Add queues with a possibly changed position again, the deepest first."""
        unsorted, self._queues.unsorted = self._queues.unsorted, {}
        moved, self._changed = self._changed, {}
        if self._interdependent:
            moved |= self._leaves
        for leaf in moved.values():
            for entry in leaf.path:
                unsorted[entry.name] = entry
        if not unsorted:
            return
        for entry in sorted(unsorted.values(), key=_depth, reverse=True):
            self._enter(entry)

    def _enter(self, entry: QueueEntry) -> None:
        """Add a queue to the heap of its siblings, or leave it out if nothing is to be tried below."""
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
    return whole_step_view(group, step)


def _depth(entry: QueueEntry) -> int:
    return len(entry.path)

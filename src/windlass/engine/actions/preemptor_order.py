"""Order of preemptors: the queue tree from the top to a leaf, then its first pending class.

It is the order of ``allocate`` (:mod:`windlass.engine.queueing.queue_order`). At every
level siblings are compared, each with the next step of the first group below it. Failed
preemptions change nothing, so an order is valid until one succeeds. Only queues with
another first group are sorted again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.engine.groups.next_step import whole_step_view
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.queues.tree import QueueEntry
from windlass.spi.plugins import QueueOrder


@dataclass(slots=True, eq=False)
class _Branch:
    """Queue with preemptors below it.

    ``pending_classes``: heap of its own pending classes by the order of their first groups.
    ``children``: heap of its child queues by their keys.
    """

    queue: QueueEntry | None
    pending_classes: list[tuple[Any, int, PendingClass]] = field(default_factory=list)
    children: list[tuple[Any, float, str, _Branch]] = field(default_factory=list)

    def first(self) -> PendingClass:
        branch = self
        while branch.children:
            branch = branch.children[0][-1]
        return branch.pending_classes[0][-1]


class PreemptorOrder:
    """Yields pending classes one by one.

    :meth:`remaining` returns the last one, with those that were not yielded yet.
    """

    def __init__(self, pending_classes: Iterable[PendingClass], orders: Sequence[QueueOrder]) -> None:
        self._orders = orders
        self._top = _Branch(None)
        branches: dict[str, _Branch] = {}
        for at, pending_class in enumerate(pending_classes):
            head = pending_class.head()
            if head is not None:
                heap = self._branch(pending_class.queue, branches).pending_classes
                heapq.heappush(heap, (head.order_key, at, pending_class))
        self._sort(self._top)

    def _branch(self, queue: QueueEntry, branches: dict[str, _Branch]) -> _Branch:
        """Return the branch of a queue. It is created, with its ancestors, on first use."""
        branch = branches.get(queue.name)
        if branch is None:
            branch = branches[queue.name] = _Branch(queue)
            parent = self._top if queue.parent is None else self._branch(queue.parent, branches)
            parent.children.append(((), 0.0, queue.name, branch))
        return branch

    def _sort(self, branch: _Branch) -> None:
        """Sort all queues below a branch, the deepest first."""
        for *_, child in branch.children:
            self._sort(child)
        if len(branch.children) > 1:
            branch.children = [self._heap_entry(child) for *_, child in branch.children]
            heapq.heapify(branch.children)

    def _heap_entry(self, branch: _Branch) -> tuple[Any, float, str, _Branch]:
        queue, head = branch.queue, branch.first().head()
        if queue is None:
            raise ValueError("the top has no place")
        view = whole_step_view(head, head.step) if head is not None and head.step is not None else None
        key = tuple([order.queue_key(queue, view) for order in self._orders])
        return key, queue.spec.created, queue.name, branch

    def __iter__(self) -> Iterator[PendingClass]:
        while self._top.children:
            path = [self._top]
            while path[-1].children:
                path.append(path[-1].children[0][-1])
            yield path[-1].pending_classes[0][-1]
            heapq.heappop(path[-1].pending_classes)
            for parent, branch in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
                if not (branch.pending_classes or branch.children):
                    heapq.heappop(parent.children)
                elif len(parent.children) > 1:
                    heapq.heapreplace(parent.children, self._heap_entry(branch))

    def remaining(self) -> list[PendingClass]:
        """Return the last yielded pending class and the remaining ones, by queue."""
        remaining: list[PendingClass] = []
        branches = [self._top]
        while branches:
            branch = branches.pop()
            remaining += [pending_class for *_, pending_class in sorted(branch.pending_classes)]
            branches += [child for *_, child in branch.children]
        return remaining

"""Scheduling queue: all pending groups, sorted into pending classes.

Groups of one queue with the same next step form one *pending class*, in queue order. If
its first group does not fit, none behind it fits. The exception is a group that ends
before reserved capacity is needed (:class:`~windlass.engine.groups.pending_class.OrderedGroups`). If the
order is *strict*, all groups of a queue form one pending class, and only the first is
tried. A pending class is *active* (its first group is to be tried) or *parked*. A
parked class has wake conditions, and only these wake it. Ten thousand groups that wait
for the same thing are one pending class and cost nothing until it happens.

Wake conditions:

* ``capacity``: enough capacity for a number of tasks of a class.
* ``any_capacity``: capacity for one task of any of several classes.
* ``queues``: a queue releases something.
* ``domains``: pods of certain classes are added or removed.
* ``rows``: a node with capacity nominated to the group changes.
* ``anything``: any change, for rejections by third-party plugins without a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import NodeFit, TaskClass
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.pending_class import NO_CONDITIONS, PendingClass, Signature, WakeConditions
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED, NodeTable
from windlass.engine.pending.capacity_if_evicted import FutureFree
from windlass.engine.queues.tree import QueueEntry, QueueTree
from windlass.spi.plugins import Domain, Listeners

_FEW_ROWS, _FEW_CLASSES = 8, 64
"""Maximum numbers of rows and classes that are checked one by one; more are faster at once."""


class SchedulingQueue:
    """Pending classes, and the index of their wake conditions."""

    def __init__(self, table: NodeTable, queues: QueueTree, domains: list[Domain]) -> None:
        self._table = table
        self.leftover = FutureFree(table)
        """Free capacity after all releases, for questions about single rows."""
        self._queues = queues
        self._domains = domains
        self.pending_classes: dict[Signature, PendingClass] = {}
        self.by_class: dict[TaskClass, dict[PendingClass, None]] = {}
        self.by_queue: dict[str, dict[PendingClass, None]] = {}
        self.by_domain: dict[TaskClass, dict[PendingClass, None]] = {}
        self._by_number: dict[int, TaskClass] = {}
        """Number → class, for the classes of ``by_domain``."""
        self.by_anything: dict[PendingClass, None] = {}
        self.by_row: dict[int, dict[PendingClass, None]] = {}
        self.fits_in_domain: Callable[[GroupEntry], bool] = lambda group: True
        """Function that returns whether some domain could hold the step of a group, by counting."""
        self._matrix: NDArray[np.int64] | None = None
        self._matrix_classes: list[TaskClass] = []
        self._requests: dict[TaskClass, list[tuple[int, int]]] = {}
        """Class → columns and amounts of a task's request, for classes of ``by_class`` seen so far."""

    # ------------------------------------------------------------------ membership

    def enter(self, signature: Signature, queue: QueueEntry, group: GroupEntry) -> PendingClass:
        """Add a group, with its order key set, to the pending class of its signature."""
        pending_class = self.pending_classes.get(signature)
        if pending_class is None:
            dialect = None if len(signature) == 1 or group.group is None else group.group.dialect
            pending_class = self.pending_classes[signature] = PendingClass(signature, queue, dialect)
        pending_class.add(group)
        return pending_class

    def leave(self, group: GroupEntry) -> None:
        pending_class = group.pending_class
        if pending_class is None:
            return
        pending_class.drop(group)
        if not pending_class.members:
            if pending_class.parked:
                self._forget(pending_class)
            del self.pending_classes[pending_class.signature]

    # ------------------------------------------------------------------ parking and waking

    def park(self, pending_class: PendingClass, conditions: WakeConditions) -> None:
        pending_class.parked = True
        pending_class.reset_passing()
        pending_class.wake_conditions = conditions
        for cls in (*conditions.capacity, *conditions.any_capacity):
            if cls not in self.by_class:
                self.by_class[cls] = {}
                self._matrix = None
            self.by_class[cls][pending_class] = None
        for name in conditions.queues:
            self.by_queue.setdefault(name, {})[pending_class] = None
        for cls in conditions.domains:
            self.by_domain.setdefault(cls, {})[pending_class] = None
            self._by_number[cls.number] = cls
        for row in conditions.rows:
            self.by_row.setdefault(row, {})[pending_class] = None
        if conditions.anything:
            self.by_anything[pending_class] = None

    def unpark(self, pending_class: PendingClass) -> None:
        self._forget(pending_class)
        pending_class.parked = False
        pending_class.wake_conditions = NO_CONDITIONS
        pending_class.explanation = None

    def _forget(self, pending_class: PendingClass) -> None:
        conditions = pending_class.wake_conditions
        for cls in {*conditions.capacity, *conditions.any_capacity}:
            self._drop(self.by_class, cls, pending_class)
            if cls not in self.by_class:
                self._matrix = None
        for name in conditions.queues:
            self._drop(self.by_queue, name, pending_class)
        for cls in conditions.domains:
            self._drop(self.by_domain, cls, pending_class)
            if cls not in self.by_domain:
                del self._by_number[cls.number]
        for row in conditions.rows:
            self._drop(self.by_row, row, pending_class)
        self.by_anything.pop(pending_class, None)

    @staticmethod
    def _drop(index: dict[Any, dict[PendingClass, None]], key: Any, pending_class: PendingClass) -> None:
        entries = index.get(key)
        if entries is not None:
            entries.pop(pending_class, None)
            if not entries:
                del index[key]

    def nothing_to_wake(self, moved: set[int]) -> bool:
        """Return whether :meth:`wake` certainly finds nothing."""
        if self._table.improved or (self.by_anything and (moved or self._queues.freed)):
            return False
        return not (moved and self.by_domain) and not (self._queues.freed and self.by_queue)

    def wake(self, moved: set[int]) -> list[PendingClass]:
        """Activate and return the parked classes with wake conditions that may be met now.

        ``moved``: classes with tasks that were added or removed.
        """
        improved, self._table.improved = self._table.improved, set()
        freed, self._queues.freed = self._queues.freed, {}
        woken: dict[PendingClass, None] = {}
        if improved and self.by_class:
            self._wake_by_capacity(improved, woken)
        if self.by_row:
            for row in improved:
                woken.update(self.by_row.get(row, {}))
        for name in freed:
            woken.update(self.by_queue.get(name, {}))
        if moved and self.by_domain:
            self._wake_by_domain(moved, woken)
        if self.by_anything and (improved or freed or moved):
            woken.update(self.by_anything)
        for pending_class in woken:
            self.unpark(pending_class)
        return list(woken)

    def _wake_by_capacity(self, improved: set[int], woken: dict[PendingClass, None]) -> None:
        rows = np.fromiter(improved, dtype=np.int64, count=len(improved))
        fits_by_kind: dict[NodeFit, bool] = {}
        for cls in self._candidates(rows):
            fits = fits_by_kind.get(cls.fit)
            if fits is None:
                fits = fits_by_kind[cls.fit] = cls.fit.takes_any(rows)
            if not fits:
                continue
            total = -1  # capacity that is being released can be nominated
            for pending_class in self.by_class[cls]:
                if cls not in pending_class.wake_conditions.any_capacity:
                    needed = pending_class.wake_conditions.capacity.get(cls)
                    if needed is None:
                        continue
                    if needed > 1:
                        total = cls.future_total() if total < 0 else total
                        if total < needed:
                            continue
                head = pending_class.head()
                if head is None or not head.has_topology or self.fits_in_domain(head):
                    woken[pending_class] = None

    def _candidates(self, rows: NDArray[np.int64]) -> Iterable[TaskClass]:
        """Return the watched classes of which a task might fit on one of the rows, by resources.

        Capacity counts if it is free now or after all releases.
        """
        if len(rows) <= _FEW_ROWS and len(self.by_class) <= _FEW_CLASSES:
            return self._candidates_of(rows.tolist())
        if self._matrix is None or self._matrix.shape[1] != self._table.width:
            self._matrix_classes = list(self.by_class)
            self._matrix = np.stack([cls.vector for cls in self._matrix_classes])
        planes = self._table.planes[rows]
        staying = planes[:, USED] - planes[:, RELEASING] + planes[:, NOMINATED]
        maximum = (planes[:, ALLOCATABLE] - staying).max(axis=0)
        fitting = np.flatnonzero((self._matrix <= np.maximum(maximum, 0)).all(axis=1))
        return [self._matrix_classes[column] for column in fitting.tolist()]

    def _candidates_of(self, rows: list[int]) -> list[TaskClass]:
        """Return the same for a few rows and classes, in plain integers."""
        cells = self.leftover.cells()
        maximum = cells[rows[0]]
        for row in rows[1:]:
            maximum = list(map(max, maximum, cells[row]))
        requests = self._requests
        if len(requests) > 2 * _FEW_CLASSES:
            requests.clear()
        candidates = []
        for cls in self.by_class:
            request = requests.get(cls)
            if request is None:
                units = cls.vector.tolist()
                request = requests[cls] = [
                    (position, units[position]) for position in range(len(units)) if units[position] > 0
                ]
            for column, amount in request:
                if maximum[column] < amount:
                    break
            else:
                candidates.append(cls)
        return candidates

    def _wake_by_domain(self, moved: set[int], woken: dict[PendingClass, None]) -> None:
        for plugin in self._domains:
            if isinstance(plugin, Listeners):
                numbers = {number for mover in moved for number in plugin.listeners(mover)}
                classes = [cls for number in numbers if (cls := self._by_number.get(number)) is not None]
            else:
                classes = [c for c in self.by_domain if not moved.isdisjoint(plugin.listens_to(c.number))]
            for cls in sorted(classes, key=lambda c: c.number):
                woken.update(self.by_domain[cls])

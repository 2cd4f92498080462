"""Counters of held, requested and nominated resources, by group and by queue.

If queues have quotas by device model (:mod:`windlass.engine.queues.flavors`), models
are counted in addition to resources. Work of other schedulers has no group and is
counted separately.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import OCCUPYING, PENDING, TERMINATING, GroupEntry, TaskEntry, tasks_on
from windlass.engine.nodes.table import NodeTable
from windlass.engine.queues.flavors import eligible_flavors, held_flavors, labels_at
from windlass.engine.queues.tree import QueueEntry, QueueTree
from windlass.engine.state.expected_ends import ExpectedEnds
from windlass.spi.objects import TaskState

if TYPE_CHECKING:
    from windlass.engine.state.relocation_holds import RelocationHold

NO_MODELS: dict[str, int] = {}


class StateCounters:
    """Counters. ``ends`` is notified of every change of running tasks."""

    def __init__(self, table: NodeTable, queues: QueueTree, ends: ExpectedEnds) -> None:
        self._table = table
        self._queues = queues
        self._ends = ends

    # ------------------------------------------------------------------ single changes

    def place(self, group: GroupEntry, cls: TaskClass, row: int, n: int) -> None:
        """Count ``n`` pending tasks as placed on ``row``; negative: a placement is undone."""
        group.active += n
        if group.timed:
            self._ends.mark_changed(group)
        queue, spec, queues = group.queue, group.group, self._queues
        if queue is None:
            return
        queues.start(queue, cls.items, n, firm=spec is not None and not spec.preemptible)
        if queues.flavors:
            models = self.by_model(cls, row), self.eligible_models(cls)
            queues.start_flavored(queue, models[0].items(), models[1].items(), n)

    def request(self, queue: QueueEntry | None, cls: TaskClass, n: int) -> None:
        """Count ``n`` pending tasks in the queue; negative: they are no longer pending."""
        if queue is None:
            return
        self._queues.add_pending(queue, cls.items, n)
        if self._queues.flavors:
            self._queues.add_pending(queue, self.eligible_models(cls).items(), n)

    def nominate(self, group: GroupEntry, cls: TaskClass, row: int, sign: int) -> None:
        """Count a nomination of a task of the group on ``row`` (1), or its removal (-1)."""
        if group.queue is None:
            return
        self._queues.nominate(group.queue, cls.items, sign, firm=is_firm(group))
        if self._queues.flavors:
            self._queues.nominate(group.queue, self.by_model(cls, row).items(), sign)

    def release(self, entry: TaskEntry, sign: int) -> None:
        """Count a task that begins to terminate (1), or does not terminate after all (-1)."""
        group = entry.group
        if group is None or group.queue is None:
            return
        self._queues.release(group.queue, entry.cls.items, sign, firm=is_firm(group))
        if self._queues.flavors:
            self._queues.release(group.queue, self.by_model(entry.cls, entry.row).items(), sign)

    def count(self, entry: TaskEntry, state: TaskState, sign: int) -> None:
        """Count a task in ``state`` in its group and its queue (1), or remove it (-1)."""
        group = entry.group
        if group is None:
            if state in OCCUPYING:
                self._queues.hold_foreign(entry.cls.items, sign)
                self._queues.hold_foreign(self.by_model(entry.cls, entry.row).items(), sign)
            return
        group.count(entry, state, sign)
        if group.timed and state in OCCUPYING:
            self._ends.mark_changed(group)
        if state is PENDING and not entry.task.gated:
            if sign > 0:
                group.add_pending(entry)
            else:
                group.drop_pending(entry)
        if group.queue is not None:
            self._count_queue(group.queue, entry, sign, state)

    def _count_queue(self, queue: QueueEntry, entry: TaskEntry, sign: int, state: TaskState) -> None:
        if state in OCCUPYING:
            firm, queues = entry.group is not None and is_firm(entry.group), self._queues
            queues.allocate(queue, entry.cls.items, sign, firm=firm)
            if state is TERMINATING:
                queues.release(queue, entry.cls.items, sign, firm=firm)
            if queues.flavors:
                by_model = self.by_model(entry.cls, entry.row).items()
                queues.allocate(queue, by_model, sign)
                if state is TERMINATING:
                    queues.release(queue, by_model, sign)
        elif state is PENDING and not entry.task.gated:
            self.request(queue, entry.cls, sign)

    # ------------------------------------------------------------------ groups and queues

    def join(self, group: GroupEntry, queue: QueueEntry) -> None:
        """Add the group and its tasks to the queue."""
        group.queue = queue
        queue.groups[group.key] = group
        self._queues.touch(queue)
        if group.tasks:
            self._count_all(group, queue, 1)

    def leave(self, group: GroupEntry, queue: QueueEntry) -> None:
        """Undo :meth:`join`."""
        self._count_all(group, queue, -1)
        del queue.groups[group.key]
        self._queues.touch(queue)
        group.queue = None
        self._queues.drop_if_unused(queue)

    def _count_all(self, group: GroupEntry, queue: QueueEntry, sign: int) -> None:
        for entry in group.tasks.values():
            self._count_queue(queue, entry, sign, entry.state)
            if entry.nominated_row >= 0:
                self.nominate(group, entry.cls, entry.nominated_row, sign)

    # ------------------------------------------------------------------ device models

    def by_model(self, cls: TaskClass, row: int) -> dict[str, int]:
        """Return the units that a task holds on a row, by device model."""
        names = self._queues.flavors
        return held_flavors(cls, labels_at(self._table, row), names) if names and row >= 0 else NO_MODELS

    def eligible_models(self, cls: TaskClass) -> dict[str, int]:
        """Return the units that a task requests, by eligible device model."""
        names = self._queues.flavors
        return eligible_flavors(cls, names) if names else NO_MODELS

    def recount_models(self, groups: Iterable[GroupEntry], holds: Iterable[RelocationHold]) -> None:
        """Recompute the sums by device model from all groups and the work of other schedulers."""
        queues = self._queues
        queues.recount = False
        queues.drop_flavored()
        for row in range(len(self._table.tasks)) if queues.flavors else ():
            for entry in tasks_on(self._table, row).values():
                if entry.group is None:
                    queues.hold_foreign(self.by_model(entry.cls, entry.row).items(), 1)
        for group in groups:
            if group.queue is not None:
                for entry in group.tasks.values():
                    self._recount(group.queue, entry)
        for hold in holds:
            if hold.group.queue is not None:
                queues.nominate(hold.group.queue, self.by_model(hold.cls, hold.row).items(), 1)

    def _recount(self, queue: QueueEntry, entry: TaskEntry) -> None:
        queues = self._queues
        if entry.state is PENDING and not entry.task.gated:
            queues.add_pending(queue, self.eligible_models(entry.cls).items(), 1)
        if entry.state in OCCUPYING:
            by_model = self.by_model(entry.cls, entry.row).items()
            queues.allocate(queue, by_model, 1)
            if entry.state is TERMINATING:
                queues.release(queue, by_model, 1)
        elif entry.nominated_row >= 0:
            queues.nominate(queue, self.by_model(entry.cls, entry.nominated_row).items(), 1)


def is_firm(group: GroupEntry) -> bool:
    """Return whether the group is not preemptible."""
    return group.group is not None and not group.group.preemptible

"""Steps that could not run on empty nodes, so that neither evictions nor reservations help."""

from __future__ import annotations

from collections import Counter

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, NextTasks
from windlass.engine.nodes.table import NodeTable
from windlass.engine.pending.capacity_if_evicted import could_hold
from windlass.engine.queueing.queue_position import hopeless

_CACHED = 4096


class NeverFits:
    """Capacity of empty nodes per class, cached until nodes change."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._capacity: dict[TaskClass, tuple[int, int]] = {}
        """Class → shape of the node table, and number of its tasks that empty nodes hold."""

    def never_holds(self, step: NextTasks) -> bool:
        """Return whether even empty nodes could not hold the step, each class by itself."""
        if step.extra:
            return not any([self._best(run.cls) > 0 for run in step.batches])
        if len(step.batches) == 1:
            return self._best(step.batches[0].cls) < step.members
        counts = Counter[TaskClass]()
        for batch in step.batches:
            counts[batch.cls] += len(batch.entries)
        surplus = counts.total() - step.members
        return any([self._best(cls) < count - surplus for cls, count in counts.items()])

    def never_runs(self, group: GroupEntry) -> bool:
        """Return whether this holds for a group's step, or whether it was found to never run."""
        step = group.step
        return hopeless(group) or (step is not None and self.never_holds(step))

    def _best(self, cls: TaskClass) -> int:
        shape = self._table.shape
        cached = self._capacity.get(cls)
        if cached is not None and cached[0] == shape:
            return cached[1]
        if len(self._capacity) > _CACHED:
            self._capacity.clear()
        best = could_hold(self._table, cls)
        self._capacity[cls] = shape, best
        return best

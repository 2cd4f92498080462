"""Rescheduling of pods off nodes that a plugin wants to relieve.

The plugin implements :class:`~windlass.spi.tiers.RelievesLoad`.

A pod is evicted only if a controller recreates it and another node accepts it, by all
placement rules and by the plugin itself. Elastic members of a gang are moved one at a
time. The minimum of a gang is moved as a whole or not at all. Pods that
PodDisruptionBudgets protect stay. The new place is reserved for the recreated pod.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import RUNNING, GroupEntry, TaskEntry
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.placement.placer import Placer
from windlass.engine.plugin_set import PluginSet
from windlass.engine.preemption.relocation import Relocator
from windlass.engine.queueing.tier_views import EngineTaskView
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims.budget_blockers import blockers_of
from windlass.engine.victims.victim_sets import evicted_with
from windlass.spi.tiers import LoadRelief


class LoadRescheduler(Relocator):
    """One relief run. ``views``: running pods that may be evicted, by key."""

    def __init__(
        self,
        state: ClusterState,
        plugins: PluginSet,
        placer: Placer,
        gang_allocator: GangAllocator,
        statement: Statement,
        relief: LoadRelief,
        views: Mapping[str, EngineTaskView],
    ) -> None:
        super().__init__(state, plugins, placer, gang_allocator, statement)
        self._relief = relief
        self._views = views
        self._mark = 0
        """Checkpoint of the statement before the current trial."""

    def try_evict(self, view: EngineTaskView, action: str) -> bool:
        """Evict a pod, and those evicted with it, if the plugin wants it and all fit elsewhere.

        The result stays in the statement.
        """
        group = view.entry.group
        if group is None or view.entry.state is not RUNNING or not self._relief.why(view):
            return False
        if not group.ready():
            return False  # the recreated pods alone would not start
        entries = evicted_with(group, view.entry)
        reasons = {entry.key: self._reason(entry) for entry in entries}
        if not all(reasons.values()) or blockers_of(self._state.budgets, entries):
            return False
        self._mark = self._statement.checkpoint()
        for entry in entries:
            self._statement.evict(entry, action, reason=reasons[entry.key])
        moves = self._place(group, entries, move=True, packed=True)
        placements = self._statement.placements(self._mark)
        if not moves or self._readmission.rejected({group.key: [entry for entry, _ in placements]}):
            self._statement.rollback(self._mark)
            return False
        for entry, row in placements:
            self._relief.moved(self._views[entry.key], row)
        return True

    def _may_relocate(self, group: GroupEntry, entry: TaskEntry) -> bool:
        return True  # checked before the eviction, and consent is not needed

    def _reason(self, entry: TaskEntry) -> str:
        """Return the reason to evict the pod; empty if it should or may not be evicted."""
        view = self._views.get(entry.key)
        return self._relief.why(view) if view is not None and _may_move(entry) else ""

    def _keys(self, cls: TaskClass) -> NDArray[np.int64]:
        coming = [(row, entry.cls.request) for entry, row in self._statement.placements(self._mark)]
        return np.where(self._relief.takes(cls.request, coming), super()._keys(cls), -1)


def _may_move(entry: TaskEntry) -> bool:
    task, group = entry.task, entry.group
    if entry.state is not RUNNING or group is None or not group.spec.preemptible or group.spec.guest:
        return False
    return task.preemptible and task.owned and not task.critical

"""Moving pods off nodes that a policy wants relieved (:class:`~windlass.spi.tiers.RelievesLoad`).

Nobody goes unless another node takes him, by every rule of placing and by the policy's own, and somebody makes him
anew. A gang gives what it has beyond its minimum pod by pod; its minimum goes whole, if all of it is to leave, or not
at all. What PodDisruptionBudgets do not let go stays. The place is kept for whoever comes in the pod's stead.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import RUNNING, TaskEntry
from windlass.engine.placement.domain_selector import DomainSelector
from windlass.engine.placement.placer import Placer
from windlass.engine.preemption.relocation import Relocator
from windlass.engine.queueing.tier_views import EngineTaskView
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims.budget_blockers import stops_of
from windlass.engine.victims.victim_sets import evicted_with
from windlass.spi.tiers import LoadRelief


class LoadRescheduler(Relocator):
    """One relief. ``looks``: what may be asked to go, by key; all of it runs."""

    def __init__(
        self,
        state: ClusterState,
        placer: Placer,
        statement: Statement,
        domain_selector: DomainSelector,
        relief: LoadRelief,
        looks: Mapping[str, EngineTaskView],
    ) -> None:
        super().__init__(state, placer, statement, domain_selector)
        self._relief = relief
        self._looks = looks
        self._begun = 0
        """Where the moves of those that are just being tried begin in the statement."""

    def relieve(self, look: EngineTaskView, action: str) -> bool:
        """Have a pod go, with those that have to go with it, if that is wanted and all of them have a place. What is
        done stands in the statement."""
        group = look.entry.group
        if group is None or look.entry.state is not RUNNING or not self._relief.why(look):
            return False
        entries = evicted_with(group, look.entry)
        whys = {entry.key: self._why(entry) for entry in entries}
        if not all(whys.values()) or stops_of(self._state.budgets, entries):
            return False
        self._begun = self._statement.checkpoint()
        for entry in entries:
            self._statement.evict(entry, action, why=whys[entry.key])
        if not self._place(group, entries, move=True, packed=True):
            self._statement.rollback(self._begun)
            return False
        for entry, row in self._statement.placements(self._begun):
            self._relief.moved(self._looks[entry.key], row)
        return True

    def _why(self, entry: TaskEntry) -> str:
        """Why it is to go; empty if it is not to, or may not."""
        look = self._looks.get(entry.key)
        return self._relief.why(look) if look is not None and _may_move(entry) else ""

    def _keys(self, cls: TaskClass) -> NDArray[np.int64]:
        coming = [(row, entry.cls.request) for entry, row in self._statement.placements(self._begun)]
        return np.where(self._relief.takes(cls.request, coming), super()._keys(cls), -1)


def _may_move(entry: TaskEntry) -> bool:
    task, group = entry.task, entry.group
    if entry.state is not RUNNING or group is None or not group.spec.preemptible or group.spec.guest:
        return False
    return task.preemptible and task.owned and not task.critical

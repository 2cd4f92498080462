"""``priority``: higher priority first; nothing is evicted but for higher priority."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.spi.objects import Task
from windlass.spi.plugins import GroupView
from windlass.spi.tiers import GangView, Purpose, TaskView


class PriorityOrder:
    name = "priority"

    def group_key(self, group: GroupView) -> int:
        return -group.spec.priority


class PriorityTaskOrder:
    name = "priority"

    def task_key(self, task: Task) -> int:
        return -task.priority


class PriorityStarving:
    """Any member that neither runs nor has room promised."""

    name = "priority"

    def starving(self, gang: GangView) -> bool:
        return gang.held_members + gang.nominated_members < gang.members


class PriorityEvictable:
    """Strictly lower: of the group against another group, of the pod inside one. No say in reclaim."""

    name = "priority"

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.RECLAIM:
            return None
        return [candidate for candidate in candidates if compared(preemptor, candidate) > 0]


def compared(preemptor: TaskView, candidate: TaskView) -> int:
    """How much higher the claimer's priority is: its group's, or inside one group the pod's own."""
    mine, theirs = preemptor.gang.spec, candidate.gang.spec
    if mine.key == theirs.key:
        return preemptor.task.priority - candidate.task.priority
    return mine.priority - theirs.priority

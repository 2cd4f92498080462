"""``priority``: order by priority, and eviction only for a higher priority."""

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
    """Starvation: some member is neither running nor nominated."""

    name = "priority"

    def starving(self, gang: GangView) -> bool:
        return gang.held_members + gang.nominated_members < gang.members


class PriorityEvictable:
    """Vote on victims of strictly lower priority; it abstains in reclaim.

    Priorities of groups are compared; inside one group those of the pods.
    """

    name = "priority"

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.RECLAIM:
            return None
        return [candidate for candidate in candidates if compared(preemptor, candidate) > 0]


def compared(preemptor: TaskView, candidate: TaskView) -> int:
    """Return the difference of priorities: of the groups, or inside one group of the pods."""
    mine, theirs = preemptor.gang.spec, candidate.gang.spec
    if mine.key == theirs.key:
        return preemptor.task.priority - candidate.task.priority
    return mine.priority - theirs.priority

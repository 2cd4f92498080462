"""Default orders: priority of queues, groups and tasks, incomplete gangs first."""

from __future__ import annotations

from windlass.spi.objects import Dialect, Task
from windlass.spi.plugins import GroupView, QueueView, StepView

_KAI = Dialect.KAI


class QueuePriority:
    """Queue order by priority, highest first. KAI's queues have their own order."""

    name = "queue-priority"

    def queue_key(self, queue: QueueView, step: StepView | None) -> int:
        return 0 if queue.mixed or queue.spec.dialect is _KAI else -queue.spec.priority


class Priority:
    """Order by priority, highest first, of the groups of a queue and the tasks of a group."""

    name = "priority"

    def group_key(self, group: GroupView) -> int:
        return -group.spec.priority

    def task_key(self, task: Task) -> tuple[int, str, int, float]:
        return (-task.priority, task.role, task.index, task.created)


class Gang:
    """Group order: a gang below its minimum precedes one that can only grow.

    In KAI's queues a gang at exactly its minimum precedes one that holds more, so that
    elastic gangs grow in turns.
    """

    name = "gang"

    def group_key(self, group: GroupView) -> int:
        if not group.ready():
            return 0
        return 2 if group.spec.dialect is _KAI and group.surplus() else 1

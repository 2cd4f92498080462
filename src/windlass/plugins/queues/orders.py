"""Who goes first: priorities, gangs that are not complete, age."""

from __future__ import annotations

from windlass.spi.objects import Dialect, Task
from windlass.spi.plugins import GroupView, QueueView, StepView

_KAI = Dialect.KAI


class QueuePriority:
    """The queue of higher priority is served first. KAI's queues have an order of their own."""

    name = "queue-priority"

    def queue_key(self, queue: QueueView, step: StepView | None) -> int:
        return 0 if queue.mixed or queue.spec.dialect is _KAI else -queue.spec.priority


class Priority:
    """Higher priority first, among the groups of a queue and among the tasks of a group."""

    name = "priority"

    def group_key(self, group: GroupView) -> int:
        return -group.spec.priority

    def task_key(self, task: Task) -> tuple[int, str, int, float]:
        return (-task.priority, task.role, task.index, task.created)


class Gang:
    """A gang below its minimum goes before one that only wants to grow. In KAI's queues one that holds
    exactly its minimum goes before one that holds more, so that elastic gangs grow in turns."""

    name = "gang"

    def group_key(self, group: GroupView) -> int:
        if not group.ready():
            return 0
        return 2 if group.spec.dialect is _KAI and group.surplus() else 1

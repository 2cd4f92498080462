"""Which task of a group goes first where no plugin of a tier says so, by Volcano's own rule; the last is the first
to be evicted.

By the number at the end of the pod's name, then by age, then by UID (``CompareTask`` in Volcano's
``pkg/controllers/job/helpers/helpers.go``, 1.15): of a job's pods ``train-worker-10`` comes after ``train-worker-9``.
"""

from __future__ import annotations

from windlass.spi.objects import Task


class TaskNumberOrder:
    name = "task-number"

    def task_key(self, task: Task) -> tuple[int, float, str]:
        return _number(task.key.rpartition("/")[2]), task.created, task.uid


def _number(name: str) -> int:
    """Of a pod as a job names it, ``JOB-TASK-NUMBER``; -1 for any other. Volcano compares one that has a number with
    one that has none by age alone, which puts three pods in no order at all; here those without go first."""
    parts = name.split("-")
    last = parts[-1]
    return int(last) if len(parts) >= 3 and last.isascii() and last.isdigit() and len(last) < 19 else -1

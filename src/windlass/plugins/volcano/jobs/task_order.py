"""Default task order of a group by Volcano's rule; the last task is the first victim.

Tasks are ordered by the number at the end of the pod's name, then by age, then by UID
(``CompareTask`` in Volcano's ``pkg/controllers/job/helpers/helpers.go``, 1.15). So
``train-worker-10`` comes after ``train-worker-9``.
"""

from __future__ import annotations

from windlass.spi.objects import Task


class TaskNumberOrder:
    name = "task-number"

    def task_key(self, task: Task) -> tuple[int, float, str]:
        return _number(task.key.rpartition("/")[2]), task.created, task.uid


def _number(name: str) -> int:
    """Return the number of a pod's name ``JOB-TASK-NUMBER``; -1 for any other name.

    Volcano compares a pod with a number and one without by age alone, which is not an
    order for three pods. Here those without a number come first.
    """
    parts = name.split("-")
    last = parts[-1]
    return int(last) if len(parts) >= 3 and last.isascii() and last.isdigit() and len(last) < 19 else -1

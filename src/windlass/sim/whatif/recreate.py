"""Recreation of evicted pods by their owners.

A recreated single pod is new, and queues behind all pending pods. The same holds for a gang that its owner restarts as
a whole, with a new group, once one of its pods is evicted (a Volcano Job with the policy ``PodEvicted`` →
``RestartJob``). The group of any other gang stays, and so do its other pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace as altered

from windlass.model.groups.podgroups import IMPLICIT
from windlass.spi.objects import AttainedService, Group, Task, TaskState

OVER = (TaskState.SUCCEEDED, TaskState.FAILED)


def remade(
    group: Group,
    tasks: Mapping[str, Task],
    evicted: Iterable[str],
    restarts: Collection[str] | None,
    now: float,
    past: AttainedService | None = None,
) -> tuple[Group, dict[str, Task]]:
    """Return the new group, and the recreated tasks.

    ``tasks``: existing tasks of the group. ``restarts``: roles; the eviction of one restarts the group as a whole.
    ``now``: Unix seconds. ``past``: attained service, if the group does not hold it yet; its owner passes it on.
    """
    gone = dict.fromkeys(evicted)
    over = restarts is not None and any(tasks[key].role in restarts for key in gone)
    if over:
        gone |= dict.fromkeys(key for key, task in tasks.items() if task.state not in OVER)
    if over or group.key.partition("/")[2].startswith(IMPLICIT):
        group = altered(
            group,
            uid=_next(group.uid),
            created=now,
            admitted=not over,
            started=None,
            past=_carried(group, past or group.past) if over else None,
            stale_since=None,
        )
    return group, {key: _anew(tasks[key]) for key in gone}


def _anew(task: Task) -> Task:
    return altered(
        task,
        uid=_next(task.uid),
        state=TaskState.PENDING,
        node="",
        devices=(),
        slices=(),
        zones=None,
        started=None,
    )


def _carried(group: Group, past: AttainedService | None) -> AttainedService | None:
    if past is None:
        return None
    first = group.past.since if group.past is not None else None
    return altered(past, since=group.created if first is None else first)


def _next(uid: str) -> str:
    name, _, number = uid.rpartition("+")
    return f"{name}+{int(number) + 1}" if name and number.isdigit() else f"{uid}+1"

"""Tasks that terminate and still hold what a group waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.diagnosis.empty_capacity import capacity_beside, ports_conflict, selects
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import ENDING, STUCK, GroupEntry, TaskEntry, tasks_on
from windlass.engine.nodes.table import NodeTable
from windlass.engine.state.cluster_state import ClusterState
from windlass.kits.timestamps import rfc3339
from windlass.spi.objects import Needs
from windlass.spi.plugins import Rejection

_MAX_NAMED = 3
"""Maximum number of pods that are named."""


def ending_on(
    state: ClusterState, cls: TaskClass, rows: NDArray[np.int64], scarce: Iterable[str]
) -> list[TaskEntry]:
    """Return the terminating tasks on the rows that hold a scarce resource, or exclude the class."""
    on_rows = set(rows.tolist())
    names = set(scarce)
    found = []
    for other in state.classes:
        if not other.terminating:
            continue
        if not (any(other.request.get(name) for name in names) or _excludes(cls.needs, other.needs)):
            continue
        for row in on_rows.intersection(other.terminating):
            found += [
                entry
                for entry in tasks_on(state.table, row).values()
                if entry.cls is other and entry.state in ENDING
            ]
    return sorted(found, key=lambda entry: (entry.state is not STUCK, entry.key))


def _excludes(needs: Needs, other: Needs) -> bool:
    return ports_conflict(needs.host_ports, other.host_ports) or any(
        selects(term, one, another)
        for one, another in ((needs, other), (other, needs))
        for term in one.anti_affinity
    )


def depends_on_stuck(
    state: ClusterState,
    cls: TaskClass,
    rows: NDArray[np.int64],
    ending: Sequence[TaskEntry],
    wanted: int,
) -> bool:
    """Return whether the rows do not hold the tasks before stuck ones end, whatever else ends.

    ``wanted``: tasks of the class, those that run included.
    """
    stuck = [entry for entry in ending if entry.state is STUCK]
    if not stuck:
        return False
    counts = capacity_beside(state, cls, rows, stuck)
    excluded = [entry.row for entry in stuck if _excludes(cls.needs, entry.cls.needs)]
    counts[np.isin(rows, excluded)] = 0
    return int(counts.sum()) < wanted


def ending_in(state: ClusterState, group: GroupEntry, rejection: Rejection) -> list[TaskEntry]:
    """Return the terminating tasks that hold the rejected resource in the rejecting queue."""
    queue = next((q for q in group.queue.path if q.name == rejection.queue), None) if group.queue else None
    if queue is None or rejection.permanent:
        return []
    found = []
    for cls in state.classes:
        if not (cls.terminating and cls.request.get(rejection.resource)):
            continue
        for row in cls.terminating:
            found += [
                entry
                for entry in tasks_on(state.table, row).values()
                if entry.cls is cls
                and entry.state in ENDING
                and entry.group is not None
                and entry.group.queue is not None
                and queue in entry.group.queue.path
            ]
    return sorted(found, key=lambda entry: (entry.state is not STUCK, entry.key))


def fills_limit(group: GroupEntry, rejection: Rejection, ending: Sequence[TaskEntry]) -> bool:
    """Return whether stuck tasks alone leave too little of the limit."""
    queue = next((q for q in group.queue.path if q.name == rejection.queue), None) if group.queue else None
    limit = queue.spec.capability.get(rejection.resource) if queue is not None else None
    held = sum(e.cls.request.get(rejection.resource, 0) for e in ending if e.state is STUCK)
    return limit is not None and held > 0 and held + rejection.needed > limit


def sentence(table: NodeTable, ending: Sequence[TaskEntry]) -> str:
    """Return what terminating tasks hold back, ``""`` without any."""
    texts = []
    for entry in ending[:_MAX_NAMED]:
        since = f" since {rfc3339(entry.task.deleted)}" if entry.task.deleted else ""
        how = "is stuck in termination" if entry.state is STUCK else "is terminating"
        texts.append(
            f"Pod {entry.key} on {table.names[entry.row]} {how}{since} and still holds its capacity."
        )
    if len(ending) > _MAX_NAMED:
        texts.append(f"{len(ending) - _MAX_NAMED} more pods terminate.")
    return " ".join(texts)


def remedies(ending: Sequence[TaskEntry]) -> list[str]:
    """Return the command that ends each stuck pod."""
    result = []
    for entry in [each for each in ending if each.state is STUCK][:_MAX_NAMED]:
        namespace, _, name = entry.key.partition("/")
        result.append(
            "If the processes of the stuck pod have ended, or its node is lost, remove it: "
            f"kubectl delete pod {name} -n {namespace} --grace-period=0 --force"
        )
    return result

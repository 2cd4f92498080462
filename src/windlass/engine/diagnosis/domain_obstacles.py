"""Causes that keep nodes out of topology domains, or their capacity from a group.

A node is in no domain of a level if it lacks the label of the level or of a coarser
one. In a domain it does not count while it is cordoned, not ready, or tainted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.api.reasons import Reason
from windlass.engine.diagnosis.transient_blockers import blockers_by, recoverable
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import ENDING, GroupEntry, TaskEntry
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.topology_domains import DomainTree
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.topology import HYPERNODE, NODE_NAME, TopologyNeed

_STATES = {
    Reason.NODE_UNSCHEDULABLE: "cordoned",
    Reason.NODE_NOT_READY: "not ready",
    Reason.TAINT_NOT_TOLERATED: "tainted",
}
_MAX_NAMED = 3
"""Maximum number of nodes that are named per obstacle."""


@dataclass(frozen=True, slots=True)
class DomainObstacle:
    """Nodes of a domain that one state keeps from the group."""

    code: Reason
    nodes: tuple[str, ...]
    detail: str

    @property
    def text(self) -> str:
        listed = ", ".join(self.nodes[:_MAX_NAMED]) + (" …" if len(self.nodes) > _MAX_NAMED else "")
        detail = f" {self.detail}" if self.detail else ""
        return f"{listed} {'is' if len(self.nodes) == 1 else 'are'} {_STATES[self.code]}{detail}"


def held_entries(group: GroupEntry, subgroup: str = "") -> list[TaskEntry]:
    """Return the tasks of the group, or of a sub-group's subtree, that run and go on running."""
    names: set[str] | None = None
    if subgroup:
        top = group.subgroups.by_name.get(subgroup) if group.subgroups is not None else None
        names = {below.name for below in top.walk()} if top is not None else set()
    return [
        entry
        for entry in group.tasks.values()
        if entry.row >= 0 and entry.state not in ENDING and (names is None or entry.task.subgroup in names)
    ]


def returning(state: ClusterState, cls: TaskClass) -> list[tuple[Reason, NDArray[np.int64]]]:
    """Return the rows that would match without transient blockers: not ready, then cordoned as well."""
    table = state.table
    live = np.flatnonzero(table.live[: table.height])
    found = blockers_by(state.plugins.static_blockers, cls.needs, TableView(table, live))
    return [(code, live[nodes]) for code, nodes in recoverable(found, len(live)) if nodes.any()]


def obstacles_in(
    state: ClusterState, classes: Iterable[TaskClass], rows: NDArray[np.int64]
) -> list[DomainObstacle]:
    """Return the states of nodes among these rows that keep them from one of the classes."""
    names = state.table.names
    found: dict[tuple[Reason, str], dict[str, None]] = {}
    for cls in classes:
        for blocker in blockers_by(state.plugins.static_blockers, cls.needs, TableView(state.table, rows)):
            if blocker.code in _STATES and blocker.blocked.any():
                detail = f"({blocker.detail})" if blocker.code is Reason.TAINT_NOT_TOLERATED else ""
                nodes = found.setdefault((blocker.code, detail), {})
                nodes.update((names[row], None) for row in rows[blocker.blocked].tolist())
    return [DomainObstacle(code, tuple(sorted(nodes)), detail) for (code, detail), nodes in found.items()]


def missing_labels(state: ClusterState, tree: DomainTree, need: TopologyNeed) -> list[tuple[str, int]]:
    """Return the labels that keep nodes out of all domains, with the number of these nodes.

    They are those of the required level and, if levels are nested, of all coarser ones.
    Nodes that carry the label of the required level are looked at, or else all nodes.
    """
    table = state.table
    live = np.flatnonzero(table.live[: tree.height])
    outside = live[tree.codes[need.required][live] == 0]
    labels = [level.label for level in need.levels[: need.required + 1]]
    if not need.nested:
        labels = labels[-1:]
    if any(not label or label == NODE_NAME or label.startswith(HYPERNODE) for label in labels[-1:]):
        return []
    carried = outside[_carries(state, labels[-1], outside)]
    rows = carried if len(carried) else outside
    counts = [
        (label, int((~_carries(state, label, rows)).sum()))
        for label in dict.fromkeys(labels)
        if label and label != NODE_NAME and not label.startswith(HYPERNODE)
    ]
    return [(label, n) for label, n in counts if n]


def _carries(state: ClusterState, label: str, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    return state.table.label_column(label)[1][rows] > 0


def label_sentence(labels: Sequence[tuple[str, int]]) -> str:
    """Return a clause such as ``4 nodes lack the label zone``."""
    return ", ".join(
        f"{n} {'node lacks' if n == 1 else 'nodes lack'} the label {label}" for label, n in labels
    )

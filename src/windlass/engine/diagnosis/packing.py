"""Search for places of a gang on empty nodes.

It decides whether a gang can ever start on the nodes that there are, or only waits for
others to end. It sees resources, host ports, required anti-affinity among the members,
and volumes for one pod alone; members that run keep their places. A gang that has no
place by these never starts. The number of steps is limited, so the answer may be open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windlass.engine.diagnosis.empty_capacity import ports_conflict, selects
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import ENDING, GroupEntry, NextTasks
from windlass.engine.groups.next_step import required_tasks
from windlass.engine.nodes.view import view_of
from windlass.engine.state.cluster_state import ClusterState

_MAX_TASKS = 48
_MAX_STEPS = 20_000
"""Maximum number of nodes that are tried for tasks."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Result: the most members that fit together. ``exact``: false if the search was cut off."""

    members: int
    exact: bool


def pack(
    state: ClusterState, group: GroupEntry, step: NextTasks, *, transient: bool = True
) -> Packing | None:
    """Place the step's tasks on empty nodes; ``None`` if they are too many to be searched.

    ``transient``: nodes that are cordoned or not ready count, as they may return.
    """
    tasks = [entry for batch in step.batches for entry in batch.entries]
    members = required_tasks(step)
    if step.extra or len(tasks) > _MAX_TASKS or members > len(tasks):
        return None
    search = _Search(state, group, [entry.cls for entry in tasks], members, transient)
    return search.run()


class _Search:
    """Depth-first search, the largest task first, over nodes that differ."""

    def __init__(
        self, state: ClusterState, group: GroupEntry, classes: list[TaskClass], members: int, transient: bool
    ) -> None:
        self._members = members
        kinds = list(dict.fromkeys(classes))
        self._names = sorted({name for cls in kinds for name, _ in cls.node_items})
        table = state.table
        live = np.flatnonzero(table.live[: table.height])
        view = view_of(table, live, empty=True)
        free = np.stack([view.allocatable(name) for name in self._names], axis=1).astype(np.int64)
        self._requests = {cls: self._vector(cls) for cls in kinds}
        allowed = {}
        for cls in kinds:
            cls.refresh()
            allowed[cls] = cls.static[live] | (
                (view.unschedulable() | ~view.ready()) if transient else np.zeros(len(live), dtype=np.bool_)
            )
        row_at = {int(row): at for at, row in enumerate(live.tolist())}
        self._placed: list[tuple[TaskClass, int]] = []
        for entry in group.tasks.values():
            if entry.row in row_at and entry.state not in ENDING:
                at = row_at[entry.row]
                free[at] -= self._vector(entry.cls)
                self._placed.append((entry.cls, at))
        self._free = [tuple(row) for row in free.tolist()]
        self._allowed = {cls: mask.tolist() for cls, mask in allowed.items()}
        every = list(dict.fromkeys([*kinds, *(cls for cls, _ in self._placed)]))
        keys = sorted({term.topology_key for cls in every for term in cls.needs.anti_affinity})
        self._domains = {key: view.label(key).tolist() for key in keys}
        self._conflicts = {(a, b): _conflict(a, b) for a in every for b in every}
        total = np.maximum(free.sum(axis=0), 1)
        weight = {cls: max(np.array(self._requests[cls]) / total, default=0.0) for cls in kinds}
        order = {cls: at for at, cls in enumerate(kinds)}
        self._order = sorted(classes, key=lambda cls: (-weight[cls], order[cls]))
        self._single = {key: _singles(domains) for key, domains in self._domains.items()}
        self._steps = 0
        self._nodes = self._distinct(len(classes))

    def _distinct(self, tasks: int) -> list[int]:
        """Return the nodes, at most ``tasks`` of those that are equal for the search."""
        seen: Counter[tuple[object, ...]] = Counter()
        nodes = []
        for at in range(len(self._free)):
            signature = self._signature(at)
            seen[signature] += 1
            if seen[signature] <= tasks:
                nodes.append(at)
        return nodes

    def _vector(self, cls: TaskClass) -> tuple[int, ...]:
        items = dict(cls.node_items)
        return tuple(items.get(name, 0) for name in self._names)

    def run(self) -> Packing:
        wanted = self._members
        while self._members and not self._place(0, 0, -1):
            self._members -= 1
            if self._steps > _MAX_STEPS:
                return Packing(0, False)
        return Packing(self._members, self._members == wanted or self._steps <= _MAX_STEPS)

    def _place(self, index: int, placed: int, last: int) -> bool:
        """Return whether the members fit. ``last``: node of the previous task of the same class."""
        if placed >= self._members:
            return True
        if self._steps > _MAX_STEPS or placed + len(self._order) - index < self._members:
            return False
        cls = self._order[index]
        same = index + 1 < len(self._order) and self._order[index + 1] is cls
        tried: set[tuple[object, ...]] = set()
        for position in range(max(0, last), len(self._nodes)):
            at = self._nodes[position]
            self._steps += 1
            if not self._fits(cls, at):
                continue
            signature = self._signature(at)
            if signature in tried:
                continue
            tried.add(signature)
            before = self._free[at]
            self._free[at] = tuple(a - b for a, b in zip(before, self._requests[cls], strict=True))
            self._placed.append((cls, at))
            if self._place(index + 1, placed + 1, position if same else -1):
                return True
            self._placed.pop()
            self._free[at] = before
        following = index + 1
        while following < len(self._order) and self._order[following] is cls:
            following += 1  # if this task is left out, so are equal ones
        return self._place(following, placed, -1)

    def _signature(self, at: int) -> tuple[object, ...]:
        held = tuple(sorted(cls.number for cls, where in self._placed if where == at))
        return (
            self._free[at],
            held,
            tuple(self._domain(key, at) for key in self._domains),
            tuple(mask[at] for mask in self._allowed.values()),
        )

    def _domain(self, key: str, at: int) -> int:
        """Return the domain; -1 for any domain of one node without members."""
        domain = self._domains[key][at]
        if domain in self._single[key] and all(where != at for _, where in self._placed):
            return -1
        return domain

    def _fits(self, cls: TaskClass, at: int) -> bool:
        if not self._allowed[cls][at]:
            return False
        if any(has < needs for has, needs in zip(self._free[at], self._requests[cls], strict=True)):
            return False
        return not any(self._excludes(cls, at, other, where) for other, where in self._placed)

    def _excludes(self, cls: TaskClass, at: int, other: TaskClass, where: int) -> bool:
        anywhere, on_node, keys = self._conflicts[cls, other]
        if anywhere or (on_node and at == where):
            return True
        return any(
            self._domains[key][at] and self._domains[key][at] == self._domains[key][where] for key in keys
        )


def _singles(domains: list[int]) -> set[int]:
    """Return the domains of one node."""
    return {domain for domain, nodes in Counter(domains).items() if domain and nodes == 1}


def _conflict(a: TaskClass, b: TaskClass) -> tuple[bool, bool, Sequence[str]]:
    """Return whether the classes exclude each other anywhere, on one node, and in domains of which keys."""
    claims = {volume.claim for volume in a.needs.volumes if volume.exclusive}
    anywhere = any(volume.claim in claims for volume in b.needs.volumes)
    keys = [term.topology_key for term in a.needs.anti_affinity if selects(term, a.needs, b.needs)]
    keys += [term.topology_key for term in b.needs.anti_affinity if selects(term, b.needs, a.needs)]
    return anywhere, ports_conflict(a.needs.host_ports, b.needs.host_ports), tuple(dict.fromkeys(keys))

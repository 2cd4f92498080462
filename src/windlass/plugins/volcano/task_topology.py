"""Volcano's ``task-topology``: roles of a job that want to be on one node, or apart, and which goes first.

A node's points grow with every pod of the same job on it whose role is wanted near, and fall with every one
whose role is wanted apart; scaled over the nodes that take the pod, the best has 100. As in Volcano a role that
keeps off itself counts most (4), then different roles together (3), a role together (2), different roles apart
(1). Volcano sorts the pods of a job into buckets beforehand and counts those of a bucket that still wait as
well; here only what is placed counts, pod after pod in the order of roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from windlass.plugins.dialects import VOLCANO
from windlass.plugins.onlooker import Onlooker
from windlass.plugins.volcano.arguments import Arguments, number
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Needs, RoleWishes, Task

SELF_APART, OTHERS_NEAR, SELF_NEAR, OTHERS_APART = 4.0, 3.0, 2.0, 1.0
LAST = 1 << 30


class RolesTogether(Onlooker):
    """Counts the pods of each role of each job by node; serves one engine."""

    name = "task-topology"
    dialects = VOLCANO

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self._roles: dict[int, RoleWishes] = {}
        self._there: dict[tuple[str, str], dict[int, int]] = {}

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        if needs.roles is not None:
            self._roles[number] = needs.roles

    def forget(self, number: int) -> None:
        self._roles.pop(number, None)

    def add(self, number: int, row: int, count: int) -> None:
        roles = self._roles.get(number)
        if roles is None:
            return
        key = (roles.gang, roles.role)
        there = self._there.setdefault(key, {})
        there[row] = there.get(row, 0) + count
        if not there[row]:
            del there[row]
            if not there:
                del self._there[key]

    def opines(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return needs.roles is not None and bool(needs.roles.near or needs.roles.apart)

    def relative(self, number: int, needs: Needs, nodes: NodeView, rivals: BoolArray) -> FloatArray:
        roles = needs.roles
        raw = np.zeros(nodes.size)
        if roles is None:
            return raw
        rows = nodes.rows
        for other in roles.near:
            self._count(raw, rows, roles, other, SELF_NEAR if other == roles.role else OTHERS_NEAR)
        for other in roles.apart:
            self._count(raw, rows, roles, other, -(SELF_APART if other == roles.role else OTHERS_APART))
        least, most = raw[rivals].min(), raw[rivals].max()
        return 100.0 * (raw - least) / (most - least) if most > least else np.zeros(nodes.size)

    def _count(self, raw: FloatArray, rows: Any, roles: RoleWishes, other: str, points: float) -> None:
        there = self._there.get((roles.gang, other))
        if there:
            at = np.searchsorted(rows, list(there))
            seen = at < len(rows)
            seen[seen] = rows[at[seen]] == np.array(list(there))[seen]
            raw[at[seen]] += points * np.array(list(there.values()))[seen]


class RolesInOrder:
    """The roles that come first in the job's word are placed first, those that it does not name last."""

    name = "task-topology"

    def task_key(self, task: Task) -> int:
        return task.needs.roles.place if task.needs.roles is not None else LAST


def weight_of(arguments: Arguments) -> float:
    """``task-topology.weight``, 1 where it is not given."""
    return number(arguments, "task-topology.weight", 1)

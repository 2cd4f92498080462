"""Volcano's ``task-topology``: roles of a job on one node or on separate nodes, and their order.

The pods of a job are sorted into buckets (:mod:`windlass.plugins.volcano.jobs.buckets`).
The points of a node are the number of pods of the bucket that would be there. They are
the pods on the node, and the pending ones that still fit (terminating pods count as
gone). Pods on the node that the role avoids are subtracted. All pods of the largest
bucket are 100 points. Buckets are computed again in each cycle.

Pods are placed role by role, while Volcano places them bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from windlass.plugins.argument_values import Arguments, number
from windlass.plugins.dialects import VOLCANO
from windlass.plugins.nodes.count_only import CountOnly
from windlass.plugins.volcano.jobs.buckets import Buckets, PodKind, along, concern, order
from windlass.spi.inputs import PendingTasks
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs, Task

LAST = 1 << 30


class RoleAffinity(CountOnly):
    """Score by the roles of a job's pods on each node; one instance serves one engine."""

    name = "task-topology"
    dialects = VOLCANO

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self._waiting: PendingTasks | None = None
        self._kinds: dict[int, PodKind] = {}
        self._jobs: dict[str, dict[int, dict[int, int]]] = {}
        """Job → class → row → number of its pods there."""
        self._buckets: dict[str, Buckets] = {}

    def take_pending_tasks(self, waiting: PendingTasks) -> None:
        self._waiting = waiting

    def changed(self, now: float) -> bool:
        """Drop the buckets at the start of a cycle."""
        self._buckets.clear()
        return False

    def due(self, now: float) -> float | None:
        return None

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        roles = needs.roles
        if roles is None or not concern(roles):
            return
        self._kinds[number] = PodKind(
            number, roles, {name: units for name, units in needs.request if units > 0}
        )
        self._jobs.setdefault(roles.gang, {})[number] = {}
        self._buckets.pop(roles.gang, None)

    def forget(self, number: int) -> None:
        kind = self._kinds.pop(number, None)
        if kind is None:
            return
        job = self._jobs[kind.roles.gang]
        del job[number]
        if not job:
            del self._jobs[kind.roles.gang]
        self._buckets.pop(kind.roles.gang, None)

    def add(self, number: int, row: int, count: int) -> None:
        kind = self._kinds.get(number)
        if kind is None:
            return
        gang = kind.roles.gang
        there = self._jobs[gang][number]
        there[row] = there.get(row, 0) + count
        if not there[row]:
            del there[row]
        buckets = self._buckets.get(gang)
        if buckets is not None:
            move = buckets.take if count > 0 else buckets.give_back
            if not all([move(number, row) for _ in range(abs(count))]):
                del self._buckets[gang]  # not a decision of this cycle

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return number in self._kinds

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        kind = self._kinds.get(number)
        buckets = self._buckets_of(kind) if kind is not None else None
        if kind is None or buckets is None or not buckets.largest:
            return np.zeros(nodes.size)
        free = {
            name: nodes.allocatable(name) - nodes.used(name) + nodes.releasing(name)
            for name in buckets.resources
        }
        pods = buckets.together(number, nodes.rows, free) - self._avoided(kind, nodes.rows)
        points = pods * (100.0 / buckets.largest)
        return np.minimum(points - min(0.0, float(points[candidates].min())), 100.0)

    def _buckets_of(self, kind: PodKind) -> Buckets | None:
        gang = kind.roles.gang
        buckets = self._buckets.get(gang)
        if buckets is None and self._waiting is not None:
            there = self._jobs[gang]
            kinds = [self._kinds[number] for number in there]
            buckets = self._buckets[gang] = Buckets(kinds, self._waiting.waiting(gang), there)
        return buckets

    def _avoided(self, kind: PodKind, rows: IntArray) -> IntArray:
        """Return by node the number of the job's pods that the role avoids."""
        counts = np.zeros(len(rows), dtype=np.int64)
        for other, there in self._jobs[kind.roles.gang].items():
            if self._kinds[other].roles.role in kind.roles.apart:
                counts += along(rows, there)
        return counts


class RoleOrder:
    """Task order: roles with preferences precede those without.

    The order that the job states comes first (roles that it does not name last), then
    the weight of preferences.
    """

    name = "task-topology"

    def task_key(self, task: Task) -> tuple[bool, int, int]:
        roles = task.needs.roles
        if roles is None:
            return True, LAST, 0
        return not concern(roles), *order(roles)


def weight_of(arguments: Arguments) -> float:
    """Return ``task-topology.weight``; 1 by default."""
    return number(arguments, "task-topology.weight", 1)

"""Volcano's buckets of ``task-topology``: pods of a job that should share a node.

Running pods form one bucket per node. Pending pods are assigned in the order of their
kinds. Each joins the bucket with the largest number of pods that it wants near, minus
those that it avoids. Of several such buckets it joins the one with the smallest pending
requests. If every bucket has more pods to avoid, it starts a new one (volcano
``pkg/scheduler/plugins/task-topology``, ``manager.go``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.spi.nodes import IntArray
from windlass.spi.objects import RolePreferences

_MIB = 1 << 20
SELF_APART, OTHERS_NEAR, SELF_NEAR, OTHERS_APART = 4, 3, 2, 1


def concern(roles: RolePreferences) -> int:
    """Return the weight of a role's preferences in the order of pods; 0 for a role without any."""
    if roles.role in roles.apart:
        return SELF_APART
    if set(roles.near) - {roles.role}:
        return OTHERS_NEAR
    if roles.near:
        return SELF_NEAR
    return OTHERS_APART if roles.apart else 0


def order(roles: RolePreferences) -> tuple[int, int]:
    """Return the sort key of a role: the job's order, then :func:`concern`."""
    return roles.place, -concern(roles)


def along(rows: IntArray, counts: Mapping[int, int]) -> IntArray:
    """Return counts by row as an array along ``rows`` (sorted); other rows are left out."""
    counted = np.zeros(len(rows), dtype=np.int64)
    if counts and len(rows):
        held = np.array(list(counts.items()))
        index = np.minimum(np.searchsorted(rows, held[:, 0]), len(rows) - 1)
        seen = rows[index] == held[:, 0]
        counted[index[seen]] = held[seen, 1]
    return counted


@dataclass(frozen=True, slots=True)
class PodKind:
    """Equal pods of a job. ``request``: of each, in engine units."""

    number: int
    roles: RolePreferences
    request: Mapping[str, int]

    @property
    def load(self) -> float:
        """Size of a pod: 1 CPU, 1 GiB (less 2 %) and 1 device count the same."""
        return sum(units / _MIB if name == "memory" else units for name, units in self.request.items())


class _Bucket:
    def __init__(self) -> None:
        self.waiting: Counter[int] = Counter()
        """Kind → number of pending pods."""
        self.left = 0
        """Number of pending pods."""
        self.on: Counter[int] = Counter()
        """Row → number of pods that run there."""

    def wait(self, number: int, pods: int) -> None:
        self.waiting[number] += pods
        self.left += pods


class Buckets:
    """Buckets of one job. ``waiting``: kind → pods; ``there``: kind → row → pods."""

    def __init__(
        self, kinds: Sequence[PodKind], waiting: Mapping[int, int], there: Mapping[int, Mapping[int, int]]
    ) -> None:
        self._kinds = {
            kind.number: kind
            for kind in sorted(kinds, key=lambda k: (order(k.roles), k.roles.role, k.number))
        }
        self._buckets: list[_Bucket] = []
        self._taken: dict[tuple[int, int], list[_Bucket]] = {}
        """Kind and row → buckets of the pods placed there since the buckets were computed."""
        self._fill(waiting, there)
        self.largest = max((each.left + each.on.total() for each in self._buckets), default=0)
        """Number of pods of the largest bucket."""

    def _fill(self, waiting: Mapping[int, int], there: Mapping[int, Mapping[int, int]]) -> None:
        roles = {
            role: index
            for index, role in enumerate(dict.fromkeys(k.roles.role for k in self._kinds.values()))
        }
        rows = sorted({row for placed in there.values() for row in placed})
        most = len(rows) + sum(waiting.values())
        counts, loads = np.zeros((most, len(roles)), dtype=np.int64), np.zeros(most)
        for index, row in enumerate(rows):
            bucket = _Bucket()
            self._buckets.append(bucket)
            for number, kind in self._kinds.items():
                pods = there.get(number, {}).get(row, 0)
                bucket.on[row] += pods
                counts[index, roles[kind.roles.role]] += pods
        for number, kind in self._kinds.items():
            column = roles[kind.roles.role]
            preferences = np.array([(role in kind.roles.near) - (role in kind.roles.apart) for role in roles])
            for _ in range(waiting.get(number, 0)):
                size = len(self._buckets)
                near = counts[:size] @ preferences
                if not size or near.max() < 0:
                    index = size
                    self._buckets.append(_Bucket())
                else:
                    best = np.flatnonzero(near == near.max())
                    index = int(best[loads[best].argmin()])
                self._buckets[index].wait(number, 1)
                counts[index, column] += 1
                loads[index] += kind.load

    def _next(self, number: int) -> _Bucket | None:
        """Return the bucket of the next pod of a kind: the one with most pending pods."""
        candidates = [bucket for bucket in self._buckets if bucket.waiting[number] > 0]
        return max(candidates, key=lambda bucket: bucket.left, default=None)

    def take(self, number: int, row: int) -> bool:
        """Record the placement of a pending pod; return whether one was known."""
        bucket = self._next(number)
        if bucket is None:
            return False
        bucket.wait(number, -1)
        bucket.on[row] += 1
        self._taken.setdefault((number, row), []).append(bucket)
        return True

    def give_back(self, number: int, row: int) -> bool:
        """Undo the last such placement; return whether there was one."""
        taken = self._taken.get((number, row))
        if not taken:
            return False
        bucket = taken.pop()
        bucket.wait(number, 1)
        bucket.on[row] -= 1
        return True

    def together(self, number: int, rows: IntArray, free: Mapping[str, IntArray]) -> IntArray:
        """Return by node the number of the bucket's pods that would be there with the
        next pod of a kind.

        They are the pods on the node, the pod itself, and as many other pending ones as
        fit.

        :param free: by resource, of the nodes with these (sorted) rows
        """
        bucket = self._next(number)
        if bucket is None:
            return np.zeros(len(rows), dtype=np.int64)
        pods = [self._kinds[number]]
        for other, kind in self._kinds.items():
            pods += [kind] * (bucket.waiting[other] - (other == number))
        fit = np.full(len(rows), len(pods), dtype=np.int64)
        for name in {name for kind in pods for name in kind.request}:
            needed = np.cumsum([kind.request.get(name, 0) for kind in pods])
            fit = np.minimum(fit, np.searchsorted(needed, free[name], side="right"))
        return fit + along(rows, bucket.on)

    @property
    def resources(self) -> set[str]:
        """Resources that any of the pods requests."""
        return {name for kind in self._kinds.values() for name in kind.request}

"""Volcano's buckets of ``task-topology``: which pods of a job are to share a node.

The pods that run are in one bucket per node. Those that wait are gone through in the order of their kinds, and each
joins the bucket where it finds most pods it wants to be near, less those it wants to keep off; of several, the one
whose waiting pods ask for least. Where it would be kept off everywhere it begins one (volcano
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
    """How much a role's wishes count when pods are put in order; 0 for one without any."""
    if roles.role in roles.apart:
        return SELF_APART
    if set(roles.near) - {roles.role}:
        return OTHERS_NEAR
    if roles.near:
        return SELF_NEAR
    return OTHERS_APART if roles.apart else 0


def order(roles: RolePreferences) -> tuple[int, int]:
    """The smaller first: by the job's word, then by :func:`concern`."""
    return roles.place, -concern(roles)


def along(rows: IntArray, counts: Mapping[int, int]) -> IntArray:
    """Counts by row as an array along ``rows`` (sorted); those of other rows are left out."""
    found = np.zeros(len(rows), dtype=np.int64)
    if counts and len(rows):
        held = np.array(list(counts.items()))
        at = np.minimum(np.searchsorted(rows, held[:, 0]), len(rows) - 1)
        seen = rows[at] == held[:, 0]
        found[at[seen]] = held[seen, 1]
    return found


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods of a job that are alike. ``request``: of each, in engine units."""

    number: int
    roles: RolePreferences
    request: Mapping[str, int]

    @property
    def load(self) -> float:
        """1 CPU, 1 GiB (less 2 %) and 1 device count the same."""
        return sum(units / _MIB if name == "memory" else units for name, units in self.request.items())


class _Bucket:
    def __init__(self) -> None:
        self.waiting: Counter[int] = Counter()
        """Kind → pods."""
        self.left = 0
        """Waiting pods."""
        self.on: Counter[int] = Counter()
        """Row → pods that run there."""

    def wait(self, number: int, pods: int) -> None:
        self.waiting[number] += pods
        self.left += pods


class Buckets:
    """Of one job. ``waiting``: kind → pods; ``there``: kind → row → pods."""

    def __init__(
        self, kinds: Sequence[PodKind], waiting: Mapping[int, int], there: Mapping[int, Mapping[int, int]]
    ) -> None:
        self._kinds = {
            kind.number: kind
            for kind in sorted(kinds, key=lambda k: (order(k.roles), k.roles.role, k.number))
        }
        self._buckets: list[_Bucket] = []
        self._taken: dict[tuple[int, int], list[_Bucket]] = {}
        """Kind and row → whence the pods came that were placed there since."""
        self._fill(waiting, there)
        self.largest = max((each.left + each.on.total() for each in self._buckets), default=0)
        """Pods of the largest bucket."""

    def _fill(self, waiting: Mapping[int, int], there: Mapping[int, Mapping[int, int]]) -> None:
        roles = {
            role: at for at, role in enumerate(dict.fromkeys(k.roles.role for k in self._kinds.values()))
        }
        rows = sorted({row for placed in there.values() for row in placed})
        most = len(rows) + sum(waiting.values())
        counts, loads = np.zeros((most, len(roles)), dtype=np.int64), np.zeros(most)
        for at, row in enumerate(rows):
            bucket = _Bucket()
            self._buckets.append(bucket)
            for number, kind in self._kinds.items():
                pods = there.get(number, {}).get(row, 0)
                bucket.on[row] += pods
                counts[at, roles[kind.roles.role]] += pods
        for number, kind in self._kinds.items():
            column = roles[kind.roles.role]
            preferences = np.array([(role in kind.roles.near) - (role in kind.roles.apart) for role in roles])
            for _ in range(waiting.get(number, 0)):
                size = len(self._buckets)
                near = counts[:size] @ preferences
                if not size or near.max() < 0:
                    at = size
                    self._buckets.append(_Bucket())
                else:
                    best = np.flatnonzero(near == near.max())
                    at = int(best[loads[best].argmin()])
                self._buckets[at].wait(number, 1)
                counts[at, column] += 1
                loads[at] += kind.load

    def _next(self, number: int) -> _Bucket | None:
        """Of which bucket the next pod of a kind is: the one in which most wait."""
        found = [bucket for bucket in self._buckets if bucket.waiting[number] > 0]
        return max(found, key=lambda bucket: bucket.left, default=None)

    def take(self, number: int, row: int) -> bool:
        """A pod that waited is placed. False: none was known."""
        bucket = self._next(number)
        if bucket is None:
            return False
        bucket.wait(number, -1)
        bucket.on[row] += 1
        self._taken.setdefault((number, row), []).append(bucket)
        return True

    def give_back(self, number: int, row: int) -> bool:
        """The last such placement is undone. False: there was none."""
        taken = self._taken.get((number, row))
        if not taken:
            return False
        bucket = taken.pop()
        bucket.wait(number, 1)
        bucket.on[row] -= 1
        return True

    def together(self, number: int, rows: IntArray, free: Mapping[str, IntArray]) -> IntArray:
        """For the next pod of a kind, how many of its bucket would be on each node: those that are there, itself, and
        of the others that wait as many as there is room for. ``free``: by resource, of the nodes with these (sorted)
        rows."""
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
        """What any of the pods asks for."""
        return {name for kind in self._kinds.values() for name in kind.request}

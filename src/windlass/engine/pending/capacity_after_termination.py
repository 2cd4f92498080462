"""Number of tasks of one class that fit on each node after all releases and nominations.

It is computed from resources and static facts of nodes. Time-sharing uses it. Between
two searches only a few rows change, and only these are counted again.

Invariant after :meth:`CapacityAfterTermination.follow`: the counts are those of the
current :func:`~windlass.engine.pending.capacity_if_evicted.future_free`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import floordiv
from typing import TYPE_CHECKING

import numpy as np

from windlass.engine.feasibility.task_class import TaskClass

if TYPE_CHECKING:
    from windlass.engine.pending.capacity_if_evicted import FutureFree


class CapacityAfterTermination:
    """Counts of one class, valid while the static facts of nodes stay the same.

    ``device``: column of a resource with a known maximum per node, -1 for none.
    """

    __slots__ = (
        "_device",
        "_leftover",
        "_remaining",
        "_rows_with",
        "columns",
        "fits",
        "requested",
        "static",
        "total",
    )

    def __init__(self, cls: TaskClass, leftover: FutureFree, device: int) -> None:
        """Static facts of nodes have to be part of ``cls`` already."""
        requested = cls.fit.evaluator.plain_request
        self.columns = [column for column, _ in requested]
        self.requested = [units for _, units in requested]
        self.static = cls.static.tobytes()
        """Not 0 in rows that accept a task of the class at all."""
        self._leftover = leftover
        self._device = device
        free = leftover.free()
        static = cls.static[: len(free)]
        counts = (np.maximum(free[:, self.columns], 0) // cls.vector[self.columns]).min(axis=1)
        counts[~static] = 0
        self.fits: list[int] = counts.tolist()
        """Number of tasks by row."""
        self.total = sum(self.fits)
        self._remaining: list[int] = free[:, device].tolist() if device >= 0 else []
        """Remaining amount of ``device`` by row."""
        amounts_there: list[int] = free[static, device].tolist() if device >= 0 else []
        self._rows_with: dict[int, int] = Counter(amounts_there)
        """Remaining amount of ``device`` → number of nodes that accept the class and have it."""

    @property
    def maximum(self) -> int:
        """Return the largest remaining amount of ``device`` on an accepting node; at least 0."""
        return max(0, max(self._rows_with, default=0))

    def follow(self, changed: Sequence[int]) -> None:
        """Count these rows again after a change of their resources."""
        cells, static, fits, remaining = self._leftover.cells(), self.static, self.fits, self._remaining
        columns, requested, device = self.columns, self.requested, self._device
        for row in changed:
            if not static[row]:
                continue
            free = cells[row]
            count = max(0, min(map(floordiv, [free[column] for column in columns], requested)))
            self.total += count - fits[row]
            fits[row] = count
            if device >= 0 and free[device] != remaining[row]:
                self._move(remaining[row], free[device])
                remaining[row] = free[device]

    def _move(self, before: int, now: int) -> None:
        """Record that the remaining amount of ``device`` on a node has changed."""
        rows_with = self._rows_with
        if rows_with[before] == 1:
            del rows_with[before]
        else:
            rows_with[before] -= 1
        rows_with[now] = rows_with.get(now, 0) + 1

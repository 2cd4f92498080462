"""How many tasks of one class each node takes once all that terminates is gone and every promise is kept.

By amounts and by what is fixed about nodes alone. A claim that shares time asks for it, and between two claims only
a few rows have changed: these are counted anew, not all.

Invariant after :meth:`CapacityAfterTermination.follow`: the figures are those of
:func:`~windlass.engine.pending.capacity_if_evicted.future_free` as it is now.
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
    """Of one class, as long as what is fixed about nodes stays as it is. ``device``: the column of a resource of which
    is asked how much there is at the most on one node, -1 for none."""

    __slots__ = ("_device", "_left", "_leftover", "_rows_with", "asked", "columns", "fits", "static", "total")

    def __init__(self, cls: TaskClass, leftover: FutureFree, device: int) -> None:
        """``cls`` has taken in what is fixed about nodes."""
        asked = cls.fit.evaluator.plain_asked
        self.columns = [column for column, _ in asked]
        self.asked = [units for _, units in asked]
        self.static = cls.static.tobytes()
        """By row: not 0 where a task may be at all."""
        self._leftover = leftover
        self._device = device
        free = leftover.free()
        static = cls.static[: len(free)]
        counts = (np.maximum(free[:, self.columns], 0) // cls.vector[self.columns]).min(axis=1)
        counts[~static] = 0
        self.fits: list[int] = counts.tolist()
        """By row: how many tasks."""
        self.total = sum(self.fits)
        self._left: list[int] = free[:, device].tolist() if device >= 0 else []
        """By row: what is left of ``device``."""
        there: list[int] = free[static, device].tolist() if device >= 0 else []
        self._rows_with: dict[int, int] = Counter(there)
        """What is left of ``device`` → on how many nodes where a task may be."""

    @property
    def most(self) -> int:
        """The most that is left of ``device`` on a node where a task may be; not less than 0."""
        return max(0, max(self._rows_with, default=0))

    def follow(self, changed: Sequence[int]) -> None:
        """The amounts of these rows are others now."""
        cells, static, fits, left = self._leftover.cells(), self.static, self.fits, self._left
        columns, asked, device = self.columns, self.asked, self._device
        for row in changed:
            if not static[row]:
                continue
            amounts = cells[row]
            count = max(0, min(map(floordiv, [amounts[column] for column in columns], asked)))
            self.total += count - fits[row]
            fits[row] = count
            if device >= 0 and amounts[device] != left[row]:
                self._move(left[row], amounts[device])
                left[row] = amounts[device]

    def _move(self, before: int, now: int) -> None:
        """A node has another amount of ``device`` left."""
        rows_with = self._rows_with
        if rows_with[before] == 1:
            del rows_with[before]
        else:
            rows_with[before] -= 1
        rows_with[now] = rows_with.get(now, 0) + 1

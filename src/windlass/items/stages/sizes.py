"""Sizes of the batches of a stage, and its service time."""

from __future__ import annotations

from collections.abc import Callable

from windlass.items.ledger.sizes import BatchSizes
from windlass.items.spec import BatchingSpec

_KEPT = 0.95
"""Part of what was measured before that still counts after a further measurement."""


class MeasuredSizes(BatchSizes):
    """Sizes that also keep the mean seconds of an item over about the last twenty measurements.

    The estimate of :class:`BatchSizes` follows the last two. A budget that is split by it would
    change all the time.
    """

    def __init__(self, batching: BatchingSpec) -> None:
        super().__init__(batching)
        self._items = self._took = 0.0

    def observe(self, group: int, items: int, seconds: float) -> None:
        super().observe(group, items, seconds)
        if items > 0 and seconds >= 0:
            self._items = self._items * _KEPT + items
            self._took = self._took * _KEPT + seconds

    def mean(self) -> float:
        """Return the seconds of an item; 0 before any measurement."""
        return self._took / self._items if self._items else 0.0


class BoundedSizes(MeasuredSizes):
    """Sizes of batches of a stage with a bounded spool behind it."""

    def __init__(self, batching: BatchingSpec, room: Callable[[], int]) -> None:
        super().__init__(batching)
        self._room = room

    def items(self, group: int, remaining: int, workers: int) -> int:
        return max(1, min(super().items(group, remaining, workers), self._room()))

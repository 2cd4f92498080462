"""Rows that have some of one resource left, and those that have none: for classes that ask for it.

On a busy cluster most of what changes between two turns of a class are nodes that others have filled up. These
need not be judged by each class anew: without any of a resource that it asks for a row takes none of its tasks.
What is known here is the same for all classes, and is brought up to date once for all of them.

Invariant after :meth:`FreeRows.sync`: every row that changed after :attr:`FreeRows.floor` either is ``shut`` or
stands in the log.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windlass.engine.nodes.table import ALLOCATABLE, USED, NodeTable

_MANY = 64
"""After so many changes the log begins anew."""


class FreeRows:
    """``column``: of the resource."""

    __slots__ = ("_column", "_mark", "_stamps", "_table", "floor", "shut")

    def __init__(self, table: NodeTable, column: int) -> None:
        self._table = table
        self._column = column
        self._mark = 0
        self._stamps: dict[int, int] = {}
        """Row that has some left → the number of its latest change, the latest last."""
        self.shut: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """By row: -1 where nothing is left, else 0."""
        self.floor = 0
        """The log says nothing of changes up to this one."""

    def sync(self) -> None:
        """Take in what has changed since the last time."""
        table, log = self._table, self._table.amounts
        if self._mark == log.mark:
            return
        changed = log.since(self._mark)
        if len(self.shut) != table.capacity:
            self.shut = np.zeros(table.capacity, dtype=np.int64)
            self._begin(np.arange(table.capacity, dtype=np.int64))
        elif len(changed) > _MANY:
            self._begin(np.array(changed, dtype=np.int64))
        else:
            stamps, latest, shut, item = self._stamps, log.stamps, self.shut, table.planes.item
            column = self._column
            for row in reversed(changed):
                stamps.pop(row, None)
                if item(row, ALLOCATABLE, column) > item(row, USED, column):
                    stamps[row] = latest[row]
                    shut[row] = 0
                else:
                    shut[row] = -1
        self._mark = log.mark

    def _begin(self, rows: NDArray[np.int64]) -> None:
        """Begin a new log once rows have changed."""
        planes, column = self._table.planes, self._column
        left = planes[rows, ALLOCATABLE, column] > planes[rows, USED, column]
        self.shut[rows] = left.astype(np.int64) - 1
        self.floor = self._table.amounts.mark
        self._stamps = {}

    def since(self, mark: int, most: int) -> list[int] | None:
        """The rows that changed after ``mark`` and have some left, the latest first. ``None`` if these are more than
        ``most``, or the log does not reach back so far."""
        if mark < self.floor:
            return None
        found: list[int] = []
        for row, stamp in reversed(self._stamps.items()):
            if stamp <= mark:
                break
            found.append(row)
            if len(found) > most:
                return None
        return found

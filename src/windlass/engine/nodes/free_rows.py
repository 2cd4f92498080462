"""Rows with and without free units of one resource, shared by all classes that request it.

On a busy cluster, most rows that change between two placements of a class are filled up
by others. A class need not evaluate such a row: without any of a requested resource, it
holds no task. This is equal for all classes, so it is updated once for all of them.

Invariant after :meth:`FreeRows.sync`: every row that changed after
:attr:`FreeRows.floor` either is ``full`` or is in the log.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windlass.engine.nodes.table import ALLOCATABLE, USED, NodeTable

_MAX_CHANGES = 64
"""Maximum number of changes before the log is restarted."""


class FreeRows:
    """``column``: column of the resource."""

    __slots__ = ("_column", "_mark", "_stamps", "_table", "floor", "full")

    def __init__(self, table: NodeTable, column: int) -> None:
        self._table = table
        self._column = column
        self._mark = 0
        self._stamps: dict[int, int] = {}
        """Row with free units → number of its latest change, the latest last."""
        self.full: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """By row: -1 without free units, else 0."""
        self.floor = 0
        """The log does not contain changes up to this one."""

    def sync(self) -> None:
        """Process the changes since the last call."""
        table, log = self._table, self._table.resource_log
        if self._mark == log.mark:
            return
        changed = log.since(self._mark)
        if len(self.full) != table.capacity:
            self.full = np.zeros(table.capacity, dtype=np.int64)
            self._restart(np.arange(table.capacity, dtype=np.int64))
        elif len(changed) > _MAX_CHANGES:
            self._restart(np.array(changed, dtype=np.int64))
        else:
            stamps, latest, full, item = self._stamps, log.stamps, self.full, table.planes.item
            column = self._column
            for row in reversed(changed):
                stamps.pop(row, None)
                if item(row, ALLOCATABLE, column) > item(row, USED, column):
                    stamps[row] = latest[row]
                    full[row] = 0
                else:
                    full[row] = -1
        self._mark = log.mark

    def _restart(self, rows: NDArray[np.int64]) -> None:
        """Start a new log after these rows have changed."""
        planes, column = self._table.planes, self._column
        left = planes[rows, ALLOCATABLE, column] > planes[rows, USED, column]
        self.full[rows] = left.astype(np.int64) - 1
        self.floor = self._table.resource_log.mark
        self._stamps = {}

    def since(self, mark: int, maximum: int) -> list[int] | None:
        """Return the rows that changed after ``mark`` and have free units, the latest first.

        ``None`` if there are more than ``maximum``, or if the log does not reach back so
        far.
        """
        if mark < self.floor:
            return None
        rows: list[int] = []
        for row, stamp in reversed(self._stamps.items()):
            if stamp <= mark:
                break
            rows.append(row)
            if len(rows) > maximum:
                return None
        return rows

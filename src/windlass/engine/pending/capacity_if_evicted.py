"""Capacity for a task class if some tasks were evicted, from resources alone.

The counts are upper bounds of what can be placed. They include resources and static
facts of nodes (:attr:`TaskClass.static`), but no plugins about the relation of pods.
For a step of one class without such plugins they are exact. If all of a step has to be
in one domain, the domain with the most capacity counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.device_allocation.freed_devices import FreedDevices
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED, NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.pending.capacity_after_termination import CapacityAfterTermination

_FEW_ROWS = 16
"""Maximum number of rows that are updated one by one; more are faster at once."""
_MAX_COUNTED_CLASSES = 256
"""Maximum number of classes with cached counts per node."""


def future_free(table: NodeTable) -> NDArray[np.int64]:
    """Return the free amount per row and resource after all releases and nominations."""
    planes = table.planes[: table.height]
    return planes[:, ALLOCATABLE] - planes[:, USED] + planes[:, RELEASING] - planes[:, NOMINATED]


def future_free_at(table: NodeTable, row: int) -> NDArray[np.int64]:
    """Return :func:`future_free` of one row."""
    allocatable, used, releasing, nominated = table.planes[row]
    return allocatable - used + releasing - nominated


class FutureFree:
    """Cached :func:`future_free` of the table, as an array and as lists.

    Both are computed once per state of the table, and only on demand.
    """

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._free: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._free_state: _State | None = None
        """State of the table for ``_free``."""
        self._cells: list[list[int]] = []
        self._cells_state: _State | None = None
        self._sums: list[int] | None = None
        """Sums of the lists, once they have been requested."""
        self._counts_by_class: dict[tuple[TaskClass, int], tuple[_State, int, CapacityAfterTermination]] = {}
        """(Class, column) → state of the table, mark of the static facts of nodes, and counts."""

    def free(self) -> NDArray[np.int64]:
        """Return the array. Do not write to it."""
        table, state = self.table, self._state()
        if state != self._free_state:
            changed = self._changed(self._free_state, state)
            self._free_state = state
            if changed is None:
                self._free = future_free(table)
            else:
                self._free = free = self._free.copy()
                for row in changed:
                    free[row] = future_free_at(table, row)
        return self._free

    def cells(self) -> list[list[int]]:
        """Return the same as lists, by row and column. They are updated in place."""
        state = self._state()
        if state != self._cells_state:
            changed = self._changed(self._cells_state, state)
            self._cells_state = state
            if changed is None:
                self._cells, self._sums = self.free().tolist(), None
            else:
                self._update_cells(changed)
        return self._cells

    def sums(self) -> list[int]:
        """Return the sum per resource over the existing nodes."""
        self.cells()
        cached = self._sums
        if cached is None:
            sums: list[int] = self.free()[self.table.live[: self.table.height]].sum(axis=0).tolist()
            cached = self._sums = sums
        return cached

    def after_termination(self, cls: TaskClass, device: int) -> CapacityAfterTermination:
        """Return how many tasks of a class fit per node.

        Static facts of nodes have to be part of the class already. ``device``: column
        of a resource, or -1; see
        :class:`~windlass.engine.pending.capacity_after_termination.CapacityAfterTermination`.
        """
        state, fixed = self._state(), self.table.static_log.mark
        cached = self._counts_by_class.get((cls, device))
        if cached is not None and cached[0] == state and cached[1] == fixed:
            return cached[2]
        counts = None
        if cached is not None and cached[1] == fixed:
            changed = self._changed(cached[0], state)
            if changed is not None:
                counts = cached[2]
                counts.follow(changed)
        if counts is None:
            if len(self._counts_by_class) >= _MAX_COUNTED_CLASSES:
                self._counts_by_class.clear()
            counts = CapacityAfterTermination(cls, self, device)
        self._counts_by_class[cls, device] = state, fixed, counts
        return counts

    def _update_cells(self, changed: Iterable[int]) -> None:
        """Update a few rows of the lists."""
        cells, sums, planes, live = self._cells, self._sums, self.table.planes, self.table.live
        for row in changed:
            allocatable, used, releasing, nominated = planes[row].tolist()
            free_units = [
                allocatable_units - taken + released - nominated_units
                for allocatable_units, taken, released, nominated_units in zip(
                    allocatable, used, releasing, nominated, strict=True
                )
            ]
            if sums is not None and live[row]:
                sums = [n + now - then for n, now, then in zip(sums, free_units, cells[row], strict=True)]
            cells[row] = free_units
        self._sums = sums

    def _state(self) -> _State:
        table = self.table
        return table.epoch, table.shape, table.height, table.resource_log.mark

    def _changed(self, before: _State | None, now: _State) -> list[int] | None:
        """Return the rows that changed between two states; ``None`` for all."""
        if before is None or before[:3] != now[:3]:
            return None
        changed = self.table.resource_log.since(before[3])
        return changed if len(changed) <= _FEW_ROWS else None


_State = tuple[int, int, int, int]
"""Epoch, shape, height, and last change of resources of a table."""


def could_hold(table: NodeTable, cls: TaskClass) -> int:
    """Return how many tasks of the class empty nodes would hold."""
    cls.refresh()
    counts = _counts(table.planes[: table.height, ALLOCATABLE], cls)
    if cls.needs.devices:
        cls.allocator.limit_counts(counts, TableView(table, empty=True), cls.needs)
    return int(counts.sum())


def missing_fractions(table: NodeTable, free: NDArray[np.int64], cls: TaskClass) -> NDArray[np.float64]:
    """Return the missing fraction of a task's request per row, summed over resources.

    It is infinite where the task can never be placed.
    """
    cls.refresh()
    columns = np.flatnonzero(cls.vector)
    requested = cls.vector[columns]
    missing = (np.maximum(requested - free[:, columns], 0) / requested).sum(axis=1)
    never = (table.planes[: table.height, ALLOCATABLE][:, columns] < requested).any(axis=1)
    missing[never | ~cls.static[: table.height]] = np.inf
    if cls.needs.devices:
        rows = np.flatnonzero(np.isfinite(missing))
        missing[rows] += cls.allocator.missing_fractions(rows.tolist(), cls.needs)
    return missing


def _counts(free: NDArray[np.int64], cls: TaskClass) -> NDArray[np.int64]:
    columns = np.flatnonzero(cls.vector)
    counts = (np.maximum(free[:, columns], 0) // cls.vector[columns]).min(axis=1)
    counts[~cls.static[: len(free)]] = 0
    return counts


class CapacityIfEvicted:
    """Capacity of the nodes for one task class while victims are added and removed."""

    def __init__(
        self,
        table: NodeTable,
        cls: TaskClass,
        free: NDArray[np.int64] | None = None,
        domains: NDArray[np.int64] | None = None,
    ) -> None:
        """``free``: :func:`future_free` of the table, if known.

        ``domains``: domain of each row, 0 for none; the step has to be in one of them.
        """
        free = future_free(table) if free is None else free
        cls.refresh()
        self._table = table
        self.cls = cls
        columns = np.flatnonzero(cls.vector)
        self._columns = columns
        self._requested: list[int] = cls.vector[columns].tolist()
        self._free = free[:, columns]
        self._static = cls.static[: table.height]
        counts = _counts(free, cls)
        if cls.needs.devices:
            cls.allocator.limit_counts(counts, TableView(table, future=True), cls.needs)
        self._freed = FreedDevices(table)
        self._counts: list[int] = counts.tolist()
        self._codes: list[int] | None = None
        self._domains = domains
        self.total = int(counts.sum())
        if domains is not None:
            self._codes = domains.tolist()
            self._by_domain: list[int] = _by_domain(counts, domains).tolist()
            self.total = max(self._by_domain)

    def total_if_evicted(self, entries: Iterable[TaskEntry]) -> int:
        """Return how many tasks would fit if all of ``entries`` were evicted."""
        entries = list(entries)
        if self.cls.needs.devices or any(entry.shares for entry in entries):
            self.change(entries, 1)
            best = self.total
            self.change(entries, -1)
            return best
        free = self._free.copy()
        rows, vectors = self._gather(entries)
        np.add.at(free, rows, vectors)
        counts = (np.maximum(free, 0) // np.array(self._requested, dtype=np.int64)).min(axis=1)
        if self._domains is not None:
            return int(_by_domain(np.where(self._static, counts, 0), self._domains).max())
        return int(counts[self._static].sum())

    def _gather(self, entries: Iterable[TaskEntry]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows: list[int] = []
        kinds: list[int] = []
        numbers: dict[int, int] = {}
        vectors_seen: list[NDArray[np.int64]] = []
        for entry in entries:
            rows.append(entry.row)
            released = self._table.released_by(entry)
            kind = numbers.setdefault(id(released), len(vectors_seen))
            if kind == len(vectors_seen):
                vectors_seen.append(released)
            kinds.append(kind)
        block = np.array([leaves[self._columns] for leaves in vectors_seen], dtype=np.int64)
        block = block.reshape(len(vectors_seen), len(self._columns))
        return np.array(rows, dtype=np.int64), block[np.array(kinds, dtype=np.int64)]

    def change(self, entries: Sequence[TaskEntry], sign: int) -> None:
        """Evict ``entries`` (``sign`` 1), or take the evictions back (-1)."""
        free, requested, columns = self._free, self._requested, self._columns
        touched: set[int] = set()
        for entry in entries:
            free[entry.row] += sign * self._table.released_by(entry)[columns]
            if entry.shares or self.cls.needs.devices:
                self._change_devices(entry, sign)
            touched.add(entry.row)
        for row in touched:
            if self._static[row]:
                count = min(
                    max(free_units, 0) // units
                    for free_units, units in zip(free[row].tolist(), requested, strict=True)
                )
                if count and self.cls.needs.devices:
                    count = min(count, self._by_devices(row))
                added = count - self._counts[row]
                self._counts[row] = count
                if self._codes is None:
                    self.total += added
                elif self._codes[row]:
                    self._by_domain[self._codes[row]] += added
                    self.total = max(self._by_domain)

    def _change_devices(self, entry: TaskEntry, sign: int) -> None:
        """Free the device shares of a task, or take them again."""
        given_back = self._freed.set_evicted(entry, sign)
        if given_back and not self.cls.needs.devices:
            codes = self._table.resources.codes
            for name, units in given_back.items():
                self._free[entry.row, self._columns == codes[name]] += units

    def _by_devices(self, row: int) -> int:
        """Return how many tasks the devices of the row would hold."""
        table, evicted = self._table, self._freed.evicted(row)
        free_units = future_free_at(table, row)
        for key in evicted:
            free_units = free_units + table.released_by(table.tasks[row][key])
        return self.cls.allocator.count_if(row, self.cls.needs, self._freed, free_units)


def _by_domain(counts: NDArray[np.int64], domains: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums of counts by domain, without domain 0."""
    sums = np.zeros(int(domains.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(sums, domains, counts)
    sums[0] = 0
    return sums

"""Free device capacity if some tasks were evicted, for the search of victims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import FIELDS, RELEASING_SIDE, charges
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.nodes.table import NodeTable, RowTask


class FreedDevices:
    """Device shares of tasks that are evicted tentatively, one after the other."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._cells: dict[int, NDArray[np.int64]] = {}
        self._evicted: dict[int, set[str]] = {}
        self._freed: dict[int, dict[str, int]] = {}
        self._consumed: dict[int, Counter[str]] = {}

    def set_evicted(self, entry: RowTask, sign: int) -> dict[str, int]:
        """Evict a task (``sign`` 1), or take the eviction back (-1).

        Return what the planes get back for its device shares by resource, in addition
        to the request of its class.
        """
        row = entry.row
        evicted = self._evicted.setdefault(row, set())
        if sign > 0:
            evicted.add(entry.key)
        else:
            evicted.discard(entry.key)
        if not entry.shares:
            return {}
        change: dict[str, int] = {}
        cells = self._cells.get(row)
        if cells is None:
            cells = self._cells[row] = self._table.shares.cells[row].copy()
        device_set = self._table.shares.row(row).device_set
        consumed = self._consumed.setdefault(row, Counter())
        for share in entry.shares:
            for name, units, _ in share.draws:
                consumed[name] += sign * units
            if share.index < 0:
                change[share.resource] = change.get(share.resource, 0) + sign * share.milli
                continue
            slot = device_set.slots[share.resource, share.index]
            facts = device_set.devices[slot]
            before = _later(cells[slot].tolist())
            releasing = cells[slot, RELEASING_SIDE * FIELDS : (RELEASING_SIDE + 1) * FIELDS]
            releasing += sign * facts.vector(share)
            if facts.counted and not facts.unhealthy:
                closed = before - _later(cells[slot].tolist())
                change[share.resource] = change.get(share.resource, 0) + closed * WHOLE
        freed = self._freed.setdefault(row, {})
        for name, units in change.items():
            freed[name] = freed.get(name, 0) + units
        return change

    def cells(self, row: int) -> list[list[int]] | None:
        """Return the cells of the row's devices, if they differ from those of the table."""
        cells = self._cells.get(row)
        return cells.tolist() if cells is not None else None

    def evicted(self, row: int) -> Collection[str]:
        """Return the keys of the evicted tasks of the row."""
        return self._evicted.get(row, ())

    def consumed(self, row: int) -> Mapping[str, int]:
        """Return the consumption of shared devices by the evicted tasks."""
        return self._consumed.get(row, {})

    def freed(self, row: int, resource: str) -> int:
        """Return what the planes have got back of a resource; see :meth:`set_evicted`."""
        return self._freed.get(row, {}).get(resource, 0)


def _later(cells: list[int]) -> int:
    """Return 1 if the device is open after all releases."""
    used, releasing, nominated = charges(cells)
    return used - releasing + nominated

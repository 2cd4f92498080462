"""Free device capacity if some tasks were evicted, for the search of victims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import FIELDS, RELEASING_SIDE, charges
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.table import NodeTable


class FreedDevices:
    """Device shares of tasks that are evicted tentatively, one after the other."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._cells: dict[int, NDArray[np.int64]] = {}
        self._gone: dict[int, set[str]] = {}
        self._freed: dict[int, dict[str, int]] = {}
        self._drawn: dict[int, Counter[str]] = {}

    def change(self, entry: TaskEntry, sign: int) -> dict[str, int]:
        """Evict a task (``sign`` 1), or take the eviction back (-1).

        Return what the planes get back for its device shares by resource, in addition
        to the request of its class.
        """
        row = entry.row
        gone = self._gone.setdefault(row, set())
        if sign > 0:
            gone.add(entry.key)
        else:
            gone.discard(entry.key)
        if not entry.cuts:
            return {}
        change: dict[str, int] = {}
        cells = self._cells.get(row)
        if cells is None:
            cells = self._cells[row] = self._table.shares.cells[row].copy()
        device_set = self._table.shares.row(row).device_set
        drawn = self._drawn.setdefault(row, Counter())
        for share in entry.cuts:
            for name, units, _ in share.draws:
                drawn[name] += sign * units
            if share.index < 0:
                change[share.resource] = change.get(share.resource, 0) + sign * share.milli
                continue
            slot = device_set.slots[share.resource, share.index]
            card = device_set.devices[slot]
            before = _later(cells[slot].tolist())
            part = cells[slot, RELEASING_SIDE * FIELDS : (RELEASING_SIDE + 1) * FIELDS]
            part += sign * card.vector(share)
            if card.counted and not card.unhealthy:
                closed = before - _later(cells[slot].tolist())
                change[share.resource] = change.get(share.resource, 0) + closed * WHOLE
        freed = self._freed.setdefault(row, {})
        for name, units in change.items():
            freed[name] = freed.get(name, 0) + units
        return change

    def cells(self, row: int) -> list[list[int]] | None:
        """Return the cells of the row's devices, if they differ from those of the table."""
        found = self._cells.get(row)
        return found.tolist() if found is not None else None

    def gone(self, row: int) -> Collection[str]:
        """Return the keys of the evicted tasks of the row."""
        return self._gone.get(row, ())

    def drawn(self, row: int) -> Mapping[str, int]:
        """Return the consumption of shared devices by the evicted tasks."""
        return self._drawn.get(row, {})

    def freed(self, row: int, resource: str) -> int:
        """Return what the planes have got back of a resource; see :meth:`change`."""
        return self._freed.get(row, {}).get(resource, 0)


def _later(cells: list[int]) -> int:
    """Return 1 if the device is open after all releases."""
    used, releasing, kept = charges(cells)
    return used - releasing + kept

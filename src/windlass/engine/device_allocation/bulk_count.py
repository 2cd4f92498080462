"""Count of device shares over many rows at once, for plain needs.

A row is counted here under these conditions:

* The need is for one device of a named resource, selected by its kind only.
* No device of the row can be sliced for it.
* Nothing on the row's devices is releasing or nominated.
* The planes allow opening all devices that would be opened.

Other rows are left to :mod:`windlass.engine.devices.assignment`. Both give equal
results (a property test checks this).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.device_state import UNLIMITED
from windlass.engine.devices.need_on_device import needs_on_device
from windlass.engine.devices.share_table import MIB, MILLI, SHARES, SLICES, TAKEN, ShareTable
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED, NodeTable
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device

NO_SHARE, SLICED = -1, -2
"""Markers for a device: it has no share for the need; it could be sliced for it."""


def is_plain(need: DeviceNeed) -> bool:
    """Return whether the need may be counted here."""
    named = need.resource and not (need.by_name or need.carries or need.avoids)
    return bool(named) and need.count == 1 and not need.profile and not need.listed


def plain_counts(
    table: NodeTable, rows: NDArray[np.int64], need: DeviceNeed
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return how many tasks of a plain need each row holds, and for which rows this is known."""
    share_table = table.shares
    share_table.sync_all(rows)
    set_codes = share_table.device_set_of[rows]
    milli, mib = _needs_by_set(share_table, need)
    width = milli.shape[1]
    milli, mib = milli[set_codes], mib[set_codes]
    cells = share_table.cells[:, :width]
    known = (milli != SLICED).all(axis=1)
    if share_table.transient_shares:
        known &= ~np.isin(rows, list(share_table.transient_shares))
    share_counts = cells[:, :, SHARES][rows]
    free = (cells[:, :, TAKEN][rows] == 0) & (cells[:, :, SLICES][rows] == 0) & (milli >= 0)
    if need.whole:
        capacity = (free & (share_counts == 0)).astype(np.int64)
    else:
        compute = WHOLE - cells[:, :, MILLI][rows]
        capacity = np.where(milli > 0, compute // _divisor(milli), np.where(compute > 0, UNLIMITED, 0))
        if mib.any():
            memory = _fact(share_table, "memory of devices", lambda device: device.memory_mib)[set_codes]
            free_mib = memory - cells[:, :, MIB][rows]
            capacity = np.minimum(capacity, np.where(mib > 0, free_mib // _divisor(mib), UNLIMITED))
        slots = _fact(share_table, "slots of devices", lambda device: device.slots)
        if slots.any():
            slots = slots[set_codes]
            capacity = np.where(slots > 0, np.minimum(capacity, slots - share_counts), capacity)
        capacity = np.where(free, np.maximum(capacity, 0), 0)
    opened = ((capacity > 0) & (share_counts == 0)).sum(axis=1) * WHOLE
    planes = table.planes[rows, :, table.column(need.resource)]
    nominated = np.maximum(planes[:, NOMINATED] - planes[:, RELEASING], 0)
    known &= planes[:, ALLOCATABLE] - planes[:, USED] - nominated >= opened
    return np.minimum(capacity.sum(axis=1), UNLIMITED), known


def _divisor(requested: NDArray[np.int64]) -> int | NDArray[np.int64]:
    """Return a divisor that is positive wherever an amount is requested.

    A scalar is much faster than an array, so it is used if all amounts are equal.
    """
    maximum = int(requested.max(initial=1))
    return maximum if ((requested == maximum) | (requested <= 0)).all() else np.maximum(requested, 1)


def _needs_by_set(shares: ShareTable, need: DeviceNeed) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what the need takes of each device of each device set.

    The first array is in milli (or :data:`NO_SHARE`, :data:`SLICED`), the second in
    MiB.
    """
    both = shares.derived.get(need)
    if both is None:
        widest = max((len(device_set.devices) for device_set in shares.device_sets), default=0)
        both = np.zeros((2, len(shares.device_sets), widest), dtype=np.int64)
        both[0] = NO_SHARE
        for device_set in shares.device_sets:
            for need_here in needs_on_device(need, device_set, ("",) * len(device_set.devices)):
                if need_here.profile >= 0:
                    both[0, device_set.code, need_here.slot] = SLICED
                elif need_here.share is not None:
                    both[:, device_set.code, need_here.slot] = need_here.share
        if len(shares.derived) > 1000:
            shares.derived.clear()
        shares.derived[need] = both
    return both[0], both[1]


def _fact(shares: ShareTable, name: str, value_of: Callable[[Device], int]) -> NDArray[np.int64]:
    values = shares.derived.get(name)
    if values is None:
        widest = max((len(device_set.devices) for device_set in shares.device_sets), default=0)
        values = np.zeros((len(shares.device_sets), widest), dtype=np.int64)
        for device_set in shares.device_sets:
            values[device_set.code, : len(device_set.devices)] = [
                value_of(facts.device) for facts in device_set.devices
            ]
        shares.derived[name] = values
    return values

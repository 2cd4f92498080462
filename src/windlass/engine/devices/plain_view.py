"""Devices of single rows in plain values (:class:`windlass.spi.scoring.NodeDevices`).

The values are those of :class:`~windlass.engine.devices.view.DeviceArrays`. Rows in
equal states share one object.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import (
    FIELDS,
    HELD_SIDE,
    MIB,
    MILLI,
    NOMINATED_SIDE,
    PLACES,
    RELEASING_SIDE,
    SLICES,
    TAKEN,
    DeviceFacts,
    RowDevices,
    ShareTable,
    occupied_slices,
)
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.scoring import DeviceKinds, NodeDevices

MAX_CACHED = 50_000
"""Maximum number of cached states of nodes, and of single devices."""


class PlainDevices:
    """Cached plain values of the devices of rows."""

    def __init__(self, shares: ShareTable) -> None:
        self._shares = shares
        self._nodes: dict[tuple[int, ...], NodeDevices] = {}
        self._devices: dict[tuple[DeviceFacts, int], tuple[int, int]] = {}
        self._kinds: dict[int, DeviceKinds] = {}

    def of(self, row: int) -> NodeDevices:
        """Return the current devices of the row."""
        shares = self._shares
        shares.sync(row)
        devices = shares.row(row)
        key = (devices.device_set.code, *devices.states)
        node_devices = self._nodes.get(key)
        if node_devices is None:
            if len(self._nodes) > MAX_CACHED:
                self._nodes.clear()
            node_devices = self._nodes[key] = self._build(devices, shares.cells[row])
        return node_devices

    def _build(self, devices: RowDevices, cells: NDArray[np.int64]) -> NodeDevices:
        device_set = devices.device_set
        kinds = self._kinds.get(device_set.code)
        if kinds is None:
            kinds = self._kinds[device_set.code] = DeviceKinds(
                tuple(device_facts.device.resource for device_facts in device_set.devices),
                tuple(device_facts.device.model for device_facts in device_set.devices),
                tuple(device_facts.device.memory_mib for device_facts in device_set.devices),
                tuple(device_facts.usable for device_facts in device_set.devices),
            )
        free = []
        for slot, facts in enumerate(device_set.devices):
            key = (facts, devices.states[slot])
            free_pair = self._devices.get(key)
            if free_pair is None:
                if len(self._devices) > MAX_CACHED:
                    self._devices.clear()
                free_pair = self._devices[key] = free_of(facts, cells[slot].tolist())
            free.append(free_pair)
        return NodeDevices(kinds, tuple(milli for milli, _ in free), tuple(mib for _, mib in free))


def free_of(facts: DeviceFacts, cells: Sequence[int]) -> tuple[int, int]:
    """Return the free compute (milli) and memory (MiB) of a device."""
    if not facts.usable or cells[TAKEN]:
        return 0, 0
    sums = [_taken(cells, field) for field in (MILLI, MIB, SLICES)]
    memory = facts.device.memory_mib
    if facts.counted and sums[2] <= 0:
        return max(WHOLE - sums[0], 0), max(memory - sums[1], 0)
    size = max(facts.geometry.size if facts.geometry else 0, 1)
    taken = occupied_slices(cells[HELD_SIDE * FIELDS + PLACES]) | occupied_slices(
        cells[NOMINATED_SIDE * FIELDS + PLACES]
    )
    return 0, memory * max(size - taken.bit_count(), 0) // size


def _taken(cells: Sequence[int], field: int) -> int:
    held, releasing, nominated = (
        cells[side * FIELDS + field] for side in (HELD_SIDE, RELEASING_SIDE, NOMINATED_SIDE)
    )
    return max(held, held - releasing + nominated)

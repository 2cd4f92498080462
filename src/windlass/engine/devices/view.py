"""Devices of some rows as plugins see them (:class:`windlass.spi.devices.DeviceView`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import (
    FIELDS,
    MIB,
    MILLI,
    PLACES,
    SHARES,
    SLICES,
    TAKEN,
    DeviceFacts,
    ShareTable,
    occupied_slices,
)
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.arrays import BoolArray, IntArray


class DeviceArrays:
    """Arrays over the devices of some rows.

    ``later``: releasing shares are gone, and nominations hold.
    ``empty``: nothing is allocated.

    A whole device of a terminating plain pod is still shown as taken. Which device it
    is becomes known when the pod is gone.
    """

    def __init__(
        self, shares: ShareTable, rows: IntArray, *, later: bool = False, empty: bool = False
    ) -> None:
        self._table = shares
        self._rows = np.asarray(rows, dtype=np.int64)
        shares.sync_all(self._rows)
        self._set_codes = shares.device_set_of[self._rows]
        self._width = _device_counts(shares)[self._set_codes].max(initial=1)
        cells = shares.cells[self._rows][:, : self._width] if len(self._rows) else None
        if cells is None:
            cells = np.zeros((0, self._width, TAKEN + 1), dtype=np.int64)
        elif empty:
            cells = np.zeros_like(cells)
        self._cells = cells
        self._later = later

    # ------------------------------------------------------------------ constants of devices

    def _spread(
        self, name: str, value_of: Callable[[DeviceFacts], int], default: int = 0
    ) -> NDArray[np.int64]:
        """Return an array of a fact of each device, computed once per device set."""
        values = self._table.derived.get(name)
        if values is None:
            device_sets = self._table.device_sets
            values = np.full(
                (
                    len(device_sets),
                    max((len(device_set.devices) for device_set in device_sets), default=1) or 1,
                ),
                default,
                dtype=np.int64,
            )
            for device_set in device_sets:
                values[device_set.code, : len(device_set.devices)] = [
                    value_of(facts) for facts in device_set.devices
                ]
            self._table.derived[name] = values
        return values[self._set_codes, : self._width]

    @cached_property
    def exists(self) -> BoolArray:
        return self._spread("exists", lambda facts: int(facts.known)) > 0

    @cached_property
    def index(self) -> IntArray:
        return self._spread("index", lambda facts: facts.device.index, -1)

    @cached_property
    def resource(self) -> IntArray:
        return self._spread("resource", lambda facts: self._table.resources[facts.device.resource])

    @property
    def resources(self) -> Sequence[str]:
        return list(self._table.resources)

    @cached_property
    def model(self) -> IntArray:
        return self._spread("model", lambda facts: self._table.models[facts.device.model])

    @property
    def models(self) -> Sequence[str]:
        return list(self._table.models)

    @cached_property
    def healthy(self) -> BoolArray:
        return self._spread("healthy", lambda facts: int(facts.usable)) > 0

    @cached_property
    def memory_mib(self) -> IntArray:
        return self._spread("memory_mib", lambda facts: facts.device.memory_mib)

    @cached_property
    def numa(self) -> IntArray:
        return self._spread("numa", lambda facts: facts.device.numa, -1)

    @cached_property
    def link_group(self) -> IntArray:
        return self._spread("link_group", lambda facts: facts.device.link_group, -1)

    # ------------------------------------------------------------------ allocations

    @cached_property
    def _sums(self) -> NDArray[np.int64]:
        """Taken part of each device; for :data:`PLACES` see ``_slice_masks``."""
        held, releasing, nominated = (
            self._cells[:, :, side * FIELDS : (side + 1) * FIELDS] for side in range(3)
        )
        after = held - releasing + nominated
        return after if self._later else np.maximum(held, after)

    @cached_property
    def _slice_masks(self) -> NDArray[np.int64]:
        held, releasing, nominated = (self._cells[:, :, side * FIELDS + PLACES] for side in range(3))
        staying = held - releasing if self._later else held
        flat = [
            occupied_slices(a) | occupied_slices(b)
            for a, b in zip(staying.ravel().tolist(), nominated.ravel().tolist(), strict=True)
        ]
        return np.array(flat, dtype=np.int64).reshape(held.shape)

    @cached_property
    def _usable(self) -> BoolArray:
        return self.healthy & (self._cells[:, :, TAKEN] == 0)

    @cached_property
    def free_milli(self) -> IntArray:
        sums = self._sums
        plain = self._usable & (sums[:, :, SLICES] == 0)
        plain &= self._spread("counted", lambda facts: int(facts.counted), 1) > 0
        return np.where(plain, np.maximum(WHOLE - sums[:, :, MILLI], 0), 0)

    @cached_property
    def free_mib(self) -> IntArray:
        sums, memory = self._sums, self.memory_mib
        free = np.maximum(memory - sums[:, :, MIB], 0)
        sliced = (sums[:, :, SLICES] > 0) | (
            self._spread("counted", lambda facts: int(facts.counted), 1) == 0
        )
        if sliced.any():
            size = np.maximum(
                self._spread("size", lambda facts: facts.geometry.size if facts.geometry else 0), 1
            )
            remaining = size - np.bitwise_count(self._slice_masks).astype(np.int64)
            free = np.where(sliced, memory * np.maximum(remaining, 0) // size, free)
        return np.where(self._usable, free, 0)

    @cached_property
    def sharers(self) -> IntArray:
        return self._sums[:, :, SHARES] + self._sums[:, :, SLICES]


def _device_counts(shares: ShareTable) -> NDArray[np.int64]:
    """Return the number of devices of each device set."""
    counts = shares.derived.get("")
    if counts is None:
        counts = shares.derived[""] = np.array(
            [len(device_set.devices) for device_set in shares.device_sets], dtype=np.int64
        )
    return counts

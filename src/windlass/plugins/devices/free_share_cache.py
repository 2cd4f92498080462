"""Cached free shares of the devices of single nodes, in plain integers.

The results are equal to those of
:func:`windlass.plugins.devices.device_arrays.free_milli` (a property test checks this).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from windlass.plugins.devices.device_arrays import WHOLE, free_of_devices, without_whole
from windlass.spi.scoring import NodeDevices

MAX_ENTRIES = 50_000
"""Maximum number of cached entries of each kind."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _Free:
    """Free milli of each device of a node.

    ``whole``: for each resource its column (-1: none) and its number of free whole
    devices.
    """

    milli: tuple[int, ...]
    whole: tuple[tuple[str, int, int], ...]


class FreeShareCache:
    """Cache of free shares by the state of a node's devices.

    :param resources: names of the resources in the nodes' amounts, in order; may grow
    """

    def __init__(self, resources: Sequence[str]) -> None:
        self.resources = resources
        self.cpu = self._column("cpu")
        self._known: dict[NodeDevices, _Free] = {}

    def of(self, available: Sequence[int], devices: NodeDevices) -> tuple[int, ...]:
        """Return the free milli of each slot, given the available amount of each resource."""
        free = self._known.get(devices) or self._free(devices)
        for _, column, whole in free.whole:
            if column < 0 or available[column] < whole * WHOLE:
                free_units = {
                    name: available[index] // WHOLE if index >= 0 else 0 for name, index, _ in free.whole
                }
                return without_whole(free.milli, devices.kinds, free_units)
        return free.milli

    def _column(self, resource: str) -> int:
        return self.resources.index(resource) if resource in self.resources else -1

    def _free(self, devices: NodeDevices) -> _Free:
        milli = free_of_devices(devices)
        counts: dict[str, int] = {}
        for name, amount in zip(devices.kinds.resources, milli, strict=True):
            if amount >= WHOLE:
                counts[name] = counts.get(name, 0) + 1
        free = _Free(milli, tuple((name, self._column(name), n) for name, n in counts.items()))
        if all(column >= 0 for _, column, _ in free.whole):  # otherwise the resource may still get a column
            remember(self._known, devices, free)
        return free


def remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add an entry. If the cache is full, clear it first."""
    if len(known) >= MAX_ENTRIES:
        known.clear()
    known[key] = value

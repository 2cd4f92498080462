"""What is left of the cards of one node, in plain integers and remembered by the state of its cards.

The same as :func:`windlass.plugins.devices.device_arrays.free_milli` (a property test holds it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from windlass.plugins.devices.device_arrays import WHOLE, free_of_devices, without_whole
from windlass.spi.scoring import NodeDevices

MOST = 50_000
"""So many answers of each sort are remembered at once."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _Free:
    """``whole``: per resource its column (-1: none), and how many whole cards of it are free."""

    milli: tuple[int, ...]
    whole: tuple[tuple[str, int, int], ...]


class FreeShareCache:
    """``resources``: those of the nodes' amounts, in their order; may grow."""

    def __init__(self, resources: Sequence[str]) -> None:
        self.resources = resources
        self.cpu = self._column("cpu")
        self._known: dict[NodeDevices, _Free] = {}

    def of(self, available: Sequence[int], devices: NodeDevices) -> tuple[int, ...]:
        """By slot. ``available``: of each resource."""
        found = self._known.get(devices) or self._look(devices)
        for _, column, whole in found.whole:
            if column < 0 or available[column] < whole * WHOLE:
                free_units = {name: available[at] // WHOLE if at >= 0 else 0 for name, at, _ in found.whole}
                return without_whole(found.milli, devices.kinds, free_units)
        return found.milli

    def _column(self, resource: str) -> int:
        return self.resources.index(resource) if resource in self.resources else -1

    def _look(self, devices: NodeDevices) -> _Free:
        free = free_of_devices(devices)
        counts: dict[str, int] = {}
        for name, amount in zip(devices.kinds.resources, free, strict=True):
            if amount >= WHOLE:
                counts[name] = counts.get(name, 0) + 1
        found = _Free(free, tuple((name, self._column(name), n) for name, n in counts.items()))
        if all(column >= 0 for _, column, _ in found.whole):  # else the resource may get a column yet
            remember(self._known, devices, found)
        return found


def remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Enter an answer; all others are forgotten where there are too many."""
    if len(known) >= MOST:
        known.clear()
    known[key] = value

"""The cards of single rows in plain values (:class:`windlass.spi.scoring.NodeDevices`): what
:class:`~windlass.engine.devices.view.DeviceArrays` shows of them, one object for all rows in equal states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import (
    FIELDS,
    HELD,
    KEPT,
    LEAVING,
    MIB,
    MILLI,
    PLACES,
    SLICES,
    TAKEN,
    DeviceFacts,
    RowDevices,
    ShareTable,
    covered,
)
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.scoring import DeviceKinds, NodeDevices

MOST = 50_000
"""So many states of nodes, and of single cards, are remembered."""


class PlainDevices:
    def __init__(self, cards: ShareTable) -> None:
        self._cards = cards
        self._known: dict[tuple[int, ...], NodeDevices] = {}
        self._single: dict[tuple[DeviceFacts, int], tuple[int, int]] = {}
        self._kinds: dict[int, DeviceKinds] = {}

    def of(self, row: int) -> NodeDevices:
        """The row's cards as they are now."""
        cards = self._cards
        cards.sync(row)
        found = cards.row(row)
        key = (found.device_set.code, *found.states)
        known = self._known.get(key)
        if known is None:
            if len(self._known) > MOST:
                self._known.clear()
            known = self._known[key] = self._made(found, cards.cells[row])
        return known

    def _made(self, found: RowDevices, cells: NDArray[np.int64]) -> NodeDevices:
        device_set = found.device_set
        kinds = self._kinds.get(device_set.code)
        if kinds is None:
            kinds = self._kinds[device_set.code] = DeviceKinds(
                tuple(card.device.resource for card in device_set.cards),
                tuple(card.device.model for card in device_set.cards),
                tuple(card.device.memory_mib for card in device_set.cards),
                tuple(card.usable for card in device_set.cards),
            )
        free = []
        for slot, card in enumerate(device_set.cards):
            key = (card, found.states[slot])
            both = self._single.get(key)
            if both is None:
                if len(self._single) > MOST:
                    self._single.clear()
                both = self._single[key] = free_of(card, cells[slot].tolist())
            free.append(both)
        return NodeDevices(kinds, tuple(milli for milli, _ in free), tuple(mib for _, mib in free))


def free_of(card: DeviceFacts, cells: Sequence[int]) -> tuple[int, int]:
    """What is left of a card, compute in milli and memory in MiB."""
    if not card.usable or cells[TAKEN]:
        return 0, 0
    sums = [_counted(cells, field) for field in (MILLI, MIB, SLICES)]
    memory = card.device.memory_mib
    if card.counted and sums[2] <= 0:
        return max(WHOLE - sums[0], 0), max(memory - sums[1], 0)
    size = max(card.geometry.size if card.geometry else 0, 1)
    taken = covered(cells[HELD * FIELDS + PLACES]) | covered(cells[KEPT * FIELDS + PLACES])
    return 0, memory * max(size - taken.bit_count(), 0) // size


def _counted(cells: Sequence[int], field: int) -> int:
    held, leaving, kept = (cells[side * FIELDS + field] for side in (HELD, LEAVING, KEPT))
    return max(held, held - leaving + kept)

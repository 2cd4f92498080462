"""The cards of some rows as policies see them (:class:`windlass.spi.devices.DeviceView`)."""

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
    covered,
)
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.arrays import BoolArray, IntArray


class DeviceArrays:
    """``later``: what terminates is gone, promises are kept; ``empty``: nobody has anything.

    A whole card of a plain pod that terminates is still shown as taken: which one it is shows once it is
    gone.
    """

    def __init__(
        self, cards: ShareTable, rows: IntArray, *, later: bool = False, empty: bool = False
    ) -> None:
        self._table = cards
        self._rows = np.asarray(rows, dtype=np.int64)
        cards.sync_all(self._rows)
        self._kits = cards.kit_of[self._rows]
        self._width = _width(cards)[self._kits].max(initial=1)
        cells = cards.cells[self._rows][:, : self._width] if len(self._rows) else None
        if cells is None:
            cells = np.zeros((0, self._width, TAKEN + 1), dtype=np.int64)
        elif empty:
            cells = np.zeros_like(cells)
        self._cells = cells
        self._later = later

    # ------------------------------------------------------------------ what does not change

    def _spread(self, name: str, of: Callable[[DeviceFacts], int], absent: int = 0) -> NDArray[np.int64]:
        """A fact about each card, looked up once per kind of node."""
        facts = self._table.facts.get(name)
        if facts is None:
            device_sets = self._table.device_sets
            facts = np.full(
                (len(device_sets), max((len(kit.cards) for kit in device_sets), default=1) or 1),
                absent,
                dtype=np.int64,
            )
            for device_set in device_sets:
                facts[device_set.code, : len(device_set.cards)] = [of(card) for card in device_set.cards]
            self._table.facts[name] = facts
        return facts[self._kits, : self._width]

    @cached_property
    def exists(self) -> BoolArray:
        return self._spread("exists", lambda card: int(card.known)) > 0

    @cached_property
    def index(self) -> IntArray:
        return self._spread("index", lambda card: card.device.index, -1)

    @cached_property
    def resource(self) -> IntArray:
        return self._spread("resource", lambda card: self._table.resources[card.device.resource])

    @property
    def resources(self) -> Sequence[str]:
        return list(self._table.resources)

    @cached_property
    def model(self) -> IntArray:
        return self._spread("model", lambda card: self._table.models[card.device.model])

    @property
    def models(self) -> Sequence[str]:
        return list(self._table.models)

    @cached_property
    def healthy(self) -> BoolArray:
        return self._spread("healthy", lambda card: int(card.usable)) > 0

    @cached_property
    def memory_mib(self) -> IntArray:
        return self._spread("memory_mib", lambda card: card.device.memory_mib)

    @cached_property
    def numa(self) -> IntArray:
        return self._spread("numa", lambda card: card.device.numa, -1)

    @cached_property
    def link_group(self) -> IntArray:
        return self._spread("link_group", lambda card: card.device.link_group, -1)

    # ------------------------------------------------------------------ what is taken

    @cached_property
    def _sums(self) -> NDArray[np.int64]:
        """Per card what counts as taken; of :data:`PLACES` see :meth:`_masks`."""
        held, leaving, kept = (self._cells[:, :, at * FIELDS : (at + 1) * FIELDS] for at in range(3))
        after = held - leaving + kept
        return after if self._later else np.maximum(held, after)

    @cached_property
    def _masks(self) -> NDArray[np.int64]:
        held, leaving, kept = (self._cells[:, :, at * FIELDS + PLACES] for at in range(3))
        staying = held - leaving if self._later else held
        flat = [
            covered(a) | covered(b)
            for a, b in zip(staying.ravel().tolist(), kept.ravel().tolist(), strict=True)
        ]
        return np.array(flat, dtype=np.int64).reshape(held.shape)

    @cached_property
    def _shareable(self) -> BoolArray:
        return self.healthy & (self._cells[:, :, TAKEN] == 0)

    @cached_property
    def free_milli(self) -> IntArray:
        sums = self._sums
        plain = self._shareable & (sums[:, :, SLICES] == 0)
        plain &= self._spread("counted", lambda card: int(card.counted), 1) > 0
        return np.where(plain, np.maximum(WHOLE - sums[:, :, MILLI], 0), 0)

    @cached_property
    def free_mib(self) -> IntArray:
        sums, memory = self._sums, self.memory_mib
        free = np.maximum(memory - sums[:, :, MIB], 0)
        sliced = (sums[:, :, SLICES] > 0) | (self._spread("counted", lambda card: int(card.counted), 1) == 0)
        if sliced.any():
            size = np.maximum(
                self._spread("size", lambda card: card.geometry.size if card.geometry else 0), 1
            )
            left = size - np.bitwise_count(self._masks).astype(np.int64)
            free = np.where(sliced, memory * np.maximum(left, 0) // size, free)
        return np.where(self._shareable, free, 0)

    @cached_property
    def sharers(self) -> IntArray:
        return self._sums[:, :, SHARES] + self._sums[:, :, SLICES]


def _width(cards: ShareTable) -> NDArray[np.int64]:
    """How many cards each kit has."""
    found = cards.facts.get("")
    if found is None:
        found = cards.facts[""] = np.array(
            [len(device_set.cards) for device_set in cards.device_sets], dtype=np.int64
        )
    return found

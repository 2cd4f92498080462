"""The five policies that FGD was compared with (Weng et al., USENIX ATC 2023), in its own words and rounding.

All are for pods that ask for devices of one node, whole or one part of a device, and never leave; on equal points
the first node by name wins. ``FIT`` chooses the device: the fullest that takes the part.

* ``DotProd``: ``⌊100·(1 − (c·C/Cmax² + g·G/Gmax²)/2)⌋``, lower-case what is asked for, upper-case what is free.
* ``BestFit``: ``⌊100·(1 − (C'/Cmax + G'/Gmax)/2)⌋``, of what is left afterwards.
* ``GpuPacking``: a part on a device that is in use: 100 less the tenths of it that are free; a free device of a node
  in use: 50 less the free devices taken; an idle node: ``max(33 − n, n)``, ``n`` being its devices.
* ``GpuClustering``: a node with pods of this kind alone (parts, or 1, 2, 4, 8 devices) 75, among others 50, without
  any 25, of other kinds alone 0; and up to 25 for devices in use.
* ``Random``: any node, any device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from windlass.kits.rng import Random as Chance
from windlass.plugins.devices.device_arrays import WHOLE, free_milli, request_of, requested_milli
from windlass.plugins.nodes.count_only import CountOnly
from windlass.spi.devices import DeviceNeed
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import Footprint, Trend

LARGEST = (128_000, 8_000)
"""CPU and devices, in milli, of the largest node: what others are measured by."""


def _asked(needs: Needs) -> tuple[int, int]:
    cpu = next((units for name, units in needs.request if name == "cpu"), 0)
    return cpu, sum(need.count * need.milli for need in request_of(needs))


def _free(nodes: NodeView) -> tuple[IntArray, IntArray]:
    return nodes.available("cpu"), free_milli(nodes, nodes.devices()).sum(axis=1)


class TightestCard:
    """``FIT``: for parts of one device."""

    name = "tightest-card"
    weight = 1.0

    def rank(self, needs: Needs, need: DeviceNeed, nodes: NodeView) -> FloatArray | None:
        return None if need.count != 1 else WHOLE - free_milli(nodes, nodes.devices()).astype(np.float64)


class _RowScore:
    footprint = Footprint.ROW
    reads_devices = True
    weight = 1.0

    def __init__(self, largest: tuple[int, int] = LARGEST) -> None:
        self._largest = largest

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY


class DotProd(_RowScore):
    name = "dot-prod"

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        (cpu, cards), (cpu_free, cards_free) = _asked(needs), _free(nodes)
        most_cpu, most_cards = self._largest
        product = (cpu_free * cpu / most_cpu**2 + cards_free * cards / most_cards**2) / 2
        return np.floor(100.0 * (1.0 - product))


class BestFit(_RowScore):
    name = "best-fit"

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        (cpu, cards), (cpu_free, cards_free) = _asked(needs), _free(nodes)
        most_cpu, most_cards = self._largest
        left = ((cpu_free - cpu) / most_cpu + (cards_free - cards) / most_cards) / 2
        return np.clip(np.floor(100.0 * (1.0 - left)), 0.0, 100.0)


class GpuPacking(_RowScore):
    name = "gpu-packing"

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        asked = request_of(needs)
        if not asked:
            return np.zeros(nodes.size)
        cards = nodes.devices()
        free, need = free_milli(nodes, cards), asked[0]
        count = cards.exists.sum(axis=1)
        whole = cards.exists & (free == WHOLE)
        idle = whole.sum(axis=1) == count
        fresh = np.where(idle, np.maximum(33 - count, count), 50 - need.count)
        if need.milli >= WHOLE:
            return fresh.astype(np.float64)
        milli = requested_milli(need, cards)
        opened = (free >= milli) & (free < WHOLE)
        left = np.where(opened, free, WHOLE).min(axis=1, initial=WHOLE)
        return np.where(opened.any(axis=1), 100 - left // (WHOLE // 10), fresh).astype(np.float64)


class GpuClustering(CountOnly):
    """Counts the pods of each kind on each node; serves one engine."""

    name = "gpu-clustering"
    weight = 1.0

    def __init__(self, most_cards: int = LARGEST[1]) -> None:
        self._most = most_cards
        self._kinds: dict[int, int] = {}
        self._hosted: IntArray = np.zeros((0, 0), dtype=np.int64)
        """Row × kind: how many pods of the kind are there."""

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        self._kinds[number] = kind_of(needs)

    def forget(self, number: int) -> None:
        del self._kinds[number]

    def add(self, number: int, row: int, count: int) -> None:
        kind = self._kinds[number]
        if kind:
            rows, kinds = self._hosted.shape
            if row >= rows or kind >= kinds:
                grown = np.zeros((max(rows, 2 * row + 1), max(kinds, kind + 1)), dtype=np.int64)
                grown[:rows, :kinds] = self._hosted
                self._hosted = grown
            self._hosted[row, kind] += count

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return True

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        kind = kind_of(needs)
        if not kind:
            return np.zeros(nodes.size)
        base = np.full(nodes.size, 25.0)
        rows = nodes.rows
        seen = rows < len(self._hosted)
        hosted = self._hosted[rows[seen]] > 0
        mine = hosted[:, kind] if kind < hosted.shape[1] else np.zeros(len(hosted), dtype=np.bool_)
        alone = np.where(hosted.sum(axis=1) == 1, 75.0, 50.0)
        base[seen] = np.where(hosted.any(axis=1), np.where(mine, alone, 0.0), 25.0)
        free = free_milli(nodes, nodes.devices()).sum(axis=1)
        return base + np.floor(25.0 * (self._most - free) / self._most)


def kind_of(needs: Needs) -> int:
    """0 for a pod without devices, 1 for part of a device, 1 + n for n devices."""
    asked: Sequence[DeviceNeed] = request_of(needs)
    if not asked:
        return 0
    return 1 if asked[0].milli < WHOLE else 1 + asked[0].count


class Random:
    """Not pure: each answer is another. ``chance``: of its own."""

    name = "random"
    weight = 1.0

    def __init__(self, chance: Chance) -> None:
        self._chance = np.random.default_rng(chance.randrange(1 << 32))

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return True

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        return 100.0 * self._chance.random(nodes.size)

    def rank(self, needs: Needs, need: DeviceNeed, nodes: NodeView) -> FloatArray | None:
        return self._chance.random(nodes.devices().exists.shape)

"""``fgd``: the node and the card on which a pod leaves the least stranded for those that usually come.

The score is that of :mod:`windlass.plugins.devices.fragmentation`, rounded down to whole points; of nodes with
equal points the first by name is taken, of cards the lowest index. What usually comes is learned from the
pods that exist (:mod:`windlass.plugins.devices.workload_mix`), and shortage of CPU counts too (ADR 0018), unless a mix
is given: then all is as that mix says. A pod that asks for nothing goes where the fewest pods are.

Learned, it stays silent as long as no pod asks for a part of a card: whole cards of one size are packed as
well without it. It also is where any card can be cut into slices: it knows shares alone. A node with cards of
several models counts as one of the first card's model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from windlass.plugins.devices.device_arrays import free_milli, request_of, requested_milli
from windlass.plugins.devices.fragmentation import WorkloadMix, by_model, descent, typical
from windlass.plugins.devices.fragmentation_cache import FragmentationCache
from windlass.plugins.devices.workload_mix import MixLearner, MixSnapshot, demand_of
from windlass.plugins.nodes.binpack import fewest_pods
from windlass.spi.devices import DeviceNeed, DeviceView
from windlass.spi.nodes import FloatArray, IntArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Trend
from windlass.spi.scoring import ClusterTotals, DeviceRanker, DeviceScorer, NodeDevices

SHORT = 4
"""How much a card that will lack CPU counts against one that the next usual pod cannot use."""
STEP = 400
"""So many milli lost more or less are one point: nodes that differ by less are alike, and the first is taken."""


class Fgd(MixLearner):
    name = "fgd"
    footprint = Footprint.ROW
    reads_devices = True

    def __init__(
        self,
        weight: float = 1.0,
        dialects: Collection[Dialect] = tuple(Dialect),
        mix: WorkloadMix | None = None,
        *,
        short: int = SHORT,
        step: int = STEP,
    ) -> None:
        """``mix``: what usually comes, once and for all; without it, that is learned. ``short``, ``step``: of
        the mix that is learned (:class:`WorkloadMix`)."""
        super().__init__()
        self.weight = weight
        self.dialects = dialects
        self._given = mix is not None
        self._short, self._step = short, step
        self._mix = mix
        self._book: FragmentationCache | None = None

    # ------------------------------------------------------------------ what usually comes

    def learn_from(self, now: float, totals: ClusterTotals) -> bool:
        return not self._given and super().learn_from(now, totals)

    def _concerns(self, moment: MixSnapshot) -> bool:
        return self._given or moment.shared

    def _adopt(self, moment: MixSnapshot) -> None:
        if not self._given:
            kinds = typical(dict(moment.pods))
            self._mix = WorkloadMix(kinds, short=self._short, step=self._step) if moment.shared else None

    # ------------------------------------------------------------------ scores

    def trend(self, needs: Needs) -> Trend:
        if not any(units > 0 for _, units in needs.request):
            return Trend.FALLS
        return Trend.RISES if self._mix is None else Trend.ANY

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        if not any(units > 0 for _, units in needs.request):
            return fewest_pods(nodes)
        found = self._points(needs, nodes)
        return None if found is None else np.maximum(found.max(axis=1), 0).astype(np.float64)

    def rank(self, needs: Needs, need: DeviceNeed, nodes: NodeView) -> FloatArray | None:
        """See :class:`~windlass.spi.scoring.DeviceRanks`: of a need of one card, the points of each."""
        asked = request_of(needs)
        if need.count != 1 or len(asked) != 1:
            return None
        found = self._points(needs, nodes)
        return None if found is None else found.astype(np.float64)

    def _points(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        mix = self._mix
        if mix is None or mix.idle:
            return None
        cards = nodes.devices()
        if not cards.exists.shape[1]:
            return None
        asked = request_of(needs)
        cpu, free = nodes.available("cpu"), free_milli(nodes, cards)
        demand = demand_of(needs, self._moment.memory_mib)
        milli = requested_milli(asked[0], cards) if asked else None
        return descent(mix, demand, _groups(mix, cards), cpu, free, milli)

    # ------------------------------------------------------------------ the same about one node

    def plain_devices(self, needs: Needs, resources: Sequence[str]) -> DeviceScorer | None:
        """See :class:`~windlass.spi.scoring.PlainDeviceScore`."""
        if not any(units > 0 for _, units in needs.request):
            pods = resources.index("pods")
            return lambda _, used, __: 100.0 / (1.0 + max(used[pods], 0))
        book, asked = self._book_of(resources), request_of(needs)
        if book is None:
            return None
        best = book.best_of(demand_of(needs, self._moment.memory_mib), asked[0] if asked else None)

        def score(available: Sequence[int], _: Sequence[int], cards: NodeDevices) -> float:
            return float(max(best(available, cards), 0))

        return score

    def plain_rank(self, needs: Needs, need: DeviceNeed, resources: Sequence[str]) -> DeviceRanker | None:
        """See :class:`~windlass.spi.scoring.PlainDeviceRanks`."""
        if need.count != 1 or len(request_of(needs)) != 1:
            return None
        book = self._book_of(resources)
        return book.of(demand_of(needs, self._moment.memory_mib), request_of(needs)[0]) if book else None

    def _book_of(self, resources: Sequence[str]) -> FragmentationCache | None:
        mix, book = self._mix, self._book
        if mix is None or mix.idle:
            return None
        if book is None or book.mix is not mix or book.resources is not resources:
            book = self._book = FragmentationCache(mix, resources)
        return book


def _groups(mix: WorkloadMix, cards: DeviceView) -> IntArray:
    return by_model(mix, cards.model[:, 0], cards.models)

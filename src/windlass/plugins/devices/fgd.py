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
        self._cache: FragmentationCache | None = None

    # ------------------------------------------------------------------ what usually comes

    def learn_from(self, now: float, totals: ClusterTotals) -> bool:
        return not self._given and super().learn_from(now, totals)

    def _concerns(self, snapshot: MixSnapshot) -> bool:
        return self._given or snapshot.shared

    def _adopt(self, snapshot: MixSnapshot) -> None:
        if not self._given:
            kinds = typical(dict(snapshot.pods))
            self._mix = WorkloadMix(kinds, short=self._short, step=self._step) if snapshot.shared else None

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
        requested = request_of(needs)
        if need.count != 1 or len(requested) != 1:
            return None
        found = self._points(needs, nodes)
        return None if found is None else found.astype(np.float64)

    def _points(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        mix = self._mix
        if mix is None or mix.idle:
            return None
        devices = nodes.devices()
        if not devices.exists.shape[1]:
            return None
        requested = request_of(needs)
        cpu, free = nodes.available("cpu"), free_milli(nodes, devices)
        demand = demand_of(needs, self._snapshot.memory_mib)
        milli = requested_milli(requested[0], devices) if requested else None
        return descent(mix, demand, _groups(mix, devices), cpu, free, milli)

    # ------------------------------------------------------------------ the same about one node

    def plain_devices(self, needs: Needs, resources: Sequence[str]) -> DeviceScorer | None:
        """See :class:`~windlass.spi.scoring.PlainDeviceScore`."""
        if not any(units > 0 for _, units in needs.request):
            pods = resources.index("pods")
            return lambda _, used, __: 100.0 / (1.0 + max(used[pods], 0))
        cache, requested = self._cache_of(resources), request_of(needs)
        if cache is None:
            return None
        best = cache.best_of(demand_of(needs, self._snapshot.memory_mib), requested[0] if requested else None)

        def score(available: Sequence[int], _: Sequence[int], devices: NodeDevices) -> float:
            return float(max(best(available, devices), 0))

        return score

    def plain_rank(self, needs: Needs, need: DeviceNeed, resources: Sequence[str]) -> DeviceRanker | None:
        """See :class:`~windlass.spi.scoring.PlainDeviceRanks`."""
        if need.count != 1 or len(request_of(needs)) != 1:
            return None
        cache = self._cache_of(resources)
        return cache.of(demand_of(needs, self._snapshot.memory_mib), request_of(needs)[0]) if cache else None

    def _cache_of(self, resources: Sequence[str]) -> FragmentationCache | None:
        mix, cache = self._mix, self._cache
        if mix is None or mix.idle:
            return None
        if cache is None or cache.mix is not mix or cache.resources is not resources:
            cache = self._cache = FragmentationCache(mix, resources)
        return cache


def _groups(mix: WorkloadMix, devices: DeviceView) -> IntArray:
    return by_model(mix, devices.model[:, 0], devices.models)

"""Score ``fgd``: placement that strands the least capacity for the typical pods.

The score is that of :mod:`windlass.plugins.devices.fragmentation`, rounded down to
whole points. Among nodes with equal points the first by name is taken, among devices
the lowest index. Typical pods are learned from the existing ones
(:mod:`windlass.plugins.devices.workload_mix`), and a shortage of CPU counts too (ADR
0018). If a mix is given, only that mix counts. A pod without any request goes to the
node with the fewest pods.

While it learns, the score is silent in two cases. One: no pod requests a device share,
because whole devices of one size are packed as well without it. Two: a device supports
MIG, because the score knows shares only. A node with devices of several models counts
as one with the first device's model.
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
"""Weight of a device that will lack CPU, relative to one that the next typical pod
cannot use."""
STEP = 400
"""Milli of lost capacity for one point. Nodes that differ by less are equal, and the
first is taken."""


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
        """:param mix: fixed mix of typical pods; ``None``: the mix is learned
        :param short: parameter of the learned mix (:class:`WorkloadMix`)
        :param step: parameter of the learned mix (:class:`WorkloadMix`)"""
        super().__init__()
        self.weight = weight
        self.dialects = dialects
        self._given = mix is not None
        self._short, self._step = short, step
        self._mix = mix
        self._cache: FragmentationCache | None = None

    # ------------------------------------------------------------------ learning

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
        points = self._points(needs, nodes)
        return None if points is None else np.maximum(points.max(axis=1), 0).astype(np.float64)

    def rank(self, needs: Needs, need: DeviceNeed, nodes: NodeView) -> FloatArray | None:
        """Return the points of each device for a need of one device
        (:class:`~windlass.spi.scoring.DeviceRanks`)."""
        requested = request_of(needs)
        if need.count != 1 or len(requested) != 1:
            return None
        points = self._points(needs, nodes)
        return None if points is None else points.astype(np.float64)

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

    # ------------------------------------------------------------------ one node, in plain integers

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

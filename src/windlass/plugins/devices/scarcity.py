"""Score ``scarcity``: the least valuable device model that serves, and CPU for idle devices.

It has two components of 50 points each, on clusters with several device models. On
other clusters it is silent. If devices are shared, stranded capacity decides
(:mod:`windlass.plugins.devices.fgd`), which knows which models each pod accepts. Then
there is no component ``cpu``, and ``model`` has up to 5 whole points for the value of
the models only, so that it decides between nearly equal nodes. It has none if the value
of any model in the cluster is unknown.

* **model**: for pods with devices. The cost of a model is its value (in the table of
  models, relative to the most valuable one of the cluster) or its *demand*, whichever
  is larger. Demand is the number of devices requested by existing pods that accept only
  some of the models, divided by the number of devices of these models. So a pod that
  accepts any model leaves the scarce ones to other pods.
* **cpu**: for pods that request more CPU per device than is usual in the cluster, and
  for those without any device. It is the share of a node's idle devices that keep
  enough CPU after placing the pod, by the mean CPU request per device. A node without
  devices has all points for a pod without any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from windlass.plugins.devices.device_arrays import WHOLE, free_milli, request_of
from windlass.plugins.devices.fragmentation import PodDemand
from windlass.plugins.devices.free_share_cache import FreeShareCache
from windlass.plugins.devices.workload_mix import MixLearner, MixSnapshot
from windlass.spi.accelerators import known
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Trend
from windlass.spi.scoring import DeviceScorer, NodeDevices

MODEL, CPU = "model", "cpu"
POINTS = 50.0
POINTS_OF_SHARES = 5


class Scarcity(MixLearner):
    name = "scarcity"
    footprint = Footprint.ROW
    reads_devices = True

    def __init__(self, weight: float = 1.0, dialects: Collection[Dialect] = tuple(Dialect)) -> None:
        super().__init__()
        self.weight = weight
        self.dialects = dialects
        self._costs: Mapping[str, float] = {}
        self._mute = False
        """True if devices are shared and the value of a model is unknown."""
        self._cpu_per_card = 0.0
        self._open: FreeShareCache | None = None

    def _concerns(self, snapshot: MixSnapshot) -> bool:
        return snapshot.mixed

    @property
    def silent(self) -> bool:
        """True while the score has no opinion (see :mod:`windlass.spi.scoring`)."""
        return super().silent or self._mute

    def _adopt(self, snapshot: MixSnapshot) -> None:
        self._costs = costs(snapshot)
        self._mute = snapshot.shared and not any(self._costs.values())
        self._cpu_per_card = cpu_per_device(snapshot)

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY if self._heavy(needs) else Trend.RISES

    def _heavy(self, needs: Needs) -> bool:
        """Return whether a pod requests more CPU per device than usual. Without devices: any CPU."""
        if self._snapshot.shared:
            return False
        cpu = next((units for name, units in needs.request if name == "cpu"), 0)
        devices = sum(need.count * max(need.milli, 1) for need in request_of(needs))
        return bool(self._cpu_per_card) and cpu * WHOLE > devices * self._cpu_per_card

    def _model_points(self, cost: float) -> float:
        if self._snapshot.shared:
            return float(round(POINTS_OF_SHARES * (1.0 - cost)))
        return POINTS * (1.0 - cost)

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        components = self.parts(needs, nodes)
        return (
            sum((points for _, points in components.values()), np.zeros(nodes.size)) if components else None
        )

    def plain_devices(self, needs: Needs, resources: Sequence[str]) -> DeviceScorer | None:
        """See :class:`~windlass.spi.scoring.PlainDeviceScore`."""
        requested, heavy = request_of(needs), self._heavy(needs)
        if self.silent or not (requested or heavy):
            return None
        cpu = next((units for name, units in needs.request if name == "cpu"), 0)
        taken = sum(need.count * max(need.milli, 1) for need in requested)
        each, prices, free_shares = self._cpu_per_card / WHOLE, self._costs, self._open_milli(resources)

        def score(available: Sequence[int], _: Sequence[int], devices: NodeDevices) -> float:
            total = 0.0
            if requested:
                models = devices.kinds.models
                total += self._model_points(prices.get(models[0] if models else "", 0.0))
            if heavy:
                wanted = max(sum(free_shares.of(available, devices)) - taken, 0) * each
                left = max((available[free_shares.cpu] if free_shares.cpu >= 0 else 0) - cpu, 0)
                total += POINTS * (min(left / max(wanted, 1.0), 1.0) if wanted > 0 else 1.0)
            return total

        return score

    def _open_milli(self, resources: Sequence[str]) -> FreeShareCache:
        """Return the cache that all classes of pods share."""
        if self._open is None or self._open.resources is not resources:
            self._open = FreeShareCache(resources)
        return self._open

    def parts(self, needs: Needs, nodes: NodeView) -> Mapping[str, tuple[float, FloatArray]]:
        """Return component → its weight and its points, up to 50 each."""
        if self.silent:
            return {}
        devices = nodes.devices()
        components: dict[str, tuple[float, FloatArray]] = {}
        if request_of(needs):
            points = np.array([self._model_points(self._costs.get(name, 0.0)) for name in devices.models])
            components[MODEL] = (self.weight, points[devices.model[:, 0]])
        if self._heavy(needs):
            cpu = next((units for name, units in needs.request if name == "cpu"), 0)
            idle = free_milli(nodes, devices).sum(axis=1) - sum(
                need.count * max(need.milli, 1) for need in request_of(needs)
            )
            wanted = np.maximum(idle, 0) * (self._cpu_per_card / WHOLE)
            left = np.maximum(nodes.available("cpu") - cpu, 0)
            components[CPU] = (
                self.weight,
                POINTS * np.where(wanted > 0, np.minimum(left / np.maximum(wanted, 1.0), 1.0), 1.0),
            )
        return components


def costs(snapshot: MixSnapshot) -> dict[str, float]:
    """Return the cost of each model from 0 to 1: the larger of its value and its demand.

    If devices are shared, the cost is the value, or 0 unless all values are known.
    """
    values = {name: entry.value if (entry := known(name)) else 0 for name, _ in snapshot.models}
    dearest = max(values.values(), default=0)
    if snapshot.shared:
        by_worth = bool(dearest) and all(values.values())
        return {name: value / dearest if by_worth else 0.0 for name, value in values.items()}
    wanted = demand_by_model(snapshot)
    return {name: max(values[name] / dearest if dearest else 0.0, wanted.get(name, 0.0)) for name in values}


def demand_by_model(snapshot: MixSnapshot) -> dict[str, float]:
    """Return for each model the demand of pods that accept only some of the models, 1 at most.

    Demand is the number of requested devices, over the number of devices of these
    models.
    """
    devices = dict(snapshot.models)
    demand_of = dict.fromkeys(devices, 0.0)
    for demand, number in snapshot.pods:
        if demand.count and (demand.models or demand.models_not):
            for name, share in _spread(demand, number, devices).items():
                demand_of[name] = min(1.0, demand_of[name] + share)
    return demand_of


def _spread(demand: PodDemand, number: int, devices: Mapping[str, int]) -> dict[str, float]:
    allowed = [name for name in devices if demand.allows(name)]
    if len(allowed) == len(devices):
        return {}
    available = sum(devices[name] for name in allowed)
    return {name: number * demand.count * demand.milli / WHOLE / available for name in allowed}


def cpu_per_device(snapshot: MixSnapshot) -> float:
    """Return the mean CPU request (milli) per whole device; 0 if no pod requests devices."""
    cpu = sum(demand.cpu * number for demand, number in snapshot.pods if demand.count)
    devices = sum(demand.count * demand.milli * number for demand, number in snapshot.pods if demand.count)
    return cpu * WHOLE / devices if devices else 0.0

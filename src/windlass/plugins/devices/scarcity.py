"""``scarcity``: the least precious card that serves, and no idle cards without CPU beside them.

Two parts of 50 points each, on clusters with more than one model of cards; else it is silent. Where cards are
shared, what would be stranded decides (:mod:`windlass.plugins.devices.fgd`), which knows who takes which models: then
there is no part ``cpu``, and ``model`` has 5 whole points for what the models are worth alone, so that it decides
between nodes which are nearly alike; it has none if the worth of any model of the cluster is unknown.

* **model**: for pods with accelerators. A model costs what it is worth (its value in the table of models,
  against the most valuable one of the cluster) and how much it is *wanted*: of the pods that exist, how many
  cards those ask for that take only some of the models, over the cards of these models. The dearer of the two
  counts. So a pod that could go anywhere keeps off what others cannot do without.
* **cpu**: for pods that ask for more CPU than is usual here beside their cards, those without any card among
  them: the part of a node's idle cards that keeps enough CPU once
  the pod is there, by the CPU that pods of the cluster usually ask for beside a card. A node without cards
  has all points for a pod without any.
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
        """Whether cards are shared and nothing is known of what they are worth."""
        self._cpu_per_card = 0.0
        self._open: FreeShareCache | None = None

    def _concerns(self, snapshot: MixSnapshot) -> bool:
        return snapshot.mixed

    @property
    def silent(self) -> bool:
        """See :mod:`windlass.spi.scoring`."""
        return super().silent or self._mute

    def _adopt(self, snapshot: MixSnapshot) -> None:
        self._costs = costs(snapshot)
        self._mute = snapshot.shared and not any(self._costs.values())
        self._cpu_per_card = cpu_per_device(snapshot)

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY if self._heavy(needs) else Trend.RISES

    def _heavy(self, needs: Needs) -> bool:
        """Whether it asks for more CPU beside its cards than is usual here; without cards, for any."""
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
        found = self.parts(needs, nodes)
        return sum((points for _, points in found.values()), np.zeros(nodes.size)) if found else None

    def plain_devices(self, needs: Needs, resources: Sequence[str]) -> DeviceScorer | None:
        """See :class:`~windlass.spi.scoring.PlainDeviceScore`."""
        requested, heavy = request_of(needs), self._heavy(needs)
        if self.silent or not (requested or heavy):
            return None
        cpu = next((units for name, units in needs.request if name == "cpu"), 0)
        taken = sum(need.count * max(need.milli, 1) for need in requested)
        each, prices, open_milli = self._cpu_per_card / WHOLE, self._costs, self._open_milli(resources)

        def score(available: Sequence[int], _: Sequence[int], devices: NodeDevices) -> float:
            total = 0.0
            if requested:
                models = devices.kinds.models
                total += self._model_points(prices.get(models[0] if models else "", 0.0))
            if heavy:
                wanted = max(sum(open_milli.of(available, devices)) - taken, 0) * each
                left = max((available[open_milli.cpu] if open_milli.cpu >= 0 else 0) - cpu, 0)
                total += POINTS * (min(left / max(wanted, 1.0), 1.0) if wanted > 0 else 1.0)
            return total

        return score

    def _open_milli(self, resources: Sequence[str]) -> FreeShareCache:
        """One for all kinds of pods."""
        if self._open is None or self._open.resources is not resources:
            self._open = FreeShareCache(resources)
        return self._open

    def parts(self, needs: Needs, nodes: NodeView) -> Mapping[str, tuple[float, FloatArray]]:
        """Name of a part → its weight and its points, up to 50 each."""
        if self.silent:
            return {}
        devices = nodes.devices()
        found: dict[str, tuple[float, FloatArray]] = {}
        if request_of(needs):
            points = np.array([self._model_points(self._costs.get(name, 0.0)) for name in devices.models])
            found[MODEL] = (self.weight, points[devices.model[:, 0]])
        if self._heavy(needs):
            cpu = next((units for name, units in needs.request if name == "cpu"), 0)
            idle = free_milli(nodes, devices).sum(axis=1) - sum(
                need.count * max(need.milli, 1) for need in request_of(needs)
            )
            wanted = np.maximum(idle, 0) * (self._cpu_per_card / WHOLE)
            left = np.maximum(nodes.available("cpu") - cpu, 0)
            found[CPU] = (
                self.weight,
                POINTS * np.where(wanted > 0, np.minimum(left / np.maximum(wanted, 1.0), 1.0), 1.0),
            )
        return found


def costs(snapshot: MixSnapshot) -> dict[str, float]:
    """Model → from 0 to 1: the larger of its worth and of how much it is wanted; where cards are shared, its
    worth, if all are known."""
    values = {name: entry.value if (entry := known(name)) else 0 for name, _ in snapshot.models}
    dearest = max(values.values(), default=0)
    if snapshot.shared:
        by_worth = bool(dearest) and all(values.values())
        return {name: value / dearest if by_worth else 0.0 for name, value in values.items()}
    wanted = demand_by_model(snapshot)
    return {name: max(values[name] / dearest if dearest else 0.0, wanted.get(name, 0.0)) for name in values}


def demand_by_model(snapshot: MixSnapshot) -> dict[str, float]:
    """Model → the cards that pods ask for which take only some of the models, over those there are of these
    models; 1 at most."""
    devices = dict(snapshot.models)
    found = dict.fromkeys(devices, 0.0)
    for demand, number in snapshot.pods:
        if demand.count and (demand.models or demand.models_not):
            for name, share in _spread(demand, number, devices).items():
                found[name] = min(1.0, found[name] + share)
    return found


def _spread(demand: PodDemand, number: int, devices: Mapping[str, int]) -> dict[str, float]:
    allowed = [name for name in devices if demand.allows(name)]
    if len(allowed) == len(devices):
        return {}
    there = sum(devices[name] for name in allowed)
    return {name: number * demand.count * demand.milli / WHOLE / there for name in allowed}


def cpu_per_device(snapshot: MixSnapshot) -> float:
    """The mean CPU (milli) that pods ask for beside each whole card; 0 if none asks for cards."""
    cpu = sum(demand.cpu * number for demand, number in snapshot.pods if demand.count)
    devices = sum(demand.count * demand.milli * number for demand, number in snapshot.pods if demand.count)
    return cpu * WHOLE / devices if devices else 0.0

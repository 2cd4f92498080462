"""The policies of a packing run by name: the plugins that score nodes and devices in the engine.

``windlass`` is what the scheduler does where nothing is configured: it knows nothing beforehand and learns the
mix of pods from those that have arrived. ``fgd`` is the published policy, which knows the mix. Any plugin of the
registry can be named as well: it then counts on top of the default policy, as in a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.kits.rng import Random as Chance
from windlass.plugins.default_node_plugins import packing
from windlass.plugins.devices.device_arrays import free_milli
from windlass.plugins.devices.fgd import Fgd
from windlass.plugins.devices.fragmentation import PodDemand, WorkloadMix, typical
from windlass.plugins.extra_scores import ON_TOP
from windlass.plugins.volcano.nodes.nodeorder import BalancedResource, LeastRequested
from windlass.sim.cluster import GPU
from windlass.sim.policy_list import OF_PACK
from windlass.sim.traces.openb import OpenbPod
from windlass.spi.configuration import PluginOption
from windlass.spi.nodes import FloatArray, IntArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Score, Trend
from windlass_lab.packing.published_policies import (
    BestFit,
    DotProd,
    GpuClustering,
    GpuPacking,
    Random,
    TightestCard,
)

ALL = tuple(Dialect)
Make = Callable[[Sequence[OpenbPod], Chance], list[object]]


@dataclass(frozen=True, slots=True)
class PackingPolicy:
    """``make``: fresh plugins for one engine, from the list of pods (for policies that know the mix) and chance.
    ``learns``: it goes by the pods that have arrived, so they must come one at a time."""

    name: str
    summary: str
    make: Make
    learns: bool = False


class ForAll:
    """A score of another scheduler, for the pods of every queue."""

    footprint = Footprint.ROW

    def __init__(self, score: Score, *, blind: bool = False) -> None:
        """``blind``: what a pod asks of accelerators is kept from it."""
        self.name, self.weight = score.name, score.weight
        self._score, self._blind = score, blind

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        if self._blind:
            needs = Needs(tuple(item for item in needs.request if item[0] in ("cpu", "memory")))
        return self._score.score(needs, nodes)


class MostAllocated:
    """kube-scheduler's: the weighted mean of ⌊100·(used + request)/allocatable⌋, rounded down. All resources
    with a weight count, whether the pod asks for them or not; of devices what is used of each, as pods ask for
    parts."""

    name = "most-allocated"
    weight = 1.0
    footprint = Footprint.ROW
    reads_devices = True

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        request = dict(needs.request)
        total: IntArray = np.zeros(nodes.size, dtype=np.int64)
        for resource, weight in self._weights.items():
            used = _used_of_cards(nodes) if resource == GPU else nodes.used(resource)
            after = used + request.get(resource, 0)
            total += weight * (100 * after // np.maximum(nodes.allocatable(resource), 1))
        return (total // sum(self._weights.values())).astype(np.float64)


def _used_of_cards(nodes: NodeView) -> IntArray:
    """Return the used capacity of the devices of each node; a shared device counts by its used share."""
    used: IntArray = nodes.allocatable(GPU) - free_milli(nodes, nodes.devices()).sum(axis=1)
    return used


def mix_of(pods: Sequence[OpenbPod]) -> WorkloadMix:
    """The typical pods of a list."""
    kinds: dict[PodDemand, int] = {}
    for pod in pods:
        kind = PodDemand(pod.cpu_milli, pod.gpu_milli if pod.gpus else 0, pod.gpus, pod.gpu_models)
        kinds[kind] = kinds.get(kind, 0) + 1
    return WorkloadMix(typical(kinds))


def _default(*more: object) -> list[object]:
    return [*packing(ALL), *more]


_MAKES: Mapping[str, Make] = {
    "windlass": lambda *_: _default(),
    "fgd": lambda pods, _: [Fgd(mix=mix_of(pods))],
    "bestfit": lambda *_: [BestFit(), TightestCard()],
    "packing": lambda *_: [GpuPacking(), TightestCard()],
    "clustering": lambda *_: [GpuClustering(), TightestCard()],
    "dotprod": lambda *_: [DotProd(), TightestCard()],
    "random": lambda _, chance: [Random(chance)],
    "kube": lambda *_: [
        ForAll(LeastRequested(), blind=True),
        ForAll(BalancedResource(), blind=True),
        TightestCard(),
    ],
    "kube-most": lambda *_: [MostAllocated({"cpu": 1, "memory": 1, GPU: 5}), TightestCard()],
    "spread": lambda *_: packing(ALL, spread=True),
}

PACK_POLICIES: Mapping[str, PackingPolicy] = {
    name: PackingPolicy(name, listed.summary, _MAKES[name], learns=name == "windlass")
    for name, listed in OF_PACK.items()
}


def pack_policy(name: str) -> PackingPolicy | None:
    """The policy of a name; of a plugin, the default policy with that on top. ``None`` if there is none."""
    if name in PACK_POLICIES:
        return PACK_POLICIES[name]
    if name not in ON_TOP:
        return None
    return PackingPolicy(
        name,
        f"the default policy with {name} on top",
        lambda *_: _default(*ON_TOP[name](PluginOption(name), ALL)),
        learns=True,
    )


def names() -> list[str]:
    """Every name that :func:`pack_policy` knows."""
    return list(dict.fromkeys((*PACK_POLICIES, *ON_TOP)))

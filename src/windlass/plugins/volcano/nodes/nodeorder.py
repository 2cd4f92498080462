"""Volcano's ``nodeorder``: weighted sum of the scores of kube-scheduler.

Every part returns kube-scheduler's integers from 0 to 100. A pod without a request
counts as 100m CPU and 200 MiB of memory, as in kube-scheduler; on the nodes the real
requests count.
"""

from __future__ import annotations

import numpy as np

from windlass.plugins.argument_values import Arguments, number
from windlass.plugins.dialects import VOLCANO
from windlass.plugins.nodes.pod_affinity import PodAffinity, PreferredPodAffinity
from windlass.plugins.nodes.preferred_nodes import PreferredNodes, SoftTaints
from windlass.plugins.nodes.topology_spread import SoftTopologySpread, TopologySpread
from windlass.plugins.volcano.nodes.image_locality import ImageLocality
from windlass.spi.nodes import FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import Footprint, Trend

ASSUMED = {"cpu": 100, "memory": 200 << 20}
"""Request of a pod without one (kube-scheduler's ``DefaultMilliCPURequest``, …)."""
BALANCED = ("cpu", "memory", "nvidia.com/gpu")


class LeastRequested:
    """Score: mean over CPU and memory of ⌊100·(allocatable − used −
    request)/allocatable⌋, rounded down."""

    name = "leastrequested"
    footprint = Footprint.ROW
    dialects = VOLCANO

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def trend(self, needs: Needs) -> Trend:
        return Trend.FALLS

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return _mean(needs, nodes, most=False)


class MostRequested:
    """Score: mean over CPU and memory of ⌊100·(used + request)/allocatable⌋, rounded down."""

    name = "mostrequested"
    footprint = Footprint.ROW
    dialects = VOLCANO

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return _mean(needs, nodes, most=True)


class BalancedResource:
    """Score ⌊100·(1 − σ)⌋ of the shares in use of CPU, memory and, if requested, GPUs."""

    name = "balancedresource"
    footprint = Footprint.ROW
    dialects = VOLCANO

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        request = dict(needs.request)
        shares = []
        there = []
        for resource in BALANCED:
            units = request.get(resource, 0)
            if not units and resource not in ASSUMED:
                continue
            allocatable = nodes.allocatable(resource)
            after = nodes.used(resource) + units
            there.append(allocatable > 0)
            shares.append(np.minimum(after / np.maximum(allocatable, 1), 1.0) * there[-1])
        known = np.maximum(np.sum(there, axis=0), 1)
        mean = np.sum(shares, axis=0) / known
        spread = np.sum([(s - mean) ** 2 * t for s, t in zip(shares, there, strict=True)], axis=0) / known
        return np.floor(100.0 * (1.0 - np.sqrt(spread)) + 1e-9)


def _mean(needs: Needs, nodes: NodeView, *, most: bool) -> FloatArray:
    request = dict(needs.request)
    total: IntArray = np.zeros(nodes.size, dtype=np.int64)
    known: IntArray = np.zeros(nodes.size, dtype=np.int64)
    for resource, assumed in ASSUMED.items():
        allocatable = nodes.allocatable(resource)
        after = np.minimum(nodes.used(resource) + (request.get(resource, 0) or assumed), allocatable)
        part = after if most else allocatable - after
        total += 100 * part // np.maximum(allocatable, 1)
        known += allocatable > 0
    return (total // np.maximum(known, 1)).astype(np.float64)


def build(arguments: Arguments, affinity: PodAffinity, spread: TopologySpread) -> list[object]:
    """Return the scores with a weight other than 0.

    :param affinity: the engine's policy that counts pods by affinity term
    :param spread: the engine's policy that counts pods by topology domain
    """

    def weight(name: str, default: float) -> float:
        return max(0.0, number(arguments, f"{name}.weight", default))

    parts: list[LeastRequested | MostRequested | BalancedResource | PreferredNodes | SoftTaints] = [
        LeastRequested(weight("leastrequested", 1)),
        MostRequested(weight("mostrequested", 0)),
        BalancedResource(weight("balancedresource", 1)),
        PreferredNodes(weight("nodeaffinity", 2), VOLCANO),
        SoftTaints(weight("tainttoleration", 3), VOLCANO),
    ]
    counting: list[PreferredPodAffinity | SoftTopologySpread | ImageLocality] = [
        ImageLocality(weight("imagelocality", 1)),
        PreferredPodAffinity(affinity, weight("podaffinity", 2), VOLCANO),
        SoftTopologySpread(spread, weight("podtopologyspread", 2), VOLCANO),
    ]
    return [part for part in (*parts, *counting) if part.weight > 0]

"""Score that prefers the node with the most free resources."""

from __future__ import annotations

from collections.abc import Collection

from windlass.plugins.nodes.binpack import ORDINARY, fewest_pods, filled
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Trend
from windlass.spi.quantities import is_device


class Spread:
    """Score of 100 · (1 - share in use after placing the task), the opposite of binpack.

    The share is that of the node's devices if the task requests any, otherwise that of
    CPU and memory. It replaces :class:`~windlass.plugins.nodes.binpack.Binpack`.
    """

    name = "spread"
    footprint = Footprint.ROW

    def __init__(self, weight: float = 1.0, dialects: Collection[Dialect] = tuple(Dialect)) -> None:
        self.weight = weight
        self.dialects = dialects

    def trend(self, needs: Needs) -> Trend:
        return Trend.FALLS

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        request = {resource: units for resource, units in needs.request if units > 0}
        devices = {resource: units for resource, units in request.items() if is_device(resource)}
        ordinary = {resource: request[resource] for resource in ORDINARY if resource in request}
        if not devices and not ordinary:
            return fewest_pods(nodes)
        return 100.0 * (1.0 - filled(devices or ordinary, nodes))

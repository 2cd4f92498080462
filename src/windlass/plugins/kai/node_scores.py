"""KAI's node scores: decimal weights give its policies a strict order.

Affinity counts 10⁶, free capacity over releasing capacity 10³ (part of the engine), the
kind of node 10, the packing density 0 to 9. Weights apply to 100 points: 0.09 stands
for 9.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.plugins.dialects import KAI
from windlass.plugins.nodes.binpack import DeviceColumns
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import Footprint, PlainScorer, Trend
from windlass.spi.quantities import is_device

AFFINITY = 1e6
KIND = 0.1
PACKED = 0.09
SPREAD = 0.01
SPAN = 1 << 22
"""Scale of packing: more free milli-units than any node has (4 000 cores).

KAI scales between the fullest and the emptiest candidate. No other policy counts less
than 10, so the order is the same.
"""


class NodeKind:
    """Score of 10 points for a node without devices if the pod requests none."""

    name = "resourcetype"
    footprint = Footprint.ROW
    dialects = KAI
    weight = KIND

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        if any(units > 0 and is_device(resource) for resource, units in needs.request):
            return None
        devices = np.zeros(nodes.size, dtype=np.bool_)
        for resource in nodes.resources():
            if is_device(resource):
                devices |= nodes.allocatable(resource) > 0
        return np.where(devices, 0.0, 100.0)

    def plain(self, needs: Needs, resources: Sequence[str]) -> PlainScorer | None:
        if any(units > 0 and is_device(resource) for resource, units in needs.request):
            return None
        devices = DeviceColumns(resources)
        return lambda has, _, __: 0.0 if any([has[at] > 0 for at in devices.now()]) else 100.0


class Density:
    """Score by packing density of one resource: a device if the pod requests one,
    otherwise CPU.

    The fullest node gets up to 9 points, or the emptiest up to 1. Releasing capacity
    counts as free.

    :param devices: for pods with devices, otherwise for pods without
    :param pack: prefer full nodes, otherwise empty ones
    """

    footprint = Footprint.ROW
    dialects = KAI

    def __init__(self, *, devices: bool, pack: bool) -> None:
        self.name = f"nodeplacement-{'gpu' if devices else 'cpu'}"
        self.weight = PACKED if pack else SPREAD
        self._devices = devices
        self._pack = pack

    def trend(self, needs: Needs) -> Trend:
        resource = self._resource(needs)
        if resource is None or self._pack:
            return Trend.RISES
        return Trend.FALLS

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        resource = self._resource(needs)
        if resource is None:
            return None
        allocatable = nodes.allocatable(resource)
        free = np.maximum(allocatable - nodes.used(resource) + nodes.releasing(resource), 0)
        if self._pack:
            return np.where(allocatable > 0, 100.0 * (1.0 - np.minimum(free, SPAN) / SPAN), 0.0)
        return 100.0 * np.minimum(free / np.maximum(allocatable, 1), 1.0)

    def plain(self, needs: Needs, resources: Sequence[str]) -> PlainScorer | None:
        resource = self._resource(needs)
        if resource is None:
            return None
        column, pack = -1, self._pack

        def density(allocatable: Sequence[int], used: Sequence[int], releasing: Sequence[int]) -> float:
            nonlocal column
            if column < 0:
                if resource not in resources:
                    return 0.0  # no node has this resource yet
                column = resources.index(resource)
            whole = allocatable[column]
            free = max(whole - used[column] + releasing[column], 0)
            if pack:
                return 100.0 * (1.0 - min(free, SPAN) / SPAN) if whole > 0 else 0.0
            return 100.0 * min(free / max(whole, 1), 1.0)

        return density

    def _resource(self, needs: Needs) -> str | None:
        requested = [resource for resource, units in needs.request if units > 0 and is_device(resource)]
        if bool(requested) != self._devices:
            return None
        return requested[0] if requested else "cpu"


def build(*, gpu: str = "binpack", cpu: str = "binpack") -> list[object]:
    """Return the scores for the strategies ``binpack`` or ``spread``.

    Raises ``ValueError`` for another strategy.
    """
    for strategy in (gpu, cpu):
        if strategy not in ("binpack", "spread"):
            raise ValueError(f"nodeplacement is binpack or spread, not {strategy!r}")
    return [
        NodeKind(),
        Density(devices=True, pack=gpu == "binpack"),
        Density(devices=False, pack=cpu == "binpack"),
    ]

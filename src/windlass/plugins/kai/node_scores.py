"""KAI's node scores: a sum of decades, so that its policies form a strict order.

Affinity counts 10⁶, free now before being vacated 10³ (the engine's business), the kind of node 10, the
density of packing 0 to 9. Here a weight is that of 100 points: 0.09 stands for 9.
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
"""More free milli-units than any node has (4 000 cores): packing is scaled by it. KAI scales between the
fullest and the emptiest candidate; as no other policy has a say below 10, the order is the same."""


class NodeKind:
    """10 points for a node without devices to a pod that asks for none."""

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
    """Up to 9 points for the fullest node, or up to 1 for the emptiest, by one resource: devices for a pod
    with any, else cpu. What is being vacated counts as free. ``devices`` says which of the two pods it is
    for; ``pack`` or spread."""

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
                    return 0.0  # a pod that does not ask for any: no node has said yet how much it has
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
    """``gpu`` and ``cpu``: ``binpack`` or ``spread``. Raises ``ValueError`` for another strategy."""
    for strategy in (gpu, cpu):
        if strategy not in ("binpack", "spread"):
            raise ValueError(f"nodeplacement is binpack or spread, not {strategy!r}")
    return [
        NodeKind(),
        Density(devices=True, pack=gpu == "binpack"),
        Density(devices=False, pack=cpu == "binpack"),
    ]

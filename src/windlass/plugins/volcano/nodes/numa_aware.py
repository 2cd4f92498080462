"""Volcano's ``numa-aware``: pods with a NUMA policy prefer nodes with the fewest NUMA
zones in use.

Whether a node's NUMA zones fit the pod is tested with or without the plugin, as the
node would refuse it. The score is Volcano's: from 100 for the fewest zones down to 0
for the most of any candidate node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from windlass.plugins.argument_values import number
from windlass.plugins.numa.plugin import NumaZones
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.numa import AlignmentPolicy
from windlass.spi.objects import Dialect, Needs

BEST = 100.0


class NumaAware:
    name = "numa-aware"

    def __init__(self, zones: NumaZones, weight: float, dialects: Collection[Dialect]) -> None:
        self._zones = zones
        self.weight = weight
        self.dialects = frozenset(dialects)

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        requested = needs.zones
        return (
            requested is not None
            and requested.guaranteed
            and requested.policy not in (None, AlignmentPolicy.NONE)
            and self._zones.constrains(number)
        )

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        used = np.zeros(len(candidates))
        for index in np.flatnonzero(candidates).tolist():
            used[index] = self._zones.zones_used(number, int(nodes.rows[index]))
        most = used.max(initial=0.0)
        return BEST - BEST * used / most if most else np.full(len(candidates), BEST)


def build(arguments: Mapping[str, Any], zones: NumaZones) -> NumaAware:
    """Return the score; ``weight`` is 1 by default."""
    return NumaAware(zones, float(number(arguments, "weight", 1)), (Dialect.VOLCANO,))

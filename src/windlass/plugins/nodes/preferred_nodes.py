"""Preferred node affinity and soft taints as kube-scheduler scores them: scaled over the candidates.

Windlass' own scores of the same wishes (``node_affinity``, ``taints``) look at one node alone.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from windlass.plugins.nodes.label_masks import term_mask
from windlass.plugins.nodes.taints import SOFT, tolerates
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs, Taint


class PreferredNodes:
    """The weights of the preferred terms that the node satisfies, the best candidate having 100."""

    def __init__(self, weight: float, dialects: Collection[Dialect]) -> None:
        self.name = "nodeaffinity"
        self.weight = weight
        self.dialects = dialects
        self.outranks_vacancy = False

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return bool(needs.preferred_nodes)

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        raw = np.zeros(nodes.size, dtype=np.int64)
        for preferred in needs.preferred_nodes:
            raw += term_mask(preferred.term, nodes) * preferred.weight
        best = int(raw[candidates].max())
        return (100 * raw // best if best > 0 else np.zeros_like(raw)).astype(np.float64)


class SoftTaints:
    """The fewer soft taints the pod does not tolerate, the better; the worst candidate has 0."""

    name = "tainttoleration"

    def __init__(self, weight: float, dialects: Collection[Dialect]) -> None:
        self.weight = weight
        self.dialects = dialects

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return any(_borne(needs, taints) for taints in nodes.taint_sets())

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        counts = np.array([_borne(needs, taints) for taints in nodes.taint_sets()], dtype=np.int64)
        raw = counts[nodes.taints()]
        worst = int(raw[candidates].max())
        return (100 - (100 * raw // worst if worst > 0 else np.zeros_like(raw))).astype(np.float64)


def _borne(needs: Needs, taints: tuple[Taint, ...]) -> int:
    """How many soft taints are not tolerated."""
    return sum(
        taint.effect == SOFT and not any(tolerates(t, taint) for t in needs.tolerations) for taint in taints
    )

"""Scores of preferred node affinity and soft taints as in kube-scheduler.

They are scaled over the candidates. Windlass' own scores of the same preferences
(``node_affinity``, ``taints``) depend on one node only.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from windlass.plugins.nodes.label_masks import term_mask
from windlass.plugins.nodes.taints import SOFT, tolerates
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs, Taint


class PreferredNodes:
    """Score of the preferred terms' weights that a node satisfies; the best candidate has 100."""

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
    """Score that falls with each soft taint that is not tolerated; the worst candidate has 0."""

    name = "tainttoleration"

    def __init__(self, weight: float, dialects: Collection[Dialect]) -> None:
        self.weight = weight
        self.dialects = dialects

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return any(_untolerated(needs, taints) for taints in nodes.taint_sets())

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        counts = np.array([_untolerated(needs, taints) for taints in nodes.taint_sets()], dtype=np.int64)
        raw = counts[nodes.taints()]
        worst = int(raw[candidates].max())
        return (100 - (100 * raw // worst if worst > 0 else np.zeros_like(raw))).astype(np.float64)


def _untolerated(needs: Needs, taints: tuple[Taint, ...]) -> int:
    """Return the number of soft taints that are not tolerated."""
    return sum(
        taint.effect == SOFT and not any(tolerates(t, taint) for t in needs.tolerations) for taint in taints
    )

"""Nodes without the label that a pod is to be spread by take none of it, whatever runs where (so kube-scheduler).

How evenly pods are spread over the others is :mod:`windlass.plugins.nodes.topology_spread`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import Footprint, NodeBlocker


class SpreadLabels:
    name = "spread-labels"
    footprint = Footprint.STATIC

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        keys = _keys(needs)
        return np.logical_and.reduce([nodes.label(key) != 0 for key in keys]) if keys else None

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        return [
            NodeBlocker(Reason.TOPOLOGY_SPREAD_CONFLICT, blocked, detail=f"no label {key}")
            for key in _keys(needs)
            if (blocked := nodes.label(key) == 0).any()
        ]


def _keys(needs: Needs) -> list[str]:
    """The labels that hard constraints spread by."""
    return list(dict.fromkeys(term.topology_key for term in needs.spread if term.hard))

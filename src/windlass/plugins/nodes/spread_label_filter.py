"""Filter of nodes without the labels of hard topology spread constraints.

As in kube-scheduler such a node is never eligible, wherever pods run. How evenly pods
are spread over the other nodes is decided by
:mod:`windlass.plugins.nodes.topology_spread`.
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
    """Return the topology keys of hard constraints."""
    return list(dict.fromkeys(term.topology_key for term in needs.spread if term.hard))

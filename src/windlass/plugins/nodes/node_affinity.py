"""Node selector and node affinity: required as a filter, preferred as a score."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.nodes.label_masks import any_term_mask, describe, expression_mask, term_mask
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Expression, Needs
from windlass.spi.plugins import Footprint, NodeBlocker, Trend


class NodeAffinity:
    """Filter and score of node selector and node affinity.

    Filter: all entries of the selector hold, and at least one of the required terms.

    Score: 100 · the share of the preferred terms' weights that the node satisfies.
    """

    name = "node-affinity"
    footprint = Footprint.STATIC

    def __init__(self, weight: float = 2.0, dialects: Collection[Dialect] = tuple(Dialect)) -> None:
        self.weight = weight
        self.dialects = dialects

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        if not needs.node_selector and needs.node_terms is None:
            return None
        mask = np.ones(nodes.size, dtype=np.bool_)
        for key, value in needs.node_selector:
            mask &= expression_mask(Expression(key, "In", (value,)), nodes)
        if needs.node_terms is not None:
            mask &= any_term_mask(needs.node_terms, nodes)
        return mask

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        blockers = []
        for key, value in needs.node_selector:
            expression = Expression(key, "In", (value,))
            blocked = ~expression_mask(expression, nodes)
            if blocked.any():
                detail = describe(expression) + _taint_hint(key, blocked, nodes)
                blockers.append(NodeBlocker(Reason.NODE_SELECTOR_MISMATCH, blocked, detail=detail))
        if needs.node_terms is not None:
            blocked = ~any_term_mask(needs.node_terms, nodes)
            if blocked.any():
                text = " or ".join(
                    " and ".join(describe(e) for e in (*term.labels, *term.fields)) or "nothing"
                    for term in needs.node_terms
                )
                blockers.append(NodeBlocker(Reason.NODE_AFFINITY_MISMATCH, blocked, detail=text or "nothing"))
        return blockers

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        whole = sum(preferred.weight for preferred in needs.preferred_nodes)
        if whole <= 0:
            return None
        score = np.zeros(nodes.size)
        for preferred in needs.preferred_nodes:
            score += term_mask(preferred.term, nodes) * (100.0 * preferred.weight / whole)
        return score


def _taint_hint(key: str, blocked: BoolArray, nodes: NodeView) -> str:
    """Return a hint at a common mistake: nodes that lack the label have a taint of that name."""
    named = np.array(
        [any(taint.key == key for taint in taints) for taints in nodes.taint_sets()], dtype=np.bool_
    )
    count = int((named[nodes.taints()] & blocked).sum())
    if not count:
        return ""
    subject = "1 node has" if count == 1 else f"{count} nodes have"
    return f"; {subject} a taint {key}, which is not a label"

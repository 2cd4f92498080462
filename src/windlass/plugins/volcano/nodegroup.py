"""Volcano's ``nodegroup``: queues use the groups of nodes that they name.

A node's group is its label ``volcano.sh/nodegroup-name``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.dialects import VOLCANO
from windlass.plugins.volcano.arguments import Arguments, boolean
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs, NodeGroups
from windlass.spi.plugins import Finding, Footprint, Trend

LABEL = "volcano.sh/nodegroup-name"
NONE = NodeGroups()
POINTS = 1.51
"""So that 100 of the score are 151 points: one below zero, and 150."""


class NodeGroupAffinity:
    """A node is open if its group is required or preferred by the pod's queue, or would rather not be
    used; closed if the queue is barred from it. A queue that names no groups uses nodes without one, and
    under ``strict`` none at all.

    The score: 100 for a required group, 50 more for a preferred one (with ``ordered`` the first has 50,
    the later ones less), and less than any other node for one that would rather not be used.
    """

    name = "nodegroup"
    footprint = Footprint.STATIC
    dialects = VOLCANO

    def __init__(
        self, *, strict: bool = True, ordered: bool = False, hierarchy: bool = False, closes: bool = True
    ) -> None:
        """``hierarchy``: a queue that names no groups has those of its nearest ancestor that does.
        ``closes``: whether it is a filter, too."""
        self.weight = POINTS
        self._closes = closes
        self._strict = strict
        self._ordered = ordered
        self._hierarchy = hierarchy

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        if not self._closes or needs.dialect is not Dialect.VOLCANO:
            return None
        groups = self._groups(needs)
        return self._verdicts(groups, nodes)[nodes.label(LABEL)]

    def findings(self, needs: Needs, nodes: NodeView) -> Sequence[Finding]:
        mask = self.filter(needs, nodes)
        if mask is None or mask.all():
            return []
        groups = self._groups(needs)
        named = [*groups.required, *groups.preferred, *groups.anti_preferred]
        allowed = ", ".join(dict.fromkeys(named)) or ("none" if self._strict else "nodes without a group")
        return [Finding(Reason.NODE_RESERVED, ~mask, detail=f"node groups of the queue: {allowed}")]

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        groups = self._groups(needs)
        if groups == NONE:
            return None
        points = [0.0, *(self._points(groups, group) for group in nodes.label_values(LABEL)[1:])]
        return (np.array(points) + 1.0)[nodes.label(LABEL)] / POINTS

    def _groups(self, needs: Needs) -> NodeGroups:
        found = needs.node_groups
        if found is None or (found.inherited and not self._hierarchy):
            return NONE
        return found

    def _verdicts(self, groups: NodeGroups, nodes: NodeView) -> BoolArray:
        names = not (groups.required or groups.preferred or groups.anti_required or groups.anti_preferred)
        verdicts = [names and not self._strict]
        for group in nodes.label_values(LABEL)[1:]:
            wanted = group in groups.required or group in groups.preferred
            verdicts.append((wanted and group not in groups.anti_required) or group in groups.anti_preferred)
        return np.array(verdicts, dtype=np.bool_)

    def _points(self, groups: NodeGroups, group: str) -> float:
        if group in groups.anti_preferred:
            return -1.0
        points = 100.0 if group in groups.required else 0.0
        if group in groups.preferred:
            n = len(groups.preferred)
            at = groups.preferred.index(group) if self._ordered else 0
            points += 50.0 * (n - at) / n
        return points


def build(arguments: Arguments, *, hierarchy: bool = False, closes: bool = True) -> list[NodeGroupAffinity]:
    """``strict`` (true), ``enablePreferredOrder`` (false)."""
    return [
        NodeGroupAffinity(
            closes=closes,
            strict=boolean(arguments, "strict", True),
            ordered=boolean(arguments, "enablePreferredOrder", False),
            hierarchy=hierarchy,
        )
    ]

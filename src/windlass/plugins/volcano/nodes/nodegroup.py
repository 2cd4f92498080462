"""Volcano's ``nodegroup``: queues use the node groups that they name, up to their limits there.

A node's group is its label ``volcano.sh/nodegroup-name``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import Arguments, boolean
from windlass.plugins.dialects import VOLCANO
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs, NodeGroups
from windlass.spi.plugins import Footprint, NodeBlocker, Trend
from windlass.spi.quantities import from_units

LABEL = "volcano.sh/nodegroup-name"
NONE = NodeGroups()
POINTS = 1.51
"""Weight: a score of 100 is 151 points, from -1 to 150."""


class NodeGroupAffinity:
    """Filter and score by the node groups of the pod's queue.

    A node is accepted if the queue requires or prefers its group, or has a preference
    against it. It is excluded if the queue forbids the group. A queue without groups
    uses nodes without one, and under ``strict`` none at all.

    The score is 100 for a required group and 50 more for a preferred one (with
    ``ordered`` the first has 50, later ones less). A group that the queue has a
    preference against scores less than any other node.
    """

    name = "nodegroup"
    footprint = Footprint.STATIC
    dialects = VOLCANO

    def __init__(
        self, *, strict: bool = True, ordered: bool = False, hierarchy: bool = False, closes: bool = True
    ) -> None:
        """:param hierarchy: a queue without groups inherits those of its nearest
            ancestor with groups
        :param closes: filter nodes, too"""
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

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        mask = self.filter(needs, nodes)
        if mask is None or mask.all():
            return []
        groups = self._groups(needs)
        named = [*groups.required, *groups.preferred, *groups.anti_preferred]
        allowed = ", ".join(dict.fromkeys(named)) or ("none" if self._strict else "nodes without a group")
        return [NodeBlocker(Reason.NODE_RESERVED, ~mask, detail=f"node groups of the queue: {allowed}")]

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        groups = self._groups(needs)
        if not (groups.required or groups.preferred or groups.anti_required or groups.anti_preferred):
            return None
        points = [0.0, *(self._points(groups, group) for group in nodes.label_values(LABEL)[1:])]
        return (np.array(points) + 1.0)[nodes.label(LABEL)] / POINTS

    def _groups(self, needs: Needs) -> NodeGroups:
        groups = needs.node_groups
        if groups is None or (groups.inherited and not self._hierarchy):
            return NONE
        return groups

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
            index = groups.preferred.index(group) if self._ordered else 0
            points += 50.0 * (n - index) / n
        return points


class NodeGroupLimits:
    """Filter by a queue's limits on the nodes of a group.

    If a limit is invalid, the queue's pods are placed on no node of any group.
    """

    name = "nodegroup-limits"

    def __init__(self) -> None:
        self._nodes: NodeView | None = None
        self._members: dict[int, tuple[NodeGroups, dict[str, int]]] = {}
        """Class → its queue's node groups, the request of one pod; only with limits."""
        self._held: dict[tuple[str, str], dict[str, int]] = {}
        """(queue, group) → resource → amount."""

    # ------------------------------------------------------------------ updates

    def attach(self, nodes: NodeView) -> None:
        self._nodes = nodes

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        groups = needs.node_groups
        if groups is not None and (groups.limits or groups.limits_unreadable):
            request = {name: units for name, units in needs.request if units > 0}
            self._members[number] = (groups, {"pods": 1, **request})

    def forget(self, number: int) -> None:
        self._members.pop(number, None)

    def add(self, number: int, row: int, count: int) -> None:
        member = self._members.get(number)
        group = self._group(row) if member is not None else ""
        if member is None or not group:
            return
        groups, request = member
        held = self._held.setdefault((groups.queue, group), {})
        for resource, units in request.items():
            held[resource] = held.get(resource, 0) + count * units
            if not held[resource]:
                del held[resource]
        if not held:
            del self._held[groups.queue, group]

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        self._held.clear()
        for number, rows in placed:
            for row, count in rows.items():
                self.add(number, row, count)

    # ------------------------------------------------------------------ queries

    def constrains(self, number: int) -> bool:
        return number in self._members

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        member = self._members.get(number)
        if member is None:
            return None
        lacks = [bool(self._over(*member, group)) for group in nodes.label_values(LABEL)[1:]]
        return ~np.array([False, *lacks], dtype=np.bool_)[nodes.label(LABEL)]

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        if self._nodes is None or number not in self._members:
            return []
        code = int(self._nodes.label(LABEL)[row])
        return [(LABEL, code)] if code else []

    def listens_to(self, number: int) -> Collection[int]:
        member = self._members.get(number)
        if member is None:
            return ()
        return [other for other, (groups, _) in self._members.items() if groups.queue == member[0].queue]

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        groups = needs.node_groups
        if groups is None or not (groups.limits or groups.limits_unreadable):
            return []
        request = {"pods": 1, **{name: units for name, units in needs.request if units > 0}}
        codes, blockers = nodes.label(LABEL), []
        for code, group in enumerate(nodes.label_values(LABEL)):
            over = self._over(groups, request, group) if code else ""
            blocked = codes == code
            if over and blocked.any():
                blockers.append(
                    NodeBlocker(Reason.NODE_RESERVED, blocked, detail=f"node group {group}: {over}")
                )
        return blockers

    def _over(self, groups: NodeGroups, request: Mapping[str, int], group: str) -> str:
        """Return the limit that one more pod would exceed, as text; empty for none."""
        if groups.limits_unreadable:
            return f"the limits of queue {groups.queue} cannot be read"
        held = self._held.get((groups.queue, group), {})
        for resource, limit in dict(groups.limits).get(group, ()):
            if held.get(resource, 0) + request.get(resource, 0) > limit:
                most = from_units(resource, limit)
                return f"queue {groups.queue} may hold {most} {resource} there"
        return ""

    def _group(self, row: int) -> str:
        if self._nodes is None:
            raise RuntimeError("the plugin is not attached to an engine")
        code = int(self._nodes.label(LABEL)[row])
        return self._nodes.label_values(LABEL)[code] if code else ""


def build(arguments: Arguments, *, hierarchy: bool = False, closes: bool = True) -> list[NodeGroupAffinity]:
    """Return the policy for ``strict`` (true) and ``enablePreferredOrder`` (false)."""
    return [
        NodeGroupAffinity(
            closes=closes,
            strict=boolean(arguments, "strict", True),
            ordered=boolean(arguments, "enablePreferredOrder", False),
            hierarchy=hierarchy,
        )
    ]

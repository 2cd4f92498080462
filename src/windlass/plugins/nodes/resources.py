"""A node takes as many tasks as its free amounts allow, of every resource the task asks for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import NodeBlocker

PODS = "pods"


class ResourcesFit:
    """Any resource name; a node without it has 0. Every task also takes one of ``pods``."""

    name = "resources"
    resources_only = True
    """The engine may count by itself (see :class:`~windlass.spi.plugins.Capacity`)."""

    def capacity(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        count: IntArray | None = None
        for resource, units in _request(needs):
            here = np.maximum(nodes.available(resource), 0) // units
            count = here if count is None else np.minimum(count, here)
        return count

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        found = []
        for resource, units in _request(needs):
            available = nodes.available(resource)
            blocked = available < units
            if blocked.any():
                code = Reason.TOO_MANY_PODS if resource == PODS else Reason.INSUFFICIENT_RESOURCES
                found.append(NodeBlocker(code, blocked, resource, units, available))
        return found


def _request(needs: Needs) -> list[tuple[str, int]]:
    request = {resource: units for resource, units in needs.node_request if units > 0}
    request[PODS] = max(1, request.get(PODS, 0))
    return sorted(request.items())

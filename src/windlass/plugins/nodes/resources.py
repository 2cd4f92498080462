"""Filter of nodes by free amounts of all requested resources."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import NodeBlocker

PODS = "pods"


class ResourcesFit:
    """Number of tasks that fit into a node's free resources.

    Any resource name is valid, and a node without it has 0 of it. Every task also takes
    one of ``pods``.
    """

    name = "resources"
    resources_only = True
    """The engine may compute it by itself (see :class:`~windlass.spi.plugins.Capacity`)."""

    def capacity(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        count: IntArray | None = None
        for resource, units in _request(needs):
            fits = np.maximum(nodes.available(resource), 0) // units
            count = fits if count is None else np.minimum(count, fits)
        return count

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        blockers = []
        for resource, units in _request(needs):
            available = nodes.available(resource)
            blocked = available < units
            if blocked.any():
                code = Reason.TOO_MANY_PODS if resource == PODS else Reason.INSUFFICIENT_RESOURCES
                blockers.append(NodeBlocker(code, blocked, resource, units, available))
        return blockers


def _request(needs: Needs) -> list[tuple[str, int]]:
    request = {resource: units for resource, units in needs.node_request if units > 0}
    request[PODS] = max(1, request.get(PODS, 0))
    return sorted(request.items())

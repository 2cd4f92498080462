"""Filter of nodes that accept no new pods: cordoned, or not ready."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.plugins.nodes.taints import tolerates
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs, Taint
from windlass.spi.plugins import Footprint, NodeBlocker

CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class NodeAvailable:
    """Filter of cordoned nodes and nodes that are not ready.

    As in Kubernetes, a task that tolerates the cordon's taint may go to a cordoned
    node.
    """

    name = "availability"
    footprint = Footprint.STATIC

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        ready = nodes.ready()
        return ready if _ignores_cordon(needs) else ready & ~nodes.unschedulable()

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        blockers = []
        unready = ~nodes.ready()
        if unready.any():
            blockers.append(NodeBlocker(Reason.NODE_NOT_READY, unready))
        cordoned = nodes.unschedulable()
        if cordoned.any() and not _ignores_cordon(needs):
            blockers.append(NodeBlocker(Reason.NODE_UNSCHEDULABLE, cordoned))
        return blockers


def _ignores_cordon(needs: Needs) -> bool:
    return any(tolerates(toleration, CORDON) for toleration in needs.tolerations)

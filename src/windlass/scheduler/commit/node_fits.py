"""Quick check whether a node accepts pods of a shape, apart from its free capacity.

Required affinity is left to the engine, which may reject a pod that passes here. It
never accepts one that fails here.
"""

from __future__ import annotations

from windlass.api import views
from windlass.api.views.podshape import PodShape
from windlass.plugins.nodes.availability import CORDON
from windlass.plugins.nodes.taints import HARD, tolerates
from windlass.spi.objects import Taint, Toleration


def accepts(node: views.NodeObject, shape: PodShape) -> bool:
    """Return whether a node is ready, has the selected labels and only tolerated taints."""
    if node.ready not in ("", "True"):
        return False
    if any(node.labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    taints = [Taint(t.key, t.value, t.effect) for t in node.taints if t.effect in HARD]
    if node.unschedulable:
        taints.append(CORDON)
    if not taints:
        return True
    tolerations = [Toleration(t.key, t.operator, t.value, t.effect) for t in shape.tolerations]
    return all(any(tolerates(each, taint) for each in tolerations) for taint in taints)

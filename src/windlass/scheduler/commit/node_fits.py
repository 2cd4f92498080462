"""Whether a node takes pods of a shape at all, whatever room it has: as far as that is told in one look.

Required affinity is left to the engine: who passes here may still be refused by it, not the other way round.
"""

from __future__ import annotations

from windlass.api import views
from windlass.api.views.podshape import PodShape
from windlass.plugins.nodes.availability import CORDON
from windlass.plugins.nodes.taints import HARD, tolerates
from windlass.spi.objects import Taint, Toleration


def takes(node: views.NodeObject, shape: PodShape) -> bool:
    """Ready, taints and a cordon borne, labels as selected."""
    if node.ready not in ("", "True"):
        return False
    if any(node.labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    taints = [Taint(t.key, t.value, t.effect) for t in node.taints if t.effect in HARD]
    if node.unschedulable:
        taints.append(CORDON)
    if not taints:
        return True
    borne = [Toleration(t.key, t.operator, t.value, t.effect) for t in shape.tolerations]
    return all(any(tolerates(each, taint) for each in borne) for taint in taints)

"""``capability`` by device model: ``nvidia.com/gpu@H100``.

The engine keeps a group's tasks off nodes of models of which its queues may hold no more. Here the group
is told, where no node is left: every node that has the devices is of a model with a limit, and what the
limits leave together is less than the step asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import QueueView, Refusal, StepView, flavor_matches, flavor_of
from windlass.spi.quantities import from_units

PRODUCT = ".product"


class FlavorLimits:
    """Tested at the group's queue and at every ancestor; the node selectors of the step are heeded."""

    name = "flavor-limits"

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Refusal | None:
        for queue in path:
            names = queue.flavored
            if not names:
                continue
            for resource in sorted({flavor_of(name)[0] for name in names}):
                units = step.request.get(resource, 0)
                if units > 0:
                    ours = [name for name in names if flavor_of(name)[0] == resource]
                    refusal = _refusal(queue, resource, units, ours, step, nodes)
                    if refusal is not None:
                        return refusal
        return None


def _refusal(
    queue: QueueView, resource: str, units: int, names: Sequence[str], step: StepView, nodes: NodeView
) -> Refusal | None:
    here = nodes.allocatable(resource) > 0
    for needs in step.needs[:1]:
        here = here & _selected(needs, nodes)
    values = nodes.label_values(resource + PRODUCT)
    models = [str(values[int(code)]) for code in np.unique(nodes.label(resource + PRODUCT)[here])]
    if not models:
        return None
    limiting = [name for name in names if any(flavor_matches(name, model) for model in models)]
    if not all(any(flavor_matches(name, model) for name in limiting) for model in models):
        return None  # a model without a limit
    room = {name: queue.spec.capability[name] - step.standing(queue, name) for name in limiting}
    left = sum(max(0, units) for units in room.values())
    if units <= left:
        return None
    most = sum(queue.spec.capability[name] for name in limiting)
    limits = ", ".join(f"{from_units(name, queue.spec.capability[name])} of {name}" for name in limiting)
    return Refusal(
        code=Reason.EXCEEDS_QUEUE_LIMIT if units > most else Reason.WAITING_FOR_QUOTA,
        queue=queue.name,
        resource=limiting[0] if len(limiting) == 1 else resource,
        needed=units,
        available=most if units > most else left,
        detail=f"limit {limits} of queue {queue.name}",
        permanent=units > most,
    )


def _selected(needs: Needs, nodes: NodeView) -> BoolArray:
    """Where the pod's node selector lets it go."""
    found = np.ones(nodes.size, dtype=np.bool_)
    for key, value in needs.node_selector:
        matching = np.array([text == value for text in nodes.label_values(key)])
        found &= matching[nodes.label(key)]
    return found

"""``capability`` and ``guarantee`` by device model: ``nvidia.com/gpu@H100``.

The engine keeps a group's tasks off nodes of models of which its queues may hold no more, or of which what
is free is guaranteed to others. Here the group is told, where no node is left: every node that has the
devices is of a model with a limit, and what the limits leave together is less than the step asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import (
    FLAVOR,
    QueueView,
    Rejection,
    StepView,
    flavor_matches,
    flavor_of,
    unfilled_guarantee,
)
from windlass.spi.quantities import from_units

PRODUCT = ".product"


class FlavorLimits:
    """Tested at the group's queue and at every ancestor; the node selectors of the step are heeded."""

    name = "flavor-limits"

    def may_reject(self, path: Sequence[QueueView]) -> bool:
        return any(queue.flavored for queue in path) or any(FLAVOR in name for name in path[0].guarantees)

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        for queue in path:
            names = queue.flavored
            if not names:
                continue
            for resource in sorted({flavor_of(name)[0] for name in names}):
                units = step.request.get(resource, 0)
                if units > 0:
                    ours = [name for name in names if flavor_of(name)[0] == resource]
                    rejection = _refusal(queue, resource, units, ours, step, nodes)
                    if rejection is not None:
                        return rejection
        return _kept_for_others(step, path, nodes)


def _kept_for_others(step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
    """The refusal if every model that would do is guaranteed to others, but for less than is asked for."""
    guarantees = path[0].guarantees
    for resource in sorted({flavor_of(name)[0] for name in guarantees if FLAVOR in name}):
        units = step.request.get(resource, 0)
        models = _models(resource, step, nodes) if units > 0 else []
        names = [name for name in guarantees if flavor_of(name)[0] == resource and FLAVOR in name]
        ours = [name for name in names if any(flavor_matches(name, model) for model in models)]
        if not models or not all(any(flavor_matches(name, model) for name in ours) for model in models):
            continue
        kept = {
            name: sum(unfilled_guarantee(top, name, path, units) for top in path[-1].siblings)
            for name in ours
        }
        left = sum(max(0, _free(step, nodes, name) - kept[name]) for name in ours)
        if any(kept.values()) and units > left:
            told = ", ".join(f"{from_units(name, units)} of {name}" for name, units in kept.items() if units)
            return Rejection(
                code=Reason.WAITING_FOR_QUOTA,
                queue=path[-1].name,
                resource=ours[0] if len(ours) == 1 else resource,
                needed=units,
                available=left,
                detail=f"{told} that are free or to come are guaranteed to other queues",
                elsewhere=True,
            )
    return None


def _free(step: StepView, nodes: NodeView, name: str) -> int:
    """What is free of a model on nodes that are ready."""
    resource = flavor_of(name)[0]
    matching = np.array(
        [flavor_matches(name, value) for value in nodes.label_values(resource + PRODUCT)], dtype=np.bool_
    )
    free = nodes.future_available(resource) if step.future else nodes.available(resource)
    return int(free[matching[nodes.label(resource + PRODUCT)] & nodes.ready() & (free > 0)].sum())


def _models(resource: str, step: StepView, nodes: NodeView) -> list[str]:
    """The models of the nodes that have the devices, as far as the step's node selectors let it go there."""
    here = nodes.allocatable(resource) > 0
    for needs in step.needs[:1]:
        here = here & _selected(needs, nodes)
    values = nodes.label_values(resource + PRODUCT)
    return [str(values[int(code)]) for code in np.unique(nodes.label(resource + PRODUCT)[here])]


def _refusal(
    queue: QueueView, resource: str, units: int, names: Sequence[str], step: StepView, nodes: NodeView
) -> Rejection | None:
    models = _models(resource, step, nodes)
    if not models:
        return None
    limiting = [name for name in names if any(flavor_matches(name, model) for model in models)]
    if not all(any(flavor_matches(name, model) for name in limiting) for model in models):
        return None  # a model without a limit
    room = {name: queue.spec.capability[name] - step.usage_of(queue, name) for name in limiting}
    left = sum(max(0, units) for units in room.values())
    if units <= left:
        return None
    most = sum(queue.spec.capability[name] for name in limiting)
    limits = ", ".join(f"{from_units(name, queue.spec.capability[name])} of {name}" for name in limiting)
    return Rejection(
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

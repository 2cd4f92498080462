"""``capability`` and ``guarantee`` by device model: ``nvidia.com/gpu@H100``.

The engine keeps a group's tasks off nodes of two kinds of models: those of which its
queues may hold no more, and those with free devices that are guaranteed to other queues.
This plugin explains the case in which no node is left: every node with such devices has
a limited model, and the remaining amounts together are smaller than the request.
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
    """Admission by limits and guarantees of device models.

    The group's queue and all its ancestors are tested. Only nodes that match the node
    selector of the request count.
    """

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
                    rejection = _rejection(queue, resource, units, ours, step, nodes)
                    if rejection is not None:
                        return rejection
        return _reserved_for_other_queues(step, path, nodes)


def _reserved_for_other_queues(
    step: StepView, path: Sequence[QueueView], nodes: NodeView
) -> Rejection | None:
    """Return a rejection if all usable models are guaranteed to other queues and too few remain."""
    guarantees = path[0].guarantees
    for resource in sorted({flavor_of(name)[0] for name in guarantees if FLAVOR in name}):
        units = step.request.get(resource, 0)
        models = _models(resource, step, nodes) if units > 0 else []
        names = [name for name in guarantees if flavor_of(name)[0] == resource and FLAVOR in name]
        ours = [name for name in names if any(flavor_matches(name, model) for model in models)]
        if not models or not all(any(flavor_matches(name, model) for name in ours) for model in models):
            continue
        reserved = {
            name: sum(unfilled_guarantee(top, name, path, units) for top in path[-1].siblings)
            for name in ours
        }
        left = sum(max(0, _free(step, nodes, name) - reserved[name]) for name in ours)
        if any(reserved.values()) and units > left:
            guaranteed = ", ".join(
                f"{from_units(name, units)} of {name}" for name, units in reserved.items() if units
            )
            return Rejection(
                code=Reason.WAITING_FOR_QUOTA,
                queue=path[-1].name,
                resource=ours[0] if len(ours) == 1 else resource,
                needed=units,
                available=left,
                detail=f"{guaranteed} that are free or to come are guaranteed to other queues",
                elsewhere=True,
            )
    return None


def _free(step: StepView, nodes: NodeView, name: str) -> int:
    """Return the free amount of a model on ready nodes."""
    resource = flavor_of(name)[0]
    matching = np.array(
        [flavor_matches(name, value) for value in nodes.label_values(resource + PRODUCT)], dtype=np.bool_
    )
    free = nodes.future_available(resource) if step.future else nodes.available(resource)
    return int(free[matching[nodes.label(resource + PRODUCT)] & nodes.ready() & (free > 0)].sum())


def _models(resource: str, step: StepView, nodes: NodeView) -> list[str]:
    """Return the models on nodes that have the resource and match the request's node selector."""
    eligible = nodes.allocatable(resource) > 0
    for needs in step.needs[:1]:
        eligible = eligible & _selected(needs, nodes)
    values = nodes.label_values(resource + PRODUCT)
    return [str(values[int(code)]) for code in np.unique(nodes.label(resource + PRODUCT)[eligible])]


def _rejection(
    queue: QueueView, resource: str, units: int, names: Sequence[str], step: StepView, nodes: NodeView
) -> Rejection | None:
    models = _models(resource, step, nodes)
    if not models:
        return None
    limiting = [name for name in names if any(flavor_matches(name, model) for model in models)]
    if not all(any(flavor_matches(name, model) for name in limiting) for model in models):
        return None  # a model without a limit
    remaining = {name: queue.spec.capability[name] - step.usage_of(queue, name) for name in limiting}
    left = sum(max(0, units) for units in remaining.values())
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
    """Return a mask of the nodes that match the pod's node selector."""
    mask = np.ones(nodes.size, dtype=np.bool_)
    for key, value in needs.node_selector:
        matching = np.array([text == value for text in nodes.label_values(key)])
        mask &= matching[nodes.label(key)]
    return mask

"""``capability``: what a queue, with everything below it, may never hold more of."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.spi.nodes import NodeView
from windlass.spi.plugins import QueueView, Refusal, StepView
from windlass.spi.quantities import from_units


class QueueLimits:
    """Tested at the group's queue and at every ancestor, on the resources that the step asks for.

    A gang's minimum that exceeds a limit even in an empty queue is refused for good.
    """

    name = "limits"

    def concerns(self, path: Sequence[QueueView]) -> bool:
        return any(queue.spec.capability for queue in path)

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Refusal | None:
        worst: Refusal | None = None
        for queue in path:
            limits = queue.spec.capability
            if not limits:
                continue
            for resource, limit in limits.items():
                units = step.request.get(resource, 0)
                if units <= 0:
                    continue
                left = limit - step.standing(queue, resource)
                if units > left:
                    refusal = _refusal(queue, resource, units, limit, max(left, 0))
                    if refusal.permanent:
                        return refusal
                    worst = worst or refusal
        return worst


def _refusal(queue: QueueView, resource: str, units: int, limit: int, left: int) -> Refusal:
    permanent = units > limit
    return Refusal(
        code=Reason.EXCEEDS_QUEUE_LIMIT if permanent else Reason.WAITING_FOR_QUOTA,
        queue=queue.name,
        resource=resource,
        needed=units,
        available=limit if permanent else left,
        detail=f"limit {from_units(resource, limit)} of queue {queue.name}",
        permanent=permanent,
    )

"""``capability``: upper limit of a queue, including its descendants."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.spi.nodes import NodeView
from windlass.spi.plugins import QueueView, Rejection, StepView
from windlass.spi.quantities import from_units


class QueueLimits:
    """Admission by limits of the group's queue and all its ancestors.

    Only requested resources are tested. A gang's minimum that exceeds a limit even in
    an empty queue is rejected permanently.
    """

    name = "limits"

    def may_reject(self, path: Sequence[QueueView]) -> bool:
        return any(queue.spec.capability for queue in path)

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        worst: Rejection | None = None
        for queue in path:
            limits = queue.spec.capability
            if not limits:
                continue
            for resource, limit in limits.items():
                units = step.request.get(resource, 0)
                if units <= 0:
                    continue
                left = limit - step.usage_of(queue, resource)
                if units > left:
                    rejection = _rejection(queue, resource, units, limit, max(left, 0))
                    if rejection.permanent:
                        return rejection
                    worst = worst or rejection
        return worst


def _rejection(queue: QueueView, resource: str, units: int, limit: int, left: int) -> Rejection:
    permanent = units > limit
    return Rejection(
        code=Reason.EXCEEDS_QUEUE_LIMIT if permanent else Reason.WAITING_FOR_QUOTA,
        queue=queue.name,
        resource=resource,
        needed=units,
        available=limit if permanent else left,
        detail=f"limit {from_units(resource, limit)} of queue {queue.name}",
        permanent=permanent,
    )

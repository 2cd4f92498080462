"""Admission of nonpreemptible work by KAI's rule: only within deserved amounts, at
every level.

Source: KAI Scheduler, plugin ``proportion``, package ``capacity_policy``
(``NonPreemptibleOverQuota``). The limits, KAI's other test, are those of
:class:`~windlass.plugins.queues.limits.QueueLimits`.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import UNPREEMPTIBLE, Reason
from windlass.plugins.kai.fair_share import counts
from windlass.spi.nodes import NodeView
from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, Rejection, StepView
from windlass.spi.quantities import from_units


class NonPreemptibleQuota:
    """Admission of nonpreemptible groups in KAI's queues, by the requested resources."""

    name = "kai-nonpreemptible-quota"

    def may_reject(self, path: Sequence[QueueView]) -> bool:
        return path[0].spec.dialect is Dialect.KAI

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        if step.group.preemptible or path[0].spec.dialect is not Dialect.KAI:
            return None
        worst: Rejection | None = None
        for queue in path:
            spec, held = queue.spec, queue.allocated_nonpreemptible
            for resource, units in step.request.items():
                if units <= 0 or resource in spec.unlimited or not counts(resource):
                    continue
                due = spec.deserved.get(resource, 0)
                left = due - held.get(resource, 0)
                if units > left:
                    rejection = _rejection(queue, resource, units, due, max(left, 0))
                    if rejection.permanent:
                        return rejection
                    worst = worst or rejection
        return worst


def _rejection(queue: QueueView, resource: str, units: int, due: int, left: int) -> Rejection:
    quota, name = from_units(resource, due), queue.name
    return Rejection(
        code=Reason.EXCEEDS_QUEUE_LIMIT if units > due else Reason.WAITING_FOR_QUOTA,
        queue=name,
        resource=resource,
        needed=units,
        available=due if units > due else left,
        detail=f"quota {quota} of queue {name} {UNPREEMPTIBLE}",
        permanent=units > due,
        remedies=("Mark the workload preemptible: it may then run above the quota.",),
    )

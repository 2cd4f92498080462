"""``proportion``: votes by the division of the cluster by weight.

``QueueView.fair_share`` is the queue's deserved amount: its part of the division, at
most its request (except for its guarantee).
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.plugins.volcano.queues.resource_bounds import beyond, closed, never_admitted, plus
from windlass.spi.objects import Resources
from windlass.spi.plugins import QueueView, Rejection
from windlass.spi.tiers import EnqueueRequest, Purpose, TaskView, Vote


class ProportionAllocatable:
    """Vote on allocation: open, and within the deserved amount of every requested resource."""

    name = "proportion"

    def may_allocate(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        queue = path[0]
        return closed(path) or beyond(queue, queue.committed, request, _due(queue, request), "fair share")


class ProportionPreemptionVote:
    """Vote on reclaim: a queue may reclaim up to its deserved amount
    (:class:`ProportionAllocatable`)."""

    name = "proportion"

    def may_reclaim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        return ProportionAllocatable().may_allocate(path, request)


class ProportionOverused:
    """Vote on overuse: the queue holds its deserved amount of every resource."""

    name = "proportion"

    def overused(self, queue: QueueView) -> bool:
        held = queue.committed
        return all(units <= held.get(name, 0) for name, units in queue.fair_share.items())


class ProportionEvictable:
    """Vote on victims: a queue loses pods while it exceeds its deserved amount of some resource.

    Earlier victims are subtracted.
    """

    name = "proportion"

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.PREEMPT:
            return None
        left: dict[str, Resources] = {}
        chosen = []
        for candidate in candidates:
            queue = candidate.gang.path[0]
            held = left.get(queue.name, queue.committed)
            due = queue.fair_share
            if any(units > due.get(name, 0) for name, units in held.items()):
                left[queue.name] = plus(held, candidate.request, -1)
                chosen.append(candidate)
        return chosen


class ProportionEnqueueable:
    """Vote on admission: open, and within the real capability.

    The request is added to held and reserved amounts.
    """

    name = "proportion"

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        path = admission.gang.path
        queue = path[0]
        wanted = admission.gang.spec.min_resources
        held = plus(queue.committed, admission.reserved.get(queue.name, {}))
        rejection = (
            closed(path)
            or never_admitted(queue, wanted, queue.real_capability, "capability")
            or beyond(queue, held, wanted, queue.real_capability, "capability")
        )
        return rejection or Vote.PERMIT


def _due(queue: QueueView, request: Resources) -> dict[str, int]:
    """Return the deserved amounts of the requested resources; 0 for those without a share."""
    due = queue.fair_share
    return {name: due.get(name, 0) for name in request}

"""``proportion``: the votes that go with dividing the cluster by weight.

``QueueView.fair_share`` is the queue's deserved amount here: what the division by weight gave it, never
more than it asks for (but for its guarantee).
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.plugins.volcano.queues.resource_bounds import beyond, closed, plus
from windlass.spi.objects import Resources
from windlass.spi.plugins import QueueView, Rejection
from windlass.spi.tiers import EnqueueRequest, Purpose, TaskView, Vote


class ProportionAllocatable:
    """Open, and within the deserved amount on every requested resource."""

    name = "proportion"

    def may_allocate(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        queue = path[0]
        return closed(path) or beyond(queue, queue.committed, request, _due(queue, request), "fair share")


class ProportionPreemptionVote:
    """As :class:`ProportionAllocatable`: a queue takes back what it deserves."""

    name = "proportion"

    def may_reclaim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        return ProportionAllocatable().may_allocate(path, request)


class ProportionOverused:
    """Passed over while it holds what it deserves of every resource."""

    name = "proportion"

    def overused(self, queue: QueueView) -> bool:
        held = queue.committed
        return all(units <= held.get(name, 0) for name, units in queue.fair_share.items())


class ProportionEvictable:
    """A queue gives while it holds more than it deserves of some resource, victims so far taken off."""

    name = "proportion"

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.PREEMPT:
            return None
        left: dict[str, Resources] = {}
        found = []
        for candidate in candidates:
            queue = candidate.gang.path[0]
            held = left.get(queue.name, queue.committed)
            due = queue.fair_share
            if any(units > due.get(name, 0) for name, units in held.items()):
                left[queue.name] = plus(held, candidate.request, -1)
                found.append(candidate)
        return found


class ProportionEnqueueable:
    """Open, and what the group asks for fits beside what is held and booked, under the real capability."""

    name = "proportion"

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        path = admission.gang.path
        queue = path[0]
        wanted = admission.gang.spec.min_resources
        held = plus(queue.committed, admission.reserved.get(queue.name, {}))
        rejection = closed(path) or beyond(queue, held, wanted, queue.real_capability, "capability")
        return rejection or Vote.PERMIT


def _due(queue: QueueView, request: Resources) -> dict[str, int]:
    """What is not named in the share is not deserved at all."""
    due = queue.fair_share
    return {name: due.get(name, 0) for name in request}

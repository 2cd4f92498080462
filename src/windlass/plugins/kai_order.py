"""Which of two queues KAI serves next, and which gives first.

Source: KAI Scheduler, plugin ``proportion``, package ``queue_order``. The first difference decides:

1. a queue that holds no more than its fair share of some of CPU, memory and devices, before one that
   holds more of all three;
2. one that stays within its deserved amounts with its next job;
3. the higher priority;
4. one whose job asks for nothing of which the queue may be allocated nothing;
5. the smaller dominant share with the job, 6. without it; 7. the smaller allocatable share;
8. the older.

The dominant share is the largest, over resources, of what is held divided by the allocatable share; where
that has no bound the whole cluster's amount stands for it, and where it is 0 the amount held counts a
thousandfold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.plugins.kai_shares import counts, entitled
from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, StepView
from windlass.spi.quantities import is_device, scale

SHIFT = 128
"""Fractions of integers below 2^64 keep their order, scaled by this many bits and rounded down."""

NOTHING: Mapping[str, int] = {}


class KaiQueueOrder:
    """Speaks for KAI's queues, and for roots of both APIs among one another."""

    name = "kai-queue-order"
    compares_roots = True

    def queue_key(self, queue: QueueView, step: StepView | None) -> Any:
        if queue.spec.dialect is not Dialect.KAI and not queue.mixed:
            return ()
        return order_key(queue, NOTHING if step is None else step.request, NOTHING)


def order_key(queue: QueueView, job: Mapping[str, int], taken: Mapping[str, int]) -> tuple[Any, ...]:
    """The place of a queue with its next ``job``; ``taken``: what is to be evicted from it already."""
    held = queue.committed
    if taken:
        held = {name: units - taken.get(name, 0) for name, units in held.items()}
    fair, bounds, cluster = queue.fair_share, queue.allocatable_share, queue.cluster
    names = [name for name in fair if counts(name)]
    with_job = without_job = 0
    starved = False
    for name in names:
        have, more = held.get(name, 0), job.get(name, 0)
        bound = bounds.get(name)
        if bound is None:
            bound = cluster.get(name, 0)
        elif bound == 0 and more > 0:
            starved = True
        if have + more > 0:
            with_job = max(with_job, _share(name, have + more, bound))
            if have > 0:
                without_job = max(without_job, _share(name, have, bound))
    return (
        over_fair_share(held, fair),
        not within_deserved(queue, held, job),
        -queue.spec.priority,
        starved,
        with_job,
        without_job,
        tuple([(name not in bounds, bounds.get(name, 0)) for name in sorted(names)]),
    )


def over_fair_share(held: Mapping[str, int], fair: Mapping[str, int]) -> bool:
    """Whether more than the fair share is held of CPU, of memory and of devices alike."""
    if held.get("cpu", 0) <= fair.get("cpu", 0) or held.get("memory", 0) <= fair.get("memory", 0):
        return False
    kinds = [name for name in fair if is_device(name)]
    return sum(held.get(name, 0) for name in kinds) > sum(fair[name] for name in kinds)


def within_deserved(queue: QueueView, held: Mapping[str, int], job: Mapping[str, int]) -> bool:
    """Whether the queue with the job holds no more than it deserves of anything that is divided."""
    due, unlimited = entitled(queue), queue.spec.unlimited
    return all(
        held.get(name, 0) + job.get(name, 0) <= due.get(name, 0)
        for name in queue.fair_share
        if name not in unlimited and counts(name)
    )


def _share(name: str, units: int, bound: int) -> int:
    if bound > 0:
        return (units << SHIFT) // bound
    whole = scale(name) if is_device(name) else 1
    return (units * 1000 << SHIFT) // whole

"""Order of queues by KAI's rules, for scheduling and, reversed, for victims.

Source: KAI Scheduler, plugin ``proportion``, package ``queue_order``. The first
difference decides:

1. a queue within its fair share of CPU, memory or devices, before one that exceeds all
   three;
2. a queue that stays within its deserved amounts with its next job;
3. the higher priority;
4. a queue with a job that requests no resource with an allocatable share of 0;
5. the smaller dominant share with the job;
6. the smaller dominant share without it;
7. the smaller allocatable share;
8. the older queue.

The dominant share is the largest ratio, over resources, of the held amount and the
allocatable share. Without a bound the cluster's amount replaces the allocatable share.
If it is 0, the held amount counts a thousandfold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.plugins.kai.fair_share import counts, entitled
from windlass.spi.objects import Dialect, Queue
from windlass.spi.plugins import QueueView, StepView
from windlass.spi.quantities import is_device, scale

_KAI = Dialect.KAI

SHIFT = 128
"""Bits by which fractions are scaled; fractions of integers below 2^64 keep their order."""

NOTHING: Mapping[str, int] = {}


class KaiQueueOrder:
    """Queue order for KAI's queues, and for the roots of both APIs."""

    name = "kai-queue-order"
    compares_roots = True

    def __init__(self) -> None:
        self._standards: dict[str, Standard] = {}

    def queue_key(self, queue: QueueView, step: StepView | None) -> Any:
        if queue.spec.dialect is not _KAI and not queue.mixed:
            return ()
        standard = self._standards.get(queue.name)
        if standard is None or standard.fair is not queue.fair_share or standard.spec is not queue.spec:
            standard = self._standards[queue.name] = Standard.of(queue)
        return standard.key(queue, NOTHING if step is None else step.request, NOTHING)


def order_key(queue: QueueView, job: Mapping[str, int], taken: Mapping[str, int]) -> tuple[Any, ...]:
    """Return the order key of a queue with its next ``job``.

    :param taken: amounts that are already to be evicted from the queue
    """
    return Standard.of(queue).key(queue, job, taken)


@dataclass(frozen=True, slots=True)
class Standard:
    """Inputs of the queue order that stay valid until the queue's rules or its share change.

    ``measures``: resource, fair share, deserved amount (``None``: unlimited),
    allocatable share (``None``: no bound), units of one whole.
    """

    spec: Queue
    fair: Mapping[str, int]
    measures: tuple[tuple[str, int, int | None, int | None, int], ...]
    bounds: tuple[tuple[bool, int], ...]

    @staticmethod
    def of(queue: QueueView) -> Standard:
        spec, fair, bounds, due = queue.spec, queue.fair_share, queue.allocatable_share, entitled(queue)
        names = sorted(name for name in fair if counts(name))
        return Standard(
            spec,
            fair,
            tuple(
                (
                    name,
                    fair[name],
                    None if name in spec.unlimited else due.get(name, 0),
                    bounds.get(name),
                    scale(name) if is_device(name) else 1,
                )
                for name in names
            ),
            tuple((name not in bounds, bounds.get(name, 0)) for name in names),
        )

    def key(self, queue: QueueView, job: Mapping[str, int], taken: Mapping[str, int]) -> tuple[Any, ...]:
        held = queue.committed
        if taken:
            held = {name: units - taken.get(name, 0) for name, units in held.items()}
        with_job = without_job = 0
        starved = beyond = False
        for name, _, due, bound, whole in self.measures:
            have, more = held.get(name, 0), job.get(name, 0)
            both = have + more
            if due is not None and both > due:
                beyond = True
            if bound is None:
                bound = queue.cluster.get(name, 0)
            elif more and not bound:
                starved = True
            if both > 0:
                with_job = max(with_job, _share(both, bound, whole))
                if have > 0:
                    without_job = max(without_job, _share(have, bound, whole))
        over = over_fair_share(held, self.fair)
        return (over, beyond, -self.spec.priority, starved, with_job, without_job, self.bounds)


def over_fair_share(held: Mapping[str, int], fair: Mapping[str, int]) -> bool:
    """Return whether the queue exceeds its fair share of CPU, memory and devices alike."""
    if held.get("cpu", 0) <= fair.get("cpu", 0) or held.get("memory", 0) <= fair.get("memory", 0):
        return False
    kinds = [name for name in fair if is_device(name)]
    return sum(held.get(name, 0) for name in kinds) > sum(fair[name] for name in kinds)


def _share(units: int, bound: int, whole: int) -> int:
    return (units << SHIFT) // bound if bound > 0 else (units * 1000 << SHIFT) // whole

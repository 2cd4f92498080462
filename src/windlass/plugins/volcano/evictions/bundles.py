"""``gangpreempt`` and ``gangreclaim``: preemption for a whole gang by evicting bundles
of other gangs.

A bundle is one pod above a gang's minimum, or all pods of the minimum. First only pods
above minimums are considered. If they are not enough, whole gangs may be evicted, too
(unless the action's argument ``allowWholeBundle`` is false). A gang below its minimum
counts as surplus. The order is: surplus, then lower priority (``gangpreempt``) or the
queue with the largest part of its deserved amount (``gangreclaim``), then the bundle
that the preemptor can use best, then the younger group.

These are rules for the engine's own search for victims (:mod:`windlass.spi.victims`).
It evicts nothing unless the whole gang fits, and no more than is needed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import boolean
from windlass.plugins.queues.dominant_share import exceeds
from windlass.plugins.volcano.queues.capacity import PODS, CapacityEvictable
from windlass.plugins.volcano.queues.resource_bounds import plus
from windlass.spi.objects import Dialect, Resources
from windlass.spi.plugins import QueueView
from windlass.spi.tiers import Tiers
from windlass.spi.victims import (
    FreedResources,
    Preemption,
    PreemptionDenied,
    PreemptionTerms,
    Taken,
    VictimScope,
    VictimSet,
)

PREEMPT = "gangpreempt"
RECLAIM = "gangreclaim"
SURPLUS = "-surplus"
"""Suffix of an action's name while only surplus may be evicted."""


class Bundles:
    """Rules of bundle preemption.

    :param capacity: victim rules of that plugin for other queues, if it is configured;
        otherwise a queue loses what exceeds its fair share, and gains up to its own
    """

    name = "bundles"

    def __init__(self, tiers: Tiers, *, capacity: CapacityEvictable | None = None) -> None:
        self._tiers = tiers
        self._capacity = capacity
        self._whole = {
            action: boolean(tiers.arguments.get(action, {}), "allowWholeBundle", True)
            for action in (PREEMPT, RECLAIM)
        }

    # ------------------------------------------------------------------ terms

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        return _covered(action, dialect) is not None

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        action = _action(preemption)
        if action is None:
            return None
        if preemption.elastic:
            return PreemptionDenied(Reason.INSUFFICIENT_RESOURCES, detail="it holds its minimum")
        if action == PREEMPT:
            return PreemptionTerms(VictimScope.OWN_QUEUE)
        if self._tiers.overused(preemption.path[0]):
            return PreemptionDenied(Reason.WAITING_FOR_SHARE, detail="its queue holds all that it deserves")
        rejection = self._tiers.may_reclaim(preemption.path, preemption.request)
        if rejection is not None:
            return PreemptionDenied(rejection.code, detail=rejection.detail)
        if self._capacity is None and exceeds(preemption.path[0], preemption.request.items()):
            return PreemptionDenied(
                Reason.WAITING_FOR_SHARE, detail="its queue would hold more than its fair share"
            )
        return PreemptionTerms(VictimScope.OTHER_QUEUES)

    # ------------------------------------------------------------------ protection

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        if _action(preemption) is None:
            return False
        queue = path[0]
        if queue.spec.dialect is not Dialect.VOLCANO:
            return True
        return _action(preemption) == RECLAIM and not queue.spec.reclaimable

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        action = _action(preemption)
        if action is None:
            return False
        if (
            victim_set.is_minimum
            and victim_set.ready
            and (preemption.action.endswith(SURPLUS) or not self._whole[action])
        ):
            return True
        return action == PREEMPT and victim_set.group.priority >= preemption.group.priority

    # ------------------------------------------------------------------ the order

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: Mapping[str, int]) -> Any:
        """Return the order key: lower priority, then the larger part of the fair share."""
        if _action(preemption) is None:
            return None
        held = plus(preemption.held(queue), taken, -1)
        fair = queue.fair_share
        share = max(
            (Fraction(units, fair[name]) for name, units in held.items() if fair.get(name, 0) > 0),
            default=Fraction(0),
        )
        return queue.spec.priority, -share

    def victim_key_inputs(self, preemption: Preemption) -> Hashable:
        """Return the request: the order depends on the part of a bundle that the
        preemptor needs."""
        return None if _action(preemption) is None else tuple(sorted(preemption.request.items()))

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        action = _action(preemption)
        if action is None:
            return None
        broken = victim_set.is_minimum and victim_set.ready
        priority = victim_set.group.priority if action == PREEMPT else 0
        return (
            broken,
            priority,
            -_useful_part(preemption.request, victim_set.request),
            -victim_set.group.created,
        )

    # ------------------------------------------------------------------ the rules

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        """Return whether reclaim may evict each pod of the bundle, one after the other."""
        if _action(preemption) != RECLAIM:
            return True
        left = {
            queue.name: plus(preemption.held(queue), taken.get(queue.name, {}), -1)
            for queue in victim_set.path
        }
        for task in victim_set.tasks:
            held = {name: units for name, units in task.needs.request if units > 0}
            if not self._may_lose(preemption, victim_set.path, held, left):
                return False
            for queue in victim_set.path:
                left[queue.name] = plus(left[queue.name], held, -1)
        return True

    def _may_lose(
        self,
        preemption: Preemption,
        path: Sequence[QueueView],
        held: Resources,
        left: Mapping[str, Mapping[str, int]],
    ) -> bool:
        if self._capacity is not None:
            return self._capacity.may_go(preemption.path, preemption.request, path, held, left)
        fair, leaf = path[0].fair_share, left[path[0].name]
        return any(
            leaf.get(name, 0) > fair.get(name, 0)
            for name, units in held.items()
            if units > 0 and (name != PODS or name in fair)
        )

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        return True


def _action(preemption: Preemption) -> str | None:
    """Return the action of these rules; ``None`` for any other preemption."""
    return _covered(preemption.action, preemption.group.dialect)


def _covered(action: str, dialect: Dialect) -> str | None:
    name = action.removesuffix(SURPLUS)
    return name if name in (PREEMPT, RECLAIM) and dialect is Dialect.VOLCANO else None


def _useful_part(needed: Resources, given: Resources) -> Fraction:
    """Return the part of a bundle that the preemptor needs; 1 is all of it.

    Parts are summed over the needed resources.
    """
    parts = [(given.get(name, 0), units) for name, units in needed.items() if units > 0]
    useful = sum((Fraction(min(have, need), need) for have, need in parts), Fraction(0))
    given_up = sum((Fraction(have, need) for have, need in parts), Fraction(0))
    return useful / given_up if given_up else Fraction(0)

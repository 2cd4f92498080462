"""KAI's rules for reclaim, preemption and consolidation: terms, victims and their order.

They apply to groups in KAI's queues. Shares are compared for CPU, memory and GPUs
together. A queue holds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.api.reasons import Reason
from windlass.plugins.kai.fair_share import entitled
from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView
from windlass.spi.victims import (
    FreedResources,
    Preemption,
    PreemptionDenied,
    PreemptionTerms,
    RelocationMode,
    Taken,
    VictimScope,
    VictimSet,
    parting,
)

_KAI = Dialect.KAI

SHARED = ("cpu", "memory", "nvidia.com/gpu")
"""Resources for which shares are compared."""

PREEMPT = "preempt"
RECLAIM = "reclaim"
CONSOLIDATION = "consolidation"
CONSOLIDATED_GROUPS = 17
"""Maximum number of victim groups: KAI considers 16, and lets one more through."""

_NO_BOUND = 1 << 200


def _deserved(queue: QueueView, resource: str) -> int:
    if resource in queue.spec.unlimited:
        return _NO_BOUND
    due = entitled(queue)
    if resource not in due and queue.spec.dialect is not _KAI:
        return queue.fair_share.get(resource, 0)
    return due.get(resource, 0)


def _allocatable(queue: QueueView, resource: str) -> int:
    limit = queue.spec.capability.get(resource, _NO_BOUND)
    if resource in queue.spec.unlimited:
        return limit
    return min(limit, max(entitled(queue).get(resource, 0), queue.fair_share.get(resource, 0)))


def _protected(queue: QueueView, resource: str) -> int:
    """Return the amount that reclaim leaves to a queue.

    It is the allocatable share, and at least the deserved amount. A limit below the
    deserved amount bounds what starts, not what runs already.
    """
    if resource in queue.spec.unlimited:
        return _allocatable(queue, resource)
    return max(_allocatable(queue, resource), _deserved(queue, resource))


def _applies(preemption: Preemption) -> bool:
    return preemption.group.dialect is _KAI


class KaiPreemptionPolicy:
    """Conditions under which a preemption may look for victims, and its terms.

    * reclaim: including the request, the leaf queue holds at most its fair share of
      every shared resource.
    * preempt and reclaim: nonpreemptible work stays within the deserved amounts at
      every level.
    * consolidation: for preemptible groups only, and all victims have to be relocated.
    """

    name = "kai-claims"

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        return dialect is _KAI

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        if not _applies(preemption):
            return None
        if preemption.action == CONSOLIDATION:
            if not preemption.group.preemptible:
                return PreemptionDenied(
                    Reason.INSUFFICIENT_RESOURCES,
                    detail="only preemptible work may have other work relocated",
                )
            return PreemptionTerms(VictimScope.ALL_QUEUES, RelocationMode.MUST, CONSOLIDATED_GROUPS)
        if not preemption.group.preemptible and not _nonpreemptible_fits(preemption):
            return PreemptionDenied(
                Reason.WAITING_FOR_QUOTA, detail="work that is not preemptible stays within quota"
            )
        if preemption.action == PREEMPT:
            return PreemptionTerms(VictimScope.OWN_QUEUE, below=preemption.group.priority)
        if preemption.action == RECLAIM:
            exceeds = _Exceeds(
                preemption.path[0], tuple([preemption.request.get(name, 0) for name in SHARED])
            )
            if exceeds():
                return PreemptionDenied(
                    Reason.WAITING_FOR_SHARE, detail="it would exceed its queue's fair share", stands=exceeds
                )
            return PreemptionTerms(VictimScope.OTHER_QUEUES, RelocationMode.MAY)
        return None


class _Exceeds(msgspec.Struct, frozen=True):
    """Condition: the queue would hold more than its fair share of some shared resource."""

    queue: QueueView
    requested: tuple[int, ...]

    def __call__(self) -> bool:
        held, fair = self.queue.committed, self.queue.fair_share
        return any(
            [
                held.get(name, 0) + units > fair.get(name, 0)
                for name, units in zip(SHARED, self.requested, strict=True)
            ]
        )


def _nonpreemptible_fits(preemption: Preemption) -> bool:
    """Return whether nonpreemptible work would stay within the deserved amounts at every level."""
    return all(
        queue.allocated_nonpreemptible.get(name, 0) + units <= _deserved(queue, name)
        for queue in preemption.path
        for name in SHARED
        if (units := preemption.request.get(name, 0)) > 0
    )


class KaiVictims:
    """Protection, order and validation of victims."""

    name = "kai-victims"
    lasting = True

    # ------------------------------------------------------------------ protection

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return self.protects_branch(preemption, *parting(preemption.path, path))

    def protects_branch(self, preemption: Preemption, ours: QueueView, theirs: QueueView) -> bool:
        if not _applies(preemption) or preemption.action != RECLAIM:
            return False
        held = preemption.held(theirs)
        if not _within_deserved(preemption, ours, {}):
            return not any(held.get(name, 0) > _protected(theirs, name) for name in SHARED)
        requested = [name for name in SHARED if preemption.request.get(name, 0) > 0]
        over = any(held.get(name, 0) > _deserved(theirs, name) for name in requested)
        below = any(
            held.get(name, 0) < _deserved(theirs, name)
            for name in requested
            if name not in theirs.spec.unlimited
        )
        return not over and below

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        """Return whether the victim set does not have a strictly lower priority (preempt only)."""
        return (
            _applies(preemption)
            and preemption.action == PREEMPT
            and victim_set.group.priority >= preemption.group.priority
        )

    # ------------------------------------------------------------------ the order

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: Mapping[str, int]) -> Any:
        """Return the reversed queue order.

        First: over the fair share of all resources, over deserved amounts, lower
        priority, larger dominant share, larger allocatable share.
        """
        if not _applies(preemption):
            return None
        held = {name: preemption.held(queue).get(name, 0) - taken.get(name, 0) for name in SHARED}
        over_fair = all(held[name] > queue.fair_share.get(name, 0) for name in SHARED)
        over_deserved = any(held[name] > _deserved(queue, name) for name in SHARED)
        dominant = max(_share(queue, name, held[name]) for name in SHARED)
        bound = [_allocatable(queue, name) for name in ("nvidia.com/gpu", "cpu", "memory")]
        return (
            not over_fair,
            not over_deserved,
            queue.spec.priority,
            -dominant,
            tuple(-amount for amount in bound),
        )

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        """Return the reversed group order.

        First: lowest priority, above its minimum, exactly at it, below it, youngest.
        """
        if not _applies(preemption):
            return None
        shape = 0 if victim_set.elastic_members > 0 else 1 if victim_set.ready else 2
        return victim_set.group.priority, shape, -victim_set.group.created

    # ------------------------------------------------------------------ the rules

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        """Return whether reclaim may take the victim set.

        Either the victim's queue exceeds its allocatable share of some resource, and the
        deserved amount too. Or the preemptor's queue stays within its deserved amounts
        and the victim's queue exceeds its own of some resource.
        """
        if not _applies(preemption) or preemption.action != RECLAIM:
            return True
        ours, theirs = parting(preemption.path, victim_set.path)
        given = taken.get(theirs.name, {})
        left = {name: preemption.held(theirs).get(name, 0) - given.get(name, 0) for name in SHARED}
        if any(left[name] > _protected(theirs, name) for name in SHARED):
            return True
        if not _within_deserved(preemption, ours, taken.get(ours.name, {})):
            return False
        return any(left[name] > _deserved(theirs, name) for name in SHARED)

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        """Return whether the shares stay balanced after a reclaim.

        No queue above the preemptor may end up over its fair share by more than a
        sibling that lost victims. Of two queues without any share, neither may end up
        with more than the other. KAI lets such queues take from each other without end.
        """
        if not _applies(preemption) or preemption.action != RECLAIM:
            return True
        if any([takes_back(preemption, victim_set, freed.taken) for victim_set in freed.victim_sets]):
            return False
        names = {name for name in SHARED if preemption.request.get(name, 0) > 0}
        names |= {
            name for victim_set in freed.victim_sets for name in SHARED if victim_set.request.get(name, 0) > 0
        }
        for queue in preemption.path:
            siblings = _siblings_that_give(queue, freed)
            for name in names:
                ours = preemption.held(queue).get(name, 0) - freed.taken.get(queue.name, {}).get(name, 0)
                ours += preemption.request.get(name, 0)
                fair = queue.fair_share.get(name, 0)
                if ours <= fair:
                    continue
                for sibling in siblings:
                    theirs = preemption.held(sibling).get(name, 0) - freed.taken[sibling.name].get(name, 0)
                    bound = sibling.fair_share.get(name, 0)
                    if bound > 0 and not ours * bound < theirs * fair:
                        return False
                    if bound <= 0 and fair <= 0 and ours >= theirs:
                        return False
        return True


def takes_back(preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
    """Return whether the group of a victim set could reclaim capacity from the
    preemptor's queue.

    It could if its own queue stays within what that deserves, while the preemptor's
    queue would hold more than it deserves. Only groups of KAI's queues count.
    """
    if (
        victim_set.group.dialect is not _KAI
        or not victim_set.group.preemptible
        or victim_set.group.never_preempts
    ):
        return False
    ours, theirs = parting(preemption.path, victim_set.path)
    back, leaf = _after(preemption, theirs, taken, victim_set.request), victim_set.path[0]
    at_home = _after(preemption, leaf, taken, victim_set.request)
    if any(
        [
            back[name] > _deserved(theirs, name) or at_home[name] > leaf.fair_share.get(name, 0)
            for name in SHARED
        ]
    ):
        return False
    grown = _after(preemption, ours, taken, preemption.request)
    over = [name for name in SHARED if grown[name] > _deserved(ours, name)]
    if any([victim_set.request.get(name, 0) > 0 for name in over]):
        return True
    requested = [
        name for name in SHARED if victim_set.request.get(name, 0) > 0 and name not in ours.spec.unlimited
    ]
    return bool(over) and not any([grown[name] < _deserved(ours, name) for name in requested])


def _after(preemption: Preemption, queue: QueueView, taken: Taken, more: Mapping[str, int]) -> dict[str, int]:
    """Return the shared resources of a queue after the evictions and the added request."""
    held, given = preemption.held(queue), taken.get(queue.name, {})
    return {name: held.get(name, 0) - given.get(name, 0) + more.get(name, 0) for name in SHARED}


def _within_deserved(preemption: Preemption, queue: QueueView, given: Mapping[str, int]) -> bool:
    """Return whether the preemptor's queue would stay within its deserved amounts."""
    return all(
        preemption.held(queue).get(name, 0) - given.get(name, 0) + preemption.request.get(name, 0)
        <= _deserved(queue, name)
        for name in SHARED
    )


def _share(queue: QueueView, name: str, held: int) -> float:
    """Return held over allocatable share.

    Without a bound the cluster's amount replaces the allocatable share. If it is 0, the
    held amount counts a thousandfold.
    """
    bound = _allocatable(queue, name)
    if bound >= _NO_BOUND:
        bound = queue.cluster.get(name, 0)
    return held / bound if bound > 0 else held * 1000.0


def _siblings_that_give(queue: QueueView, freed: FreedResources) -> list[QueueView]:
    """Return the siblings of the queue from which something is taken."""
    siblings: dict[str, QueueView] = {}
    for victim_set in freed.victim_sets:
        for index, ancestor in enumerate(victim_set.path):
            above = victim_set.path[index + 1] if index + 1 < len(victim_set.path) else None
            if ancestor.name == queue.name:
                break
            if _same(above, queue.parent):
                siblings[ancestor.name] = ancestor
    return list(siblings.values())


def _same(first: QueueView | None, second: QueueView | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.name == second.name

"""Windlass' own preemption rules, for Volcano's queues without configured tiers.

* ``preempt``: inside a queue, from groups of strictly lower priority. The queue must
  not gain capacity beyond its fair share, in addition to what the victims free, that a
  waiting group of another queue would reclaim.
* ``reclaim``: for a queue that stays within its fair share, together with its ancestors
  up to the common one. Victims belong to queues that exceed their shares at every
  level. If device models are divided, a preemption that names a model stays within the
  share of that, too. A queue keeps its share of a model regardless of its other models.
* ``consolidation``: for preemptible groups, by relocating groups that allow it.

Victims are ordered by these criteria: the queue furthest over its share, the lowest
priority, elastic members of gangs, and the smallest loss of work. Pods that do not run
yet lose nothing. Others lose the time since their start or their group's last
checkpoint (annotation ``windlass.dev/checkpointed-at``, RFC 3339). If a victim set is
larger than the request, its time is multiplied by that ratio, because all its work is
lost. The time is rounded down to :data:`TICK_SECONDS`. With equal loss the smaller
victim set comes first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor, inf
from typing import Any

import msgspec

from windlass.api.reasons import Reason
from windlass.kits import timestamps
from windlass.plugins.kai.victims import takes_back
from windlass.plugins.queues.dominant_share import exceeds
from windlass.spi.objects import Dialect, Resources, TaskState
from windlass.spi.plugins import FLAVOR, QueueView
from windlass.spi.victims import (
    CompetingGroup,
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

PREEMPT = "preempt"
RECLAIM = "reclaim"
CONSOLIDATION = "consolidation"
CONSOLIDATED_GROUPS = 16
CHECKPOINTED = "windlass.dev/checkpointed-at"

TICK_SECONDS = 60.0
"""Interval (seconds) for which the order of victims stays the same.

Losses of work below this time are ignored.
"""
_ENDLESS = Fraction(1 << 200)


def _applies(preemption: Preemption) -> bool:
    return preemption.group.dialect is not _KAI


def _requested(preemption: Preemption, queue: QueueView) -> Iterable[str]:
    """Return the requested resources that are divided among queues."""
    return [name for name, units in preemption.request.items() if units > 0 and name in queue.fair_share]


class WindlassPreemptionPolicy:
    """Terms of preemption for groups in Volcano's queues."""

    name = "windlass-claims"
    dialect = Dialect.VOLCANO

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        return dialect is not _KAI

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        if not _applies(preemption):
            return None
        if preemption.action == PREEMPT:
            return PreemptionTerms(VictimScope.OWN_QUEUE, below=preemption.group.priority)
        if preemption.action == RECLAIM:
            exceeds = _Exceeds(preemption.path[0], tuple(preemption.request.items()))
            if exceeds():
                return PreemptionDenied(
                    Reason.WAITING_FOR_SHARE, detail="it would exceed its queue's fair share", stands=exceeds
                )
            return PreemptionTerms(VictimScope.OTHER_QUEUES, RelocationMode.MAY)
        if preemption.action == CONSOLIDATION and preemption.group.preemptible:
            return PreemptionTerms(VictimScope.ALL_QUEUES, RelocationMode.MUST, CONSOLIDATED_GROUPS)
        return None


class WindlassVictims:
    """Protection, order and validation of victims."""

    name = "windlass-victims"
    dialect = Dialect.VOLCANO
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return self.protects_branch(preemption, *parting(preemption.path, path))

    def protects_branch(self, preemption: Preemption, ours: QueueView, theirs: QueueView) -> bool:
        if not _applies(preemption) or preemption.action != RECLAIM:
            return False
        return not _over(preemption, theirs, {})

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        return (
            _applies(preemption)
            and preemption.action == PREEMPT
            and victim_set.group.priority >= preemption.group.priority
        )

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: Mapping[str, int]) -> Any:
        """Return the order key: furthest over the fair share first, then the lower priority."""
        if not _applies(preemption):
            return None
        ratios = [
            Fraction(max(preemption.held(queue).get(name, 0) - taken.get(name, 0), 0), share)
            if share > 0
            else _ENDLESS
            for name in _requested(preemption, queue)
            if (share := queue.fair_share.get(name, 0)) >= 0
        ]
        return -max(ratios, default=Fraction(0)), queue.spec.priority

    def victim_key_inputs(self, preemption: Preemption) -> Hashable:
        return (_measure(preemption), _tick(preemption)) if _applies(preemption) else None

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        """Return the order key: lowest priority, elastic members, least work lost, youngest."""
        if not _applies(preemption):
            return None
        shape = 0 if victim_set.elastic_members > 0 else 1
        since = _worked_since(victim_set)
        times = _times(preemption, victim_set)
        lost = max(0.0, _tick(preemption) - since) * times
        return victim_set.group.priority, shape, lost, times, -since, -victim_set.group.created

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        """Return whether the victim's queues exceed their share at every level below
        the common ancestor."""
        if not _applies(preemption) or preemption.action != RECLAIM:
            return True
        own = {queue.name for queue in preemption.path}
        for queue in victim_set.path:
            if queue.name in own:
                break
            given = taken.get(queue.name, {})
            if not _over(preemption, queue, given, victim_set.request) or _needs_models(
                preemption, queue, given, victim_set
            ):
                return False
        return True

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        """Return whether no other queue would reclaim the freed capacity at once.

        Reclaim: every queue of the preemptor below a common ancestor stays within its
        share, and no victim of KAI's queues could reclaim the capacity. Preempt: no
        waiting group could reclaim what the queue gains beyond its share.
        """
        if not _applies(preemption):
            return True
        if preemption.action == PREEMPT:
            return not _would_be_reclaimed(preemption, freed)
        if preemption.action != RECLAIM:
            return True
        for victim_set in freed.victim_sets:
            if takes_back(preemption, victim_set, freed.taken):
                return False
            theirs = {queue.name for queue in victim_set.path}
            for queue in preemption.path:
                if queue.name in theirs:
                    break
                if not _within_share(preemption, queue):
                    return False
        return True


class _Exceeds(msgspec.Struct, frozen=True):
    """Condition: the queue would hold more than its fair share of the requested resources."""

    queue: QueueView
    requested: tuple[tuple[str, int], ...]

    def __call__(self) -> bool:
        return exceeds(self.queue, self.requested)


def _within_share(preemption: Preemption, queue: QueueView) -> bool:
    """Return whether the queue stays within its fair share including the preemption's request."""
    held = preemption.held(queue)
    return all(
        held.get(name, 0) + preemption.request[name] <= queue.fair_share[name]
        for name in _requested(preemption, queue)
    )


def _would_be_reclaimed(preemption: Preemption, freed: FreedResources) -> bool:
    """Return whether a competing group could reclaim what this preemption takes.

    The queue takes more of some resource than its own victims free, and thereby exceeds
    its share. A group of another queue that stays within its share could then reclaim
    the difference.
    """
    given = freed.taken.get(preemption.path[0].name, {})
    more = {
        name: units - given.get(name, 0)
        for name, units in preemption.request.items()
        if units > given.get(name, 0)
    }
    if not preemption.group.preemptible or not any(
        _beyond(preemption, queue, more) for queue in preemption.path
    ):
        return False
    return any(_may_reclaim(preemption, more, competitor) for competitor in preemption.competitors())


def _beyond(
    preemption: Preemption, queue: QueueView, more: Resources, requested: Resources | None = None
) -> bool:
    """Return whether the queue exceeds its share of any resource in ``more``.

    :param requested: if given, only resources that it requests count
    """
    held = preemption.held(queue)
    return any(
        held.get(name, 0) + units > queue.fair_share[name]
        for name, units in more.items()
        if name in queue.fair_share and (requested is None or requested.get(name, 0) > 0)
    )


def _may_reclaim(preemption: Preemption, more: Resources, competitor: CompetingGroup) -> bool:
    """Return whether a waiting group of another queue is entitled to part of ``more``."""
    if competitor.group.dialect is _KAI or competitor.group.never_preempts:
        return False
    above = {queue.name for queue in competitor.path}
    ours = [queue for queue in preemption.path if queue.name not in above]
    above = {queue.name for queue in preemption.path}
    theirs = [queue for queue in competitor.path if queue.name not in above]
    return (
        bool(ours)
        and preemption.path[0].spec.reclaimable
        and all(_beyond(preemption, queue, more, competitor.request) for queue in ours)
        and not any(exceeds(queue, competitor.request.items()) for queue in theirs)
    )


def _over(
    preemption: Preemption,
    queue: QueueView,
    given: Mapping[str, int],
    offered: Mapping[str, int] | None = None,
) -> bool:
    """Return whether the queue exceeds its share of a resource that the preemption requests.

    :param offered: if given, only resources that it contains count
    """
    held = preemption.held(queue)
    return any(
        held.get(name, 0) - given.get(name, 0) > queue.fair_share.get(name, 0)
        for name, units in preemption.request.items()
        if units > 0 and name in queue.fair_share and (offered is None or offered.get(name, 0) > 0)
    )


def _needs_models(
    preemption: Preemption, queue: QueueView, given: Mapping[str, int], victim_set: VictimSet
) -> bool:
    """Return whether the victim set holds a device model of which its queue is within its share."""
    held = preemption.held(queue)
    return any(
        held.get(name, 0) - given.get(name, 0) <= queue.fair_share[name]
        for name, units in victim_set.request.items()
        if units > 0 and FLAVOR in name and name in queue.fair_share
    )


def _tick(preemption: Preemption) -> float:
    """Return the start of the current tick (Unix seconds)."""
    return floor(preemption.now / TICK_SECONDS) * TICK_SECONDS


def _measure(preemption: Preemption) -> tuple[str, int]:
    """Return the resource that measures the request, and its amount rounded up to a
    power of 2.

    The resource is the device that is requested most; CPU if no device is requested.
    """
    most, measured = 0, "cpu"
    for name, units in preemption.request.items():
        if units > most and "/" in name and FLAVOR not in name:
            most, measured = units, name
    most = most or preemption.request.get("cpu", 0)
    return measured, 1 << (most - 1).bit_length() if most > 0 else 0


def _times(preemption: Preemption, victim_set: VictimSet) -> float:
    """Return the ratio of the victim set's amount and the requested amount, at least 1."""
    name, units = _measure(preemption)
    return max(1.0, victim_set.request.get(name, 0) / units) if units else 1.0


def _worked_since(victim_set: VictimSet) -> float:
    """Return the start of the work that an eviction loses (Unix seconds).

    That is the last checkpoint, or the start without one. It is infinite if all pods
    are bound but not started: then no work is lost.
    """
    if victim_set.tasks and all(
        [task.state is TaskState.BOUND and task.started is None for task in victim_set.tasks]
    ):
        return inf
    since = victim_set.started if victim_set.started is not None else victim_set.group.created
    text = victim_set.group.annotations.get(CHECKPOINTED)
    if text is not None:
        try:
            return max(since, timestamps.parse_rfc3339(text))
        except ValueError:
            return since
    return since

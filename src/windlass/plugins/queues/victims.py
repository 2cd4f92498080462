"""Windlass' own rules for taking room, for Volcano's queues where no list of policies is configured.

* ``preempt``: inside a queue, from groups of strictly lower priority. What the queue gets with it beyond its fair
  share, and beyond what those leave who go, must be nothing that a waiting group of another queue would reclaim.
* ``reclaim``: a queue that stays within its fair share, with every queue above it up to where the paths part,
  takes from queues that hold more than theirs, at every level down to the victim. Where device models are
  divided, a claim that names one stays within the share of that too, and a queue keeps its share of a model
  whatever it holds of the others.
* ``consolidation``: for preemptible groups, by moving those that agreed to it.

Among those that may go: the queue furthest over its share, the lowest priority, what a gang can do
without, and then whoever loses least work for what the claim needs: what does not run yet, then what has run shortest
since it started or since its group's last checkpoint (annotation ``windlass.dev/checkpointed-at``, RFC 3339). Where a
unit has more than the claim asks for, its time counts as many times as it has that: all its work is lost. What time it
is is looked at every :data:`TICK_SECONDS`; of those that have run no longer, the one with less goes first.
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
"""So long is the order of units kept: so much work at most is taken for none."""
_ENDLESS = Fraction(1 << 200)


def _speaks(preemption: Preemption) -> bool:
    return preemption.group.dialect is not _KAI


def _requested(preemption: Preemption, queue: QueueView) -> Iterable[str]:
    """The resources of the claim that are divided among queues."""
    return [name for name, units in preemption.request.items() if units > 0 and name in queue.fair_share]


class WindlassPreemptionPolicy:
    """Which claims may look for victims."""

    name = "windlass-claims"
    dialect = Dialect.VOLCANO

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        return dialect is not _KAI

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        if not _speaks(preemption):
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
    """Who is spared, who goes first, and which sets may go."""

    name = "windlass-victims"
    dialect = Dialect.VOLCANO
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return self.protects_branch(preemption, *parting(preemption.path, path))

    def protects_branch(self, preemption: Preemption, ours: QueueView, theirs: QueueView) -> bool:
        if not _speaks(preemption) or preemption.action != RECLAIM:
            return False
        return not _over(preemption, theirs, {})

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        return (
            _speaks(preemption)
            and preemption.action == PREEMPT
            and victim_set.group.priority >= preemption.group.priority
        )

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: Mapping[str, int]) -> Any:
        """Furthest over its fair share first; then the lower priority."""
        if not _speaks(preemption):
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
        return (_gauge(preemption), _tick(preemption)) if _speaks(preemption) else None

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        """Lowest priority, beyond its minimum, least work lost, youngest."""
        if not _speaks(preemption):
            return None
        shape = 0 if victim_set.elastic_members > 0 else 1
        since = _worked_since(victim_set)
        times = _times(preemption, victim_set)
        lost = max(0.0, _tick(preemption) - since) * times
        return victim_set.group.priority, shape, lost, times, -since, -victim_set.group.created

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        """Only from queues that hold more than their share at every level below the parting."""
        if not _speaks(preemption) or preemption.action != RECLAIM:
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
        """Reclaim: every queue of the claimer below a parting stays within its share, and nobody of KAI's queues
        who goes would take it back. Preempt: nobody who waits would take back at once what the queue gets beyond its
        share."""
        if not _speaks(preemption):
            return True
        if preemption.action == PREEMPT:
            return not _taken_back(preemption, freed)
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
    """True if the queue would hold more than its fair share of what is asked for, as it stands."""

    queue: QueueView
    requested: tuple[tuple[str, int], ...]

    def __call__(self) -> bool:
        return exceeds(self.queue, self.requested)


def _within_share(preemption: Preemption, queue: QueueView) -> bool:
    """Return whether the queue holds at most its fair share once the claim is met."""
    held = preemption.held(queue)
    return all(
        held.get(name, 0) + preemption.request[name] <= queue.fair_share[name]
        for name in _requested(preemption, queue)
    )


def _taken_back(preemption: Preemption, freed: FreedResources) -> bool:
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
    return any(_may_take_back(preemption, more, competitor) for competitor in preemption.competitors())


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


def _may_take_back(preemption: Preemption, more: Resources, competitor: CompetingGroup) -> bool:
    """Return whether a group that waits elsewhere has a right to some of what the claimer's queue gets more."""
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
    """Return whether the unit holds devices of a model of which the queue holds no more than its share."""
    held = preemption.held(queue)
    return any(
        held.get(name, 0) - given.get(name, 0) <= queue.fair_share[name]
        for name, units in victim_set.request.items()
        if units > 0 and FLAVOR in name and name in queue.fair_share
    )


def _tick(preemption: Preemption) -> float:
    """Since when the order is kept. Unix seconds."""
    return floor(preemption.now / TICK_SECONDS) * TICK_SECONDS


def _gauge(preemption: Preemption) -> tuple[str, int]:
    """By what it is measured how much a claim asks for, and how much that is, rounded up to a power of 2: devices, or
    CPU where there are none."""
    most, found = 0, "cpu"
    for name, units in preemption.request.items():
        if units > most and "/" in name and FLAVOR not in name:
            most, found = units, name
    most = most or preemption.request.get("cpu", 0)
    return found, 1 << (most - 1).bit_length() if most > 0 else 0


def _times(preemption: Preemption, victim_set: VictimSet) -> float:
    """How many times what the claim asks for a unit has, at least 1."""
    name, units = _gauge(preemption)
    return max(1.0, victim_set.request.get(name, 0) / units) if units else 1.0


def _worked_since(victim_set: VictimSet) -> float:
    """Since when the unit has worked without a checkpoint: what it does not lose came before. Unix seconds; endless
    where everything of it has only been bound, and nothing runs yet: then it loses nothing."""
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

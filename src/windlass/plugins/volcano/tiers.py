"""Combination of the votes of a configuration's tiers, as in Volcano.

* victims: the pods that all voters of a tier name. The first tier that names any
  decides; later ones are not asked. A voter that names none ends its tier; one that
  abstains is ignored. Two rules go beyond Volcano. Inside a queue no pod of higher
  priority is evicted if ``priority`` has a vote. A tier in which all voters protect
  (``gang``, ``conformance``, ``pdb``, ``cdp``) without regard to the preemptor names
  lower priorities only. Otherwise two groups would preempt each other without end.
* starving: all voters of one tier must agree; the first tier with voters decides.
  Without any: not starving.
* admission: any rejection rejects; a tier with a permit ends the evaluation.
* allocation and reclaim: all must agree. overused: any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.api.reasons import Reason
from windlass.plugins.volcano.jobs.priority import PriorityEvictable, compared
from windlass.spi import renamed
from windlass.spi.inputs import Budgets, TakesBudgets
from windlass.spi.objects import Dialect, Group, Resources
from windlass.spi.plugins import QueueView, Rejection
from windlass.spi.tiers import (
    Allocatable,
    EnqueueRequest,
    Evictable,
    GangView,
    JobEnqueueable,
    JobEnqueued,
    JobStarving,
    Overused,
    PreemptionVote,
    Purpose,
    RelievesLoad,
    TaskView,
    VictimQueueOrder,
    VictimTasks,
    Vote,
)


@dataclass(slots=True)
class VotingTier:
    """Voters of one tier with an enabled vote, in the order of the file."""

    starving: list[JobStarving] = field(default_factory=list)
    enqueueable: list[JobEnqueueable] = field(default_factory=list)
    preemptable: list[Evictable] = field(default_factory=list)
    reclaimable: list[Evictable] = field(default_factory=list)
    preemptive: list[PreemptionVote] = field(default_factory=list)
    overused: list[Overused] = field(default_factory=list)
    allocatable: list[Allocatable] = field(default_factory=list)
    victim_queue_order: list[VictimQueueOrder] = field(default_factory=list)
    victim_tasks: list[VictimTasks | RelievesLoad] = field(default_factory=list)


_Ask = Callable[[Any], Sequence[TaskView] | None]


@renamed.attributes_of("Tiers")
class VolcanoTiers:
    """All votes of one configuration. ``arguments``: action → its arguments."""

    name = "tiers"

    def __init__(
        self,
        tiers: Sequence[VotingTier],
        *,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        gang_must_fit: bool = True,
        actions: Sequence[str] = (),
    ) -> None:
        self._tiers = tuple(tiers)
        self._arguments = arguments or {}
        self._gang_must_fit = gang_must_fit
        self._actions = frozenset(actions)
        weighs = [voter for tier in self._tiers for voter in tier.preemptable if not _protects(voter)]
        self._upwards = any(isinstance(voter, PriorityEvictable) for voter in weighs)
        """True if no victim has a higher priority than the preemptor."""
        self._preemptable = [
            [*tier.preemptable, PriorityEvictable()]
            if all(map(_protects, tier.preemptable))
            else tier.preemptable
            for tier in self._tiers
            if tier.preemptable
        ]
        self._overused = [voter for tier in self._tiers for voter in tier.overused]
        self._allocatable = [voter for tier in self._tiers for voter in tier.allocatable]

    def serves(self, queue: QueueView) -> bool:
        return queue.spec.dialect is Dialect.VOLCANO

    @property
    def arguments(self) -> Mapping[str, Mapping[str, Any]]:
        return self._arguments

    @property
    def gang_must_fit(self) -> bool:
        return self._gang_must_fit

    @property
    def actions(self) -> frozenset[str]:
        """Actions of the configuration, under Volcano's names."""
        return self._actions

    @property
    def timed(self) -> bool:
        return any(
            getattr(voter, "timed", False)
            for tier in self._tiers
            for voter in (*tier.preemptable, *tier.reclaimable)
        )

    def take_budgets(self, budgets: Budgets) -> None:
        """Hand PodDisruptionBudgets to the voters that use them."""
        for tier in self._tiers:
            for voter in (*tier.preemptable, *tier.reclaimable):
                if isinstance(voter, TakesBudgets):
                    voter.take_budgets(budgets)

    # ------------------------------------------------------------------ votes

    def starving(self, gang: GangView) -> bool:
        for tier in self._tiers:
            if tier.starving:
                return all(voter.starving(gang) for voter in tier.starving)
        return False

    def admit(self, admission: EnqueueRequest) -> Rejection | None:
        for tier in self._tiers:
            permitted = False
            for voter in tier.enqueueable:
                vote = voter.admit(admission)
                if isinstance(vote, Rejection):
                    return vote
                if vote is Vote.REJECT:
                    return Rejection(Reason.WAITING_FOR_QUOTA, detail="not admitted")
                permitted = permitted or vote is Vote.PERMIT
            if permitted:
                return None
        return None

    @property
    def personal(self) -> bool:
        return any(getattr(voter, "personal", False) for tier in self._tiers for voter in tier.enqueueable)

    def admitted(self, gang: GangView) -> None:
        for tier in self._tiers:
            for voter in tier.enqueueable:
                if isinstance(voter, JobEnqueued):
                    voter.admitted(gang)

    def deadline(self, group: Group) -> float | None:
        requested = [getattr(voter, "deadline", None) for tier in self._tiers for voter in tier.enqueueable]
        times = [ask(group) for ask in requested if ask is not None]
        return min((time for time in times if time is not None), default=None)

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView]:
        def ask(voter: Evictable) -> Sequence[TaskView] | None:
            return voter.victims(purpose, preemptor, candidates)

        if purpose is not Purpose.PREEMPT:
            return _first_named([tier.reclaimable for tier in self._tiers], ask)
        if self._upwards:
            candidates = [candidate for candidate in candidates if compared(preemptor, candidate) >= 0]
        return _first_named(self._preemptable, ask)

    def may_reclaim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        for tier in self._tiers:
            for voter in tier.preemptive:
                rejection = voter.may_reclaim(path, request)
                if rejection is not None:
                    return rejection
        return None

    def overused(self, queue: QueueView) -> bool:
        return any([voter.overused(queue) for voter in self._overused])

    def may_allocate(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        for voter in self._allocatable:
            rejection = voter.may_allocate(path, request)
            if rejection is not None:
                return rejection
        return None

    def victim_queue_key(self, preemptor: Sequence[QueueView], path: Sequence[QueueView]) -> tuple[Any, ...]:
        return tuple(
            [
                voter.victim_queue_key(preemptor, path)
                for tier in self._tiers
                for voter in tier.victim_queue_order
            ]
        )

    @property
    def evicting(self) -> Sequence[VictimTasks | RelievesLoad]:
        return [voter for tier in self._tiers for voter in tier.victim_tasks]


def _protects(voter: Evictable) -> bool:
    """Return whether a voter decides by the candidates alone, without regard to the preemptor."""
    return bool(getattr(voter, "ignores_preemptor", False))


def _first_named(tiers: Sequence[Sequence[Any]], ask: _Ask) -> Sequence[TaskView]:
    for voters in tiers:
        named: list[TaskView] | None = None
        for voter in voters:
            result = ask(voter)
            if result is None:
                continue
            if not result:
                named = []
                break
            if named is None:
                named = list(result)
            else:
                keys = {task.task.key for task in result}
                named = [task for task in named if task.task.key in keys]
        if named:
            return named
    return ()

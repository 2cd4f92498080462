"""Units that could be taken, and what queues offer of them.

A unit is what goes together (:mod:`windlass.engine.victims.victim_sets`). What a queue offers is kept sorted; only
groups of which something has changed (:meth:`~windlass.engine.queues.running_groups.RunningGroups.since`) are looked at
again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.queues.running_groups import RunningGroups
from windlass.spi.victims import Preemption, PreemptionTerms, VictimSet

MAX_KEPT = 50_000
"""So many places are kept for claims to come."""


@dataclass(slots=True, eq=False)
class PooledVictimSet:
    """A unit with its place in the engine."""

    view: VictimSet
    group: GroupEntry
    entries: list[TaskEntry]


class FreedByQueue:
    """What units give back, by queue."""

    def __init__(self) -> None:
        self.by_queue: dict[str, dict[str, int]] = {}

    def add(self, unit: PooledVictimSet, sign: int = 1) -> None:
        queue = unit.group.queue
        if queue is None:
            raise RuntimeError(f"{unit.group.key} holds something in no queue")
        for ancestor in queue.path:
            sums = self.by_queue.setdefault(ancestor.name, {})
            for name, units in unit.view.request.items():
                sums[name] = sums.get(name, 0) + sign * units


Places = list[tuple[Any, str, PooledVictimSet]]
"""Units with their place in the order, and the key of their group."""


@dataclass(slots=True)
class QueueVictims:
    """The first units of the groups of one queue, sorted. ``wake_at``: when time alone changes it. ``seen``: how many
    changes of groups it knows of."""

    first: Places
    wake_at: float | None
    seen: int


@dataclass(slots=True)
class FirstVictims:
    """Which unit of a group goes first, in whatever order the groups are. ``units``: by group, ``None`` where none may
    go, and when time alone changes that; only of those that somebody asked about and that have not changed since.
    ``seen``: how many changes of groups were taken in."""

    units: dict[str, tuple[PooledVictimSet | None, float | None]] = field(default_factory=dict)
    seen: int = 0

    def follow(self, running: RunningGroups) -> None:
        """Forget what has changed."""
        seen = running.seen
        if seen == self.seen:
            return
        stale = running.since(self.seen)
        self.seen = seen
        if stale is None:
            self.units.clear()
            return
        for key in stale:
            self.units.pop(key, None)


def preemptor_of(preemption: Preemption) -> tuple[Hashable, ...]:
    """Equal for claims of which the same units may go."""
    return (preemption.action, preemption.path[0].name, preemption.group.dialect, preemption.group.priority)


def kind_of(preemption: Preemption, terms: PreemptionTerms, more: Hashable) -> tuple[Hashable, ...]:
    """Equal for claims that are offered the same. ``more``: of the claim that orders go by."""
    return (*preemptor_of(preemption), terms, more)


_Kept = TypeVar("_Kept")


class VictimPool:
    """What queues offer to claims of one kind.

    Whether a unit is spared, and its place in the order, depend on nothing of a claim but what makes its
    kind: its action, its queue, its group's API and priority, and the time; and what else an order says that it goes by
    (:class:`~windlass.spi.victims.VictimKeyInputs`).
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, QueueVictims]] = {}
        self._firsts: dict[Hashable, FirstVictims] = {}
        """As orders go by more than who claims, such as the time, there are fewer of these."""
        self._state: Hashable = None
        self._asked = 0
        """How often something was asked for since it was last reckoned how much there is."""

    def renew(self, state: Hashable) -> None:
        """Before claims are made. What was offered in another state (what units' standing depends on beside their
        groups) is forgotten, and so is what was asked for longest ago where that is much: how much there is, is
        reckoned once all may have become more."""
        if state != self._state:
            self._kinds.clear()
            self._firsts.clear()
            self._state = state
        if self._asked >= len(self._kinds) > 1:
            self._asked = 0
            _shrink(self._kinds, lambda known: sum(len(offer.first) for offer in known.values()))
            _shrink(self._firsts, lambda firsts: len(firsts.units))

    def offers(self, kind: Hashable) -> dict[str, QueueVictims]:
        """Those for claims of one :func:`kind <kind_of>`, by queue."""
        found = self._kinds.pop(kind, {})
        self._kinds[kind] = found  # the last that was asked for
        self._asked += 1
        return found

    def firsts(self, preemption: Preemption) -> FirstVictims:
        """Those of the same claimer (:func:`preemptor_of`)."""
        claimer = preemptor_of(preemption)
        found = self._firsts.pop(claimer, None) or FirstVictims()
        self._firsts[claimer] = found
        return found


def _shrink(kept: dict[Hashable, _Kept], size: Callable[[_Kept], int]) -> None:
    """Drop what was asked for longest ago where there is too much."""
    sizes = {kind: size(known) for kind, known in kept.items()}
    total = sum(sizes.values())
    for kind, places in sizes.items():
        if total <= MAX_KEPT:
            break
        del kept[kind]
        total -= places

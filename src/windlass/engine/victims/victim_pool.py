"""Cache of victim sets, by queue and kind of preemption.

The first victim sets of a queue's groups are kept sorted. Only changed groups
(:meth:`~windlass.engine.queues.running_groups.RunningGroups.since`) are evaluated
again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.queues.running_groups import RunningGroups
from windlass.spi.victims import Preemption, PreemptionTerms, VictimSet

MAX_CACHED = 50_000
"""Maximum number of cached victim sets."""


@dataclass(slots=True, eq=False)
class PooledVictimSet:
    """Victim set with its group and tasks in the engine."""

    view: VictimSet
    group: GroupEntry
    entries: list[TaskEntry]


class FreedByQueue:
    """Sum of what victim sets release, by queue."""

    def __init__(self) -> None:
        self.by_queue: dict[str, dict[str, int]] = {}

    def add(self, victim_set: PooledVictimSet, sign: int = 1) -> None:
        queue = victim_set.group.queue
        if queue is None:
            raise RuntimeError(f"{victim_set.group.key} holds something in no queue")
        for ancestor in queue.path:
            sums = self.by_queue.setdefault(ancestor.name, {})
            for name, units in victim_set.view.request.items():
                sums[name] = sums.get(name, 0) + sign * units


SortedVictims = list[tuple[Any, str, PooledVictimSet]]
"""Order key, group key, victim set."""


@dataclass(slots=True)
class QueueVictims:
    """Sorted first victim sets of the groups of one queue.

    ``wake_at``: time at which time alone changes them.
    ``seen``: number of group changes that are included.
    """

    first: SortedVictims
    wake_at: float | None
    seen: int


@dataclass(slots=True)
class FirstVictims:
    """First victim set of each group, independent of the order of groups.

    ``by_group``: the set, or ``None`` if no task may be evicted, and the time at which
    time alone changes it. It contains examined groups without later changes only.
    ``seen``: number of group changes that are included.
    """

    by_group: dict[str, tuple[PooledVictimSet | None, float | None]] = field(default_factory=dict)
    seen: int = 0

    def follow(self, running: RunningGroups) -> None:
        """Forget changed groups."""
        seen = running.seen
        if seen == self.seen:
            return
        stale = running.since(self.seen)
        self.seen = seen
        if stale is None:
            self.by_group.clear()
            return
        for key in stale:
            self.by_group.pop(key, None)


def preemptor_of(preemption: Preemption) -> tuple[Hashable, ...]:
    """Return a key that is equal for preemptions with the same possible victim sets."""
    return (preemption.action, preemption.path[0].name, preemption.group.dialect, preemption.group.priority)


def kind_of(preemption: Preemption, terms: PreemptionTerms, inputs: Hashable) -> tuple[Hashable, ...]:
    """Return a key that is equal for preemptions with the same victims in the same order.

    ``inputs``: inputs of the victim order that depend on the preemption.
    """
    return (*preemptor_of(preemption), terms, inputs)


_Cached = TypeVar("_Cached")


class VictimPool:
    """Cached victims of queues by kind of preemption.

    A preemption affects the protection and the order of victims only through its kind:
    action, queue, API and priority of its group, and time. Other inputs of a victim
    order are part of the kind as well (:class:`~windlass.spi.victims.VictimKeyInputs`).
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, QueueVictims]] = {}
        self._first_victims: dict[Hashable, FirstVictims] = {}
        """This has fewer entries, because victim orders use more inputs than the preemptor."""
        self._state: Hashable = None
        self._lookups = 0
        """Number of look-ups since the size was last computed."""

    def renew(self, state: Hashable) -> None:
        """Prepare the pool for new preemptions.

        Everything from another state is forgotten; a state is what victim sets depend
        on besides their groups. If the pool is too large, the least recently used
        entries are dropped. Its size is computed only when all entries may have
        changed.
        """
        if state != self._state:
            self._kinds.clear()
            self._first_victims.clear()
            self._state = state
        if self._lookups >= len(self._kinds) > 1:
            self._lookups = 0
            _shrink(self._kinds, lambda victims: sum(len(queue.first) for queue in victims.values()))
            _shrink(self._first_victims, lambda first_victims: len(first_victims.by_group))

    def queue_victims(self, kind: Hashable) -> dict[str, QueueVictims]:
        """Return the victims by queue for preemptions of one :func:`kind <kind_of>`."""
        victims = self._kinds.pop(kind, {})
        self._kinds[kind] = victims  # most recently used
        self._lookups += 1
        return victims

    def first_victims(self, preemption: Preemption) -> FirstVictims:
        """Return the first victim sets for the same preemptor (:func:`preemptor_of`)."""
        preemptor = preemptor_of(preemption)
        victims = self._first_victims.pop(preemptor, None) or FirstVictims()
        self._first_victims[preemptor] = victims
        return victims


def _shrink(cached: dict[Hashable, _Cached], size: Callable[[_Cached], int]) -> None:
    """Drop the least recently used entries while there are too many."""
    sizes = {kind: size(victims) for kind, victims in cached.items()}
    total = sum(sizes.values())
    for kind, places in sizes.items():
        if total <= MAX_CACHED:
            break
        del cached[kind]
        total -= places

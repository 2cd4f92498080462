"""Victim candidates of one preemption, in the order of their eviction.

:class:`VictimCandidates` walks the queues that the terms and the filters leave. It
yields *victim sets* (:class:`~windlass.spi.victims.VictimSet`) one after the other. The
queue tree is walked from the top by the queue order, which knows the victims so far.
Inside a queue, the order of the victim sets decides. Of a group, elastic members come
first, one at a time, and its minimum comes last. Everything is computed on demand.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace as altered

from windlass.engine.groups.entries import BOUND, RUNNING, GroupEntry, TaskEntry
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.running_groups import RunningGroups
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.victims.victim_pool import (
    FreedByQueue,
    Places,
    PooledVictimSet,
    QueueVictims,
    VictimPool,
    kind_of,
)
from windlass.engine.victims.victim_sets import extras_and_core
from windlass.spi.victims import HeldAtStart, Preemption, PreemptionTerms, VictimScope, VictimSet, parting

_MOST = 4
"""Share of a queue's groups (1/n) from which on preemptions use the results for all of them."""


@dataclass(slots=True, eq=False)
class _Branch:
    """Queue of the tree with candidates below it. ``key`` is ``None`` after a change."""

    queue: QueueEntry
    branches: list[_Branch] = field(default_factory=list)
    heap: list[tuple[Any, str, PooledVictimSet]] = field(default_factory=list)
    key: tuple[Any, ...] | None = None

    @property
    def empty(self) -> bool:
        return not self.heap and not self.branches


class NoVictims(msgspec.Struct, frozen=True):
    """Obstacle: nothing runs in a queue, or (not ``own``) in any other queue.

    ``below``: only groups of lower priority count.
    """

    running: RunningGroups
    queue: QueueEntry
    below: int | None
    own: bool

    def __call__(self) -> bool:
        if self.own:
            return not self.running.any_of(self.queue, self.below)
        return self.running.only(self.queue.name)


class VictimCandidates:
    """Possible victims of one preemption."""

    def __init__(
        self,
        state: ClusterState,
        running: RunningGroups,
        plugins: PluginSet,
        preemption: Preemption,
        terms: PreemptionTerms,
        pool: VictimPool | None = None,
    ) -> None:
        """``pool``: results of earlier preemptions, updated to this time."""
        self._pool = pool
        self._state = state
        self._running = running
        self._plugins = plugins
        self._claim = preemption
        self._terms = terms
        self.kind = kind_of(preemption, terms, plugins.goes_by(preemption))
        """Equal for preemptions with the same candidates."""
        kept = pool or VictimPool()
        self._offers = kept.offers(self.kind)
        self._firsts = kept.firsts(preemption)
        for queue in preemption.path:
            preemption.held(queue)
        self._only: dict[str, list[GroupEntry]] | None = None
        """Queue → groups to examine; ``None`` for all."""
        self._queues: list[QueueEntry] | None = None
        self.wake_at: float | None = None
        """Time at which time alone adds a candidate, as far as candidates were examined."""

    @property
    def unsorted(self) -> bool:
        """Return whether the sorted candidates are not cached yet, which makes them expensive."""
        return not self._offers

    # ------------------------------------------------------------------ candidates

    def queues(self) -> list[QueueEntry]:
        """Return the leaf queues in which victims may be searched, as the preemption finds them."""
        if self._queues is None:
            self._queues = self._open_queues()
        return self._queues

    def _open_queues(self) -> list[QueueEntry]:
        preemption, state = self._claim, self._state
        own = preemption.path[0].name
        if self._terms.scope is VictimScope.OWN_QUEUE:
            names = [own]
        else:
            names = self._running.queues()
            if self._terms.scope is VictimScope.OTHER_QUEUES:
                names = [name for name in names if name != own]
        found = []
        above = {queue.name for queue in preemption.path}
        branches: dict[str, bool] = {}
        noted: set[str] = set()
        for name in names:
            queue = state.queues.get(name)
            if not self._running.any_of(queue, self._terms.below):
                continue
            branch = name
            for ancestor in queue.path:
                if ancestor.name in above:
                    break
                branch = ancestor.name
            spared = branches.get(branch)
            if spared is None:
                spared = branches[branch] = self._spares_branch(queue)
            if spared or any([p.spares_queue(preemption, queue.path) for p in self._plugins.queue_filters]):
                continue
            found.append(queue)
            for ancestor in queue.path:
                if ancestor.name in noted:
                    break
                noted.add(ancestor.name)
                preemption.held(ancestor)
        return found

    @property
    def nobody(self) -> Callable[[], bool] | None:
        """Return the obstacle that nothing runs in any eligible queue, if this is the case."""
        running, preemption, below = self._running, self._claim, self._terms.below
        if self._terms.scope is VictimScope.OWN_QUEUE:
            nobody = NoVictims(running, self._state.queues.get(preemption.path[0].name), below, own=True)
        elif self._terms.scope is VictimScope.OTHER_QUEUES:
            nobody = NoVictims(running, self._state.queues.get(preemption.path[0].name), None, own=False)
        else:
            return None
        return nobody if nobody() else None

    def _spares_branch(self, queue: QueueEntry) -> bool:
        """Return whether the branch of the queue below the common ancestor is protected."""
        ours, theirs = parting(self._claim.path, queue.path)
        return any(plugin.spares_branch(self._claim, ours, theirs) for plugin in self._plugins.branch_filters)

    def units_of(self, group: GroupEntry) -> Iterator[PooledVictimSet]:
        """Yield the victim sets of a group in order.

        The minimum only if all elastic members come before.
        """
        if not self._offered(group):
            return
        extras, rest = extras_and_core(group)
        units, last = ([*extras, rest] if rest else extras), len(extras)
        members = sum(map(len, units))
        stays = False  # a protected elastic member would be left below the group's minimum
        for at, entries in enumerate(units):
            core = at == last
            if core and stays:
                return
            unit = self._unit(group, entries, core=core, spare=last - at, members=members)
            members -= len(entries)
            if not all(_takeable(entry) for entry in entries) or self._spared(unit.view):
                stays = True
                continue
            yield unit

    def _spared(self, view: VictimSet) -> bool:
        for plugin in self._plugins.victim_filters:
            if plugin.spares(self._claim, view):
                until = getattr(plugin, "spared_until", None)
                moment = until(self._claim, view) if until is not None else None
                self.note_wake(moment)
                return True
        return False

    def _offered(self, group: GroupEntry) -> bool:
        spec, preemption = group.group, self._claim
        if spec is None or not spec.preemptible or group.active <= 0 or group.queue is None:
            return False
        return not spec.guest or spec.yields_to(preemption.action, preemption.group.priority)

    def _unit(
        self, group: GroupEntry, entries: list[TaskEntry], *, core: bool, spare: int, members: int
    ) -> PooledVictimSet:
        if len(entries) == 1:
            request: Mapping[str, int] = entries[0].cls.request
        else:
            total: dict[str, int] = {}
            for entry in entries:
                for name, units in entry.cls.items:
                    total[name] = total.get(name, 0) + units
            request = total
        if self._state.queues.flavors:
            request = self._with_models(request, entries)
        queue = group.queue
        starts = [entry.task.started for entry in entries if entry.task.started is not None]
        view = VictimSet(
            group.spec,
            queue.path if queue is not None else (),
            tuple(entry.task for entry in entries),
            request,
            core,
            spare,
            group.ready(),
            members,
            len(group.tasks),
            min(starts) if starts else group.spec.started,
            group.finished,
        )
        return PooledVictimSet(view, group, entries)

    def _with_models(self, request: Mapping[str, int], entries: Iterable[TaskEntry]) -> Mapping[str, int]:
        """Return the request of tasks, with amounts by device model added."""
        found = dict(request)
        for entry in entries:
            for name, units in self._state.ledger.counters.by_model(entry.cls, entry.row).items():
                found[name] = found.get(name, 0) + units
        return found

    def everyone(self) -> Iterator[TaskEntry]:
        """Yield all tasks that could be evicted at most, unordered, for necessary conditions."""
        for queue in self.queues():
            for group in self._groups(queue):
                if self._offered(group) and group.key != self._claim.group.key:
                    for entry in group.tasks.values():
                        if _takeable(entry):
                            yield entry

    def anew(self, now: float) -> VictimCandidates:
        """Return the candidates of the same preemption at another time."""
        preemption = altered(self._claim, now=now, held_at_start=HeldAtStart())
        return VictimCandidates(
            self._state, self._running, self._plugins, preemption, self._terms, self._pool
        )

    @property
    def common(self) -> bool:
        """Return whether the candidates are those of every preemption of this kind."""
        own = self._state.groups.get(self._claim.group.key)
        return self._pool is not None and self._only is None and (own is None or not own.active)

    def standing(self) -> tuple[object, ...]:
        """Return a key; while its parts are unchanged, so are the candidates and their order."""
        return (self._offers, self._running.seen, self._claim.now, *[queue.name for queue in self.queues()])

    def leading(self, limit: int) -> Iterator[TaskEntry]:
        """Yield the evictable tasks of the first ``limit`` groups of each queue.

        They contain the first ``limit`` groups of all.
        """
        own = self._claim.group.key
        for queue in self.queues():
            left = limit
            for _, key, unit in self._offered_by(queue):
                if key != own:
                    yield from (entry for entry in unit.group.tasks.values() if _takeable(entry))
                    left -= 1
                    if not left:
                        break

    def _groups(self, queue: QueueEntry) -> Iterator[GroupEntry]:
        """Return the running groups of a queue that are examined."""
        if self._only is None:
            return self._running.within(queue, self._terms.below)
        return iter(self._only.get(queue.name, ()))

    def look_only_at(self, groups: Iterable[GroupEntry]) -> None:
        """Restrict the candidates to these groups."""
        self._only = {}
        for group in groups:
            if group.queue is not None:
                self._only.setdefault(group.queue.name, []).append(group)

    def one_by_one(self, units: Iterator[PooledVictimSet]) -> Iterator[PooledVictimSet]:
        """Split victim sets into single tasks, for relocations.

        The last task of a minimum comes first.
        """
        for unit in units:
            if len(unit.entries) == 1:
                yield unit
                continue
            for entry in sorted(unit.entries, key=unit.group.place_of, reverse=True):
                view = unit.view
                yield self._unit(unit.group, [entry], core=view.core, spare=view.spare, members=view.members)

    # ------------------------------------------------------------------ order

    def in_order(self, *, only_allowed: bool, without: Collection[str] = ()) -> Iterator[PooledVictimSet]:
        """Yield the victim sets in the order of eviction.

        ``only_allowed``: skip sets that the rules do not allow after the previous ones.
        ``without``: groups to leave out.
        """
        taking = FreedByQueue()
        taken_apart: dict[str, Iterator[PooledVictimSet]] = {}
        roots = self._grow(without)
        while roots:
            path: list[_Branch] = []
            level = roots
            while level:
                best = min(level, key=lambda branch: self._key(branch, taking))
                path.append(best)
                level = best.branches
            heap = path[-1].heap
            unit = heapq.heappop(heap)[-1]
            group = unit.group
            rest = taken_apart.get(group.key)
            if rest is None:
                rest = taken_apart[group.key] = self.units_of(group)
                next(rest, None)
            follower = next(rest, None)
            if follower is not None:
                heapq.heappush(heap, (self._order_key(follower), group.key, follower))
            allowed = all(
                plugin.may_take(self._claim, unit.view, taking.by_queue)
                for plugin in self._plugins.validations
            )
            if allowed:
                taking.add(unit)
            self._prune(roots, path)
            if allowed or not only_allowed:
                yield unit

    def _order_key(self, unit: PooledVictimSet) -> tuple[Any, ...]:
        return tuple([order.victim_key(self._claim, unit.view) for order in self._plugins.victim_orders])

    def _first_units(self, queue: QueueEntry, without: Collection[str]) -> Places:
        """Return the first victim sets of a queue's groups, as a new heap."""
        first, own = self._offered_by(queue), self._claim.group.key
        if without or self._state.groups[own].active:
            return [place for place in first if place[1] != own and place[1] not in without]
        return first.copy()

    def _offered_by(self, queue: QueueEntry) -> Places:
        """Return the sorted first victim sets of the examined groups of a queue.

        Do not change the list.
        """
        if self._only is None:
            return self._offer(queue).first
        only = self._only.get(queue.name, ())
        if _MOST * len(only) >= self._running.count(queue):
            keys = {group.key for group in only}
            return [place for place in self._offer(queue).first if place[1] in keys]
        places, moment = self._looked_at(only)
        self.note_wake(moment)
        return places

    def _offer(self, queue: QueueEntry) -> QueueVictims:
        """Return the current candidates of a queue for this kind of preemption."""
        running, offer = self._running, self._offers.get(queue.name)
        seen = running.seen
        stale: Mapping[str, GroupEntry] | None = {}
        if offer is not None and offer.seen != seen:
            stale = running.since(offer.seen)
        if offer is None or stale is None or (offer.wake_at is not None and offer.wake_at <= self._claim.now):
            offer = QueueVictims(*self._looked_at(running.within(queue, self._terms.below)), seen)
            self._offers[queue.name] = offer
        elif stale:
            places, moment = self._looked_at(
                g for g in stale.values() if g.active > 0 and g.group and g.queue is queue
            )
            if places or any(place[1] in stale for place in offer.first):
                offer.first = [place for place in offer.first if place[1] not in stale]
                for place in places:
                    insort(offer.first, place, key=_place)
            if moment is not None and (offer.wake_at is None or moment < offer.wake_at):
                offer.wake_at = moment
        offer.seen = seen
        self.note_wake(offer.wake_at)
        return offer

    def _looked_at(self, groups: Iterable[GroupEntry]) -> tuple[Places, float | None]:
        """Return the sorted first victim sets of groups, and the time until which they are valid."""
        self._firsts.follow(self._running)
        before, self.wake_at = self.wake_at, None
        places, moment = sorted(self._entries(groups), key=_place), self.wake_at
        self.wake_at = before
        return places, moment

    def _entries(self, groups: Iterable[GroupEntry]) -> Iterator[tuple[Any, str, PooledVictimSet]]:
        below = self._terms.below
        for group in groups:
            if below is not None and group.spec.priority >= below:
                continue
            unit = self._first(group)
            if unit is not None:
                yield self._order_key(unit), group.key, unit

    def _first(self, group: GroupEntry) -> PooledVictimSet | None:
        """Return the first victim set of a group, if there is one."""
        known = self._firsts.units.get(group.key)
        if known is None or (known[1] is not None and known[1] <= self._claim.now):
            before, self.wake_at = self.wake_at, None
            unit = next(self.units_of(group), None)
            known = self._firsts.units[group.key] = unit, self.wake_at
            self.wake_at = before
        self.note_wake(known[1])
        return known[0]

    def note_wake(self, moment: float | None) -> None:
        """Record that time alone adds a candidate at ``time``."""
        if moment is not None and (self.wake_at is None or moment < self.wake_at):
            self.wake_at = moment

    def _grow(self, without: Collection[str]) -> list[_Branch]:
        """Return the tree of queues with candidates.

        Queues with own work have a heap of first victim sets.
        """
        branches: dict[str, _Branch] = {}
        roots: list[_Branch] = []
        for queue in self.queues():
            heap = self._first_units(queue, without)
            if not heap:
                continue
            below: _Branch | None = None
            for ancestor in queue.path:
                known = branches.get(ancestor.name)
                branch = known or _Branch(ancestor)
                branches[ancestor.name] = branch
                if below is None:
                    branch.heap = heap
                else:
                    branch.branches.append(below)
                if known is not None:
                    break  # already linked; an inner queue may have own work
                below = branch
            else:
                if below is not None:
                    roots.append(below)
        return roots

    def _key(self, branch: _Branch, taking: FreedByQueue) -> tuple[Any, ...]:
        if branch.key is None:
            queue = branch.queue
            taken = taking.by_queue.get(queue.name, {})
            branch.key = (
                *(order.victim_queue_key(self._claim, queue, taken) for order in self._plugins.victim_orders),
                -queue.spec.created,
                queue.name,
            )
        return branch.key

    @staticmethod
    def _prune(roots: list[_Branch], path: Sequence[_Branch]) -> None:
        """Void the keys along a path, and remove the queues without candidates."""
        for branch in path:
            branch.key = None
        for at in range(len(path) - 1, -1, -1):
            if path[at].empty:
                (path[at - 1].branches if at else roots).remove(path[at])


def _place(offered: tuple[Any, str, PooledVictimSet]) -> tuple[Any, str]:
    return offered[0], offered[1]


def _takeable(entry: TaskEntry) -> bool:
    """Return whether a task may be evicted. A bind that is not confirmed yet protects it."""
    task = entry.task
    return entry.state in (BOUND, RUNNING) and task.preemptible and not task.critical

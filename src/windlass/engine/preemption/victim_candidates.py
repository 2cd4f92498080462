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
    PooledVictimSet,
    QueueVictims,
    SortedVictims,
    VictimPool,
    kind_of,
)
from windlass.engine.victims.victim_sets import elastic_and_minimum
from windlass.spi.victims import HeldAtStart, Preemption, PreemptionTerms, VictimScope, VictimSet, parting

_SHARE_DIVISOR = 4
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
        return self.running.runs_only_in(self.queue.name)


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
        self._preemption = preemption
        self._terms = terms
        self.kind = kind_of(preemption, terms, plugins.victim_key_inputs(preemption))
        """Equal for preemptions with the same candidates."""
        pool_used = pool or VictimPool()
        self._by_queue = pool_used.queue_victims(self.kind)
        self._first_victims = pool_used.first_victims(preemption)
        for queue in preemption.path:
            preemption.held(queue)
        self._only: dict[str, list[GroupEntry]] | None = None
        """Queue → groups to examine; ``None`` for all."""
        self._queues: list[QueueEntry] | None = None
        self.wake_at: float | None = None
        """Time at which time alone adds a candidate, as far as candidates were examined."""

    @property
    def is_unsorted(self) -> bool:
        """Return whether the sorted candidates are not cached yet, which makes them expensive."""
        return not self._by_queue

    # ------------------------------------------------------------------ candidates

    def queues(self) -> list[QueueEntry]:
        """Return the leaf queues in which victims may be searched, as the preemption finds them."""
        if self._queues is None:
            self._queues = self._open_queues()
        return self._queues

    def _open_queues(self) -> list[QueueEntry]:
        preemption, state = self._preemption, self._state
        own = preemption.path[0].name
        if self._terms.scope is VictimScope.OWN_QUEUE:
            names = [own]
        else:
            names = self._running.queues()
            if self._terms.scope is VictimScope.OTHER_QUEUES:
                names = [name for name in names if name != own]
        result = []
        above = {queue.name for queue in preemption.path}
        branches: dict[str, bool] = {}
        computed: set[str] = set()
        for name in names:
            queue = state.queues.get(name)
            if not self._running.any_of(queue, self._terms.below):
                continue
            branch = name
            for ancestor in queue.path:
                if ancestor.name in above:
                    break
                branch = ancestor.name
            protected = branches.get(branch)
            if protected is None:
                protected = branches[branch] = self._protects_branch(queue)
            if protected or any(
                [p.protects_queue(preemption, queue.path) for p in self._plugins.queue_filters]
            ):
                continue
            result.append(queue)
            for ancestor in queue.path:
                if ancestor.name in computed:
                    break
                computed.add(ancestor.name)
                preemption.held(ancestor)
        return result

    @property
    def no_victims(self) -> Callable[[], bool] | None:
        """Return the obstacle that nothing runs in any eligible queue, if this is the case."""
        running, preemption, below = self._running, self._preemption, self._terms.below
        if self._terms.scope is VictimScope.OWN_QUEUE:
            obstacle = NoVictims(running, self._state.queues.get(preemption.path[0].name), below, own=True)
        elif self._terms.scope is VictimScope.OTHER_QUEUES:
            obstacle = NoVictims(running, self._state.queues.get(preemption.path[0].name), None, own=False)
        else:
            return None
        return obstacle if obstacle() else None

    def _protects_branch(self, queue: QueueEntry) -> bool:
        """Return whether the branch of the queue below the common ancestor is protected."""
        own_branch, other_branch = parting(self._preemption.path, queue.path)
        return any(
            plugin.protects_branch(self._preemption, own_branch, other_branch)
            for plugin in self._plugins.branch_filters
        )

    def victim_sets_of(self, group: GroupEntry) -> Iterator[PooledVictimSet]:
        """Yield the victim sets of a group in order.

        The minimum only if all elastic members come before.
        """
        if not self._is_candidate(group):
            return
        elastic, remaining_sets = elastic_and_minimum(group)
        victim_sets, minimum_index = ([*elastic, remaining_sets] if remaining_sets else elastic), len(elastic)
        members = sum(map(len, victim_sets))
        keeps_elastic = False  # a protected elastic member would be left below the group's minimum
        for index, entries in enumerate(victim_sets):
            is_minimum = index == minimum_index
            if is_minimum and keeps_elastic:
                return
            victim_set = self._victim_set(
                group, entries, is_minimum=is_minimum, spare=minimum_index - index, members=members
            )
            members -= len(entries)
            if not all(_is_evictable(entry) for entry in entries) or self._is_protected(victim_set.view):
                keeps_elastic = True
                continue
            yield victim_set

    def _is_protected(self, view: VictimSet) -> bool:
        for plugin in self._plugins.victim_filters:
            if plugin.protects_victim(self._preemption, view):
                until = getattr(plugin, "protected_until", None)
                time = until(self._preemption, view) if until is not None else None
                self.wake_no_later(time)
                return True
        return False

    def _is_candidate(self, group: GroupEntry) -> bool:
        spec, preemption = group.group, self._preemption
        if spec is None or not spec.preemptible or group.active <= 0 or group.queue is None:
            return False
        return not spec.guest or spec.yields_to(preemption.action, preemption.group.priority)

    def _victim_set(
        self, group: GroupEntry, entries: list[TaskEntry], *, is_minimum: bool, spare: int, members: int
    ) -> PooledVictimSet:
        if len(entries) == 1:
            request: Mapping[str, int] = entries[0].cls.request
        else:
            total: dict[str, int] = {}
            for entry in entries:
                for name, victim_sets in entry.cls.items:
                    total[name] = total.get(name, 0) + victim_sets
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
            is_minimum,
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
        result = dict(request)
        for entry in entries:
            for name, victim_sets in self._state.ledger.counters.by_model(entry.cls, entry.row).items():
                result[name] = result.get(name, 0) + victim_sets
        return result

    def all_tasks(self) -> Iterator[TaskEntry]:
        """Yield all tasks that could be evicted at most, unordered, for necessary conditions."""
        for queue in self.queues():
            for group in self._groups(queue):
                if self._is_candidate(group) and group.key != self._preemption.group.key:
                    for entry in group.tasks.values():
                        if _is_evictable(entry):
                            yield entry

    def renewed(self, now: float) -> VictimCandidates:
        """Return the candidates of the same preemption at another time."""
        preemption = altered(self._preemption, now=now, held_at_start=HeldAtStart())
        return VictimCandidates(
            self._state, self._running, self._plugins, preemption, self._terms, self._pool
        )

    @property
    def is_shared(self) -> bool:
        """Return whether the candidates are those of every preemption of this kind."""
        own = self._state.groups.get(self._preemption.group.key)
        return self._pool is not None and self._only is None and (own is None or not own.active)

    def state_key(self) -> tuple[object, ...]:
        """Return a key; while its parts are unchanged, so are the candidates and their order."""
        return (
            self._by_queue,
            self._running.seen,
            self._preemption.now,
            *[queue.name for queue in self.queues()],
        )

    def leading_tasks(self, limit: int) -> Iterator[TaskEntry]:
        """Yield the evictable tasks of the first ``limit`` groups of each queue.

        They contain the first ``limit`` groups of all.
        """
        own = self._preemption.group.key
        for queue in self.queues():
            remaining = limit
            for _, key, victim_set in self._sorted_victims(queue):
                if key != own:
                    yield from (entry for entry in victim_set.group.tasks.values() if _is_evictable(entry))
                    remaining -= 1
                    if not remaining:
                        break

    def _groups(self, queue: QueueEntry) -> Iterator[GroupEntry]:
        """Return the running groups of a queue that are examined."""
        if self._only is None:
            return self._running.within(queue, self._terms.below)
        return iter(self._only.get(queue.name, ()))

    def restrict_to(self, groups: Iterable[GroupEntry]) -> None:
        """Restrict the candidates to these groups."""
        self._only = {}
        for group in groups:
            if group.queue is not None:
                self._only.setdefault(group.queue.name, []).append(group)

    def one_by_one(self, victim_sets: Iterator[PooledVictimSet]) -> Iterator[PooledVictimSet]:
        """Split victim sets into single tasks, for relocations.

        The last task of a minimum comes first.
        """
        for victim_set in victim_sets:
            if len(victim_set.entries) == 1:
                yield victim_set
                continue
            for entry in sorted(victim_set.entries, key=victim_set.group.place_of, reverse=True):
                view = victim_set.view
                yield self._victim_set(
                    victim_set.group,
                    [entry],
                    is_minimum=view.is_minimum,
                    spare=view.elastic_members,
                    members=view.members,
                )

    # ------------------------------------------------------------------ order

    def in_order(
        self,
        *,
        only_allowed: bool,
        movable: Callable[[PooledVictimSet], bool] = lambda _: True,
        without: Collection[str] = (),
    ) -> Iterator[PooledVictimSet]:
        """Yield the victim sets in the order of eviction.

        ``only_allowed``: skip sets that the rules do not allow after the previous ones.
        ``movable``: otherwise, sets that are not allowed but may be relocated.
        ``without``: groups to leave out.
        """
        freed = FreedByQueue()
        remaining_by_group: dict[str, Iterator[PooledVictimSet]] = {}
        roots = self._build_tree(without)
        while roots:
            path: list[_Branch] = []
            level = roots
            while level:
                best = min(level, key=lambda branch: self._key(branch, freed))
                path.append(best)
                level = best.branches
            heap = path[-1].heap
            victim_set = heapq.heappop(heap)[-1]
            group = victim_set.group
            remaining_sets = remaining_by_group.get(group.key)
            if remaining_sets is None:
                remaining_sets = remaining_by_group[group.key] = self.victim_sets_of(group)
                next(remaining_sets, None)
            next_set = next(remaining_sets, None)
            if next_set is not None:
                heapq.heappush(heap, (self._order_key(next_set), group.key, next_set))
            allowed = all(
                plugin.may_take(self._preemption, victim_set.view, freed.by_queue)
                for plugin in self._plugins.validations
            )
            if allowed:
                freed.add(victim_set)
            self._prune(roots, path)
            if allowed or (not only_allowed and movable(victim_set)):
                yield victim_set

    def _order_key(self, victim_set: PooledVictimSet) -> tuple[Any, ...]:
        return tuple(
            [order.victim_key(self._preemption, victim_set.view) for order in self._plugins.victim_orders]
        )

    def _heap_of(self, queue: QueueEntry, without: Collection[str]) -> SortedVictims:
        """Return the first victim sets of a queue's groups, as a new heap."""
        first, own = self._sorted_victims(queue), self._preemption.group.key
        if without or self._state.groups[own].active:
            return [triple for triple in first if triple[1] != own and triple[1] not in without]
        return first.copy()

    def _sorted_victims(self, queue: QueueEntry) -> SortedVictims:
        """Return the sorted first victim sets of the examined groups of a queue.

        Do not change the list.
        """
        if self._only is None:
            return self._queue_victims(queue).first
        only = self._only.get(queue.name, ())
        if _SHARE_DIVISOR * len(only) >= self._running.count(queue):
            keys = {group.key for group in only}
            return [triple for triple in self._queue_victims(queue).first if triple[1] in keys]
        victims, time = self._evaluate(only)
        self.wake_no_later(time)
        return victims

    def _queue_victims(self, queue: QueueEntry) -> QueueVictims:
        """Return the current candidates of a queue for this kind of preemption."""
        running, victims_of_queue = self._running, self._by_queue.get(queue.name)
        seen = running.seen
        stale: Mapping[str, GroupEntry] | None = {}
        if victims_of_queue is not None and victims_of_queue.seen != seen:
            stale = running.since(victims_of_queue.seen)
        if (
            victims_of_queue is None
            or stale is None
            or (victims_of_queue.wake_at is not None and victims_of_queue.wake_at <= self._preemption.now)
        ):
            victims_of_queue = QueueVictims(*self._evaluate(running.within(queue, self._terms.below)), seen)
            self._by_queue[queue.name] = victims_of_queue
        elif stale:
            victims, time = self._evaluate(
                g for g in stale.values() if g.active > 0 and g.group and g.queue is queue
            )
            if victims or any(place[1] in stale for place in victims_of_queue.first):
                victims_of_queue.first = [place for place in victims_of_queue.first if place[1] not in stale]
                for triple in victims:
                    insort(victims_of_queue.first, triple, key=_sort_key)
            if time is not None and (victims_of_queue.wake_at is None or time < victims_of_queue.wake_at):
                victims_of_queue.wake_at = time
        victims_of_queue.seen = seen
        self.wake_no_later(victims_of_queue.wake_at)
        return victims_of_queue

    def _evaluate(self, groups: Iterable[GroupEntry]) -> tuple[SortedVictims, float | None]:
        """Return the sorted first victim sets of groups, and the time until which they are valid."""
        self._first_victims.follow(self._running)
        before, self.wake_at = self.wake_at, None
        victims, time = sorted(self._entries(groups), key=_sort_key), self.wake_at
        self.wake_at = before
        return victims, time

    def _entries(self, groups: Iterable[GroupEntry]) -> Iterator[tuple[Any, str, PooledVictimSet]]:
        below = self._terms.below
        for group in groups:
            if below is not None and group.spec.priority >= below:
                continue
            victim_set = self._first_victim_set(group)
            if victim_set is not None:
                yield self._order_key(victim_set), group.key, victim_set

    def _first_victim_set(self, group: GroupEntry) -> PooledVictimSet | None:
        """Return the first victim set of a group, if there is one."""
        cached = self._first_victims.by_group.get(group.key)
        if cached is None or (cached[1] is not None and cached[1] <= self._preemption.now):
            before, self.wake_at = self.wake_at, None
            victim_set = next(self.victim_sets_of(group), None)
            cached = self._first_victims.by_group[group.key] = victim_set, self.wake_at
            self.wake_at = before
        self.wake_no_later(cached[1])
        return cached[0]

    def wake_no_later(self, time: float | None) -> None:
        """Record that time alone adds a candidate at ``time``."""
        if time is not None and (self.wake_at is None or time < self.wake_at):
            self.wake_at = time

    def _build_tree(self, without: Collection[str]) -> list[_Branch]:
        """Return the tree of queues with candidates.

        Queues with own work have a heap of first victim sets.
        """
        branches: dict[str, _Branch] = {}
        roots: list[_Branch] = []
        for queue in self.queues():
            heap = self._heap_of(queue, without)
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

    def _key(self, branch: _Branch, freed: FreedByQueue) -> tuple[Any, ...]:
        if branch.key is None:
            queue = branch.queue
            taken = freed.by_queue.get(queue.name, {})
            branch.key = (
                *(
                    order.victim_queue_key(self._preemption, queue, taken)
                    for order in self._plugins.victim_orders
                ),
                -queue.spec.created,
                queue.name,
            )
        return branch.key

    @staticmethod
    def _prune(roots: list[_Branch], path: Sequence[_Branch]) -> None:
        """Void the keys along a path, and remove the queues without candidates."""
        for branch in path:
            branch.key = None
        for index in range(len(path) - 1, -1, -1):
            if path[index].empty:
                (path[index - 1].branches if index else roots).remove(path[index])


def _sort_key(offered: tuple[Any, str, PooledVictimSet]) -> tuple[Any, str]:
    return offered[0], offered[1]


def _is_evictable(entry: TaskEntry) -> bool:
    """Return whether a task may be evicted. A bind that is not confirmed yet protects it."""
    task = entry.task
    return entry.state in (BOUND, RUNNING) and task.preemptible and not task.critical

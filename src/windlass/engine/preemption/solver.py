"""Solver for preemptions: finds victims within the rules, proven by placing the preemptor.

Necessary conditions on resources are checked first. Then victim sets are searched
(:mod:`windlass.engine.preemption.victim_search`). If rules forbid the cheapest sets
together, a bounded number of alternatives is tried.

A statement with a solution contains all evictions, nominations and moves. Without a
solution it is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace as altered
from numpy.typing import NDArray

from windlass.engine.groups.entries import GroupEntry, NextTasks, tasks_on
from windlass.engine.groups.next_step import whole_step_view
from windlass.engine.nodes.table import PODS, NodeTable
from windlass.engine.pending.capacity_if_evicted import CapacityIfEvicted, FutureFree, missing_fractions
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.placement.placer import Placer
from windlass.engine.plugin_set import PluginSet
from windlass.engine.preemption.relocation import Relocator
from windlass.engine.preemption.repacking_bound import RepackingBound
from windlass.engine.preemption.victim_candidates import VictimCandidates
from windlass.engine.preemption.victim_search import LazyVictimOrder, SearchContext, VictimSearch
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims.victim_pool import PooledVictimSet
from windlass.spi.victims import Preemption, PreemptionTerms, RelocationMode

MAX_NODES = 64
"""Number of nodes from which work may be moved for one preemption, plus one per task."""
MAX_LONGER_PREFIXES = 16
"""Number of longer prefixes to try if the shortest one that frees enough breaks a rule."""
Wants = tuple[tuple[int, tuple[int, ...]], ...]
"""Column → request of each of some tasks."""


class InsufficientTotal(msgspec.Struct, frozen=True):
    """Obstacle: all nodes together have too little left of a resource without shared devices."""

    table: NodeTable
    future_free: FutureFree
    name: str
    units: int

    def __call__(self) -> bool:
        table = self.table
        if table.shares.has_shares and self.name in table.shares.resources:
            return False
        return self.future_free.sums()[table.resources.codes[self.name]] < self.units


class Fragmented:
    """Obstacle: capacity is too fragmented for the step, even if the first groups move."""

    def __init__(
        self,
        solver: PreemptionSolver,
        candidates: VictimCandidates,
        limit: int,
        wanted: int,
        wants: Wants,
    ) -> None:
        """``wants``: column → request of each task of the step.

        ``wanted``: number of tasks that have to fit.
        """
        self._solver = solver
        self._candidates = candidates
        self._limit = limit
        self._need = (wanted, wants)
        self._minimum = [(column, sum(sorted(requests)[:wanted])) for column, requests in wants]
        """Column → minimum amount that the step takes."""
        self._key = (limit, wanted, wants, *candidates.kind)

    def holds_now(self, candidates: VictimCandidates) -> bool:
        """Return whether this holds for these candidates."""
        repacking, expires = self._solver.repack(candidates, self._limit)
        candidates.wake_no_later(expires)
        return self._is_too_little(repacking)

    def __call__(self) -> bool:
        """Return whether this still holds, independent of time."""
        if self._solver.has_shares:
            return False
        remaining = self._solver.remaining()
        if any([remaining[column] < victim_sets for column, victim_sets in self._minimum]):
            return True  # less than before: not enough in total
        repacking, expires = self._solver.repack(self._candidates.renewed(self._solver.time), self._limit)
        return expires is None and self._is_too_little(repacking)

    def _is_too_little(self, repacking: RepackingBound) -> bool:
        wanted, wants = self._need
        return not all([repacking.could_hold(column, requests, wanted) for column, requests in wants])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fragmented) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class PreemptionSolver:
    def __init__(
        self,
        state: ClusterState,
        plugins: PluginSet,
        placer: Placer,
        gang_allocator: GangAllocator,
        statement: Statement,
    ) -> None:
        """Finds the victims of one preemption."""
        self._state = state
        self._plugins = plugins
        self._placer = placer
        self._gang_allocator = gang_allocator
        self._statement = statement
        self._future_free = FutureFree(state.table)
        self._repacking: tuple[tuple[object, ...], RepackingBound, float | None] | None = None
        """Last repacking bound: its key, the bound, and the time until which it is valid."""
        self.time = 0.0
        """Unix seconds."""
        self.obstacle: Callable[[], bool] | None = None
        """Easily checked reason for the last failure.

        While it returns true, there is no solution for any preemption with the same
        request and terms.
        """
        self._context = SearchContext(
            state,
            plugins,
            gang_allocator,
            statement,
            Relocator(state, plugins, placer, gang_allocator, statement),
        )

    def solve(
        self,
        preemption: Preemption,
        terms: PreemptionTerms,
        candidates: VictimCandidates,
        group: GroupEntry,
        step: NextTasks,
    ) -> list[PooledVictimSet] | None:
        """Return the victim sets, with all operations in the statement.

        ``None`` if there is no solution. The result is empty if no eviction is needed:
        placements since the last try may have been what was missing.
        """
        self.obstacle = None
        if terms.move is RelocationMode.MUST:
            insufficient = self._insufficient(preemption, step)
            if insufficient is not None:
                self.obstacle = self.insufficient_total(*insufficient)
                return None
            if terms.only is not None:
                candidates.restrict_to(self._named(terms.only))
            elif self._state.table.height > MAX_NODES + step.members:
                candidates.restrict_to(self._groups_nearby(step))
            if terms.groups and not self._could_repack(candidates, terms.groups, group, step):
                return None
        elif not candidates.queues():
            self.obstacle = candidates.no_victims
            if self._insufficient(preemption, step) is not None:
                return None  # no plugin is asked
        limited = bool(
            self._gang_allocator.rejections_of(group, altered(whole_step_view(group, step), future=True))
        )
        counted = not limited and self._countable(group, step)
        attempt = VictimSearch(
            self._context, preemption, terms, group, step, counted=counted, may_protect=not limited
        )
        without_victims = counted and terms.move is not RelocationMode.MUST
        possible = partial(self._possible, candidates, group, step, without_victims=without_victims)
        if (terms.move is RelocationMode.MUST or not counted or candidates.is_unsorted) and not possible():
            return None
        attempt.is_possible = possible
        if terms.move is RelocationMode.MUST and not group.nominations:
            attempt.could_pack = partial(self._could_repack_with, self._wants(step))
        if attempt.without_victims():
            return []
        if limited and terms.move is RelocationMode.MUST:
            return None
        result = self._search(attempt, terms, candidates, limited=limited)
        if result is None and terms.move is not RelocationMode.MUST and self._uses_budgets:
            result = self._around_budgets(attempt, candidates, step)
        return result

    def remaining(self) -> list[int]:
        """Return by column what all nodes together will have left."""
        return self._future_free.sums()

    @property
    def has_shares(self) -> bool:
        """Return whether any task holds a share of a device."""
        return self._state.table.shares.has_shares

    @property
    def _uses_budgets(self) -> bool:
        return self._plugins.uses_budgets and self._state.budgets.any

    def _search(
        self, attempt: VictimSearch, terms: PreemptionTerms, candidates: VictimCandidates, *, limited: bool
    ) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets within the terms, as far as they may be evicted together."""
        if limited or terms.move is RelocationMode.NEVER:
            return attempt.without_moves(LazyVictimOrder(candidates.in_order(only_allowed=True)))
        movable = self._context.relocator.could_move
        if terms.move is RelocationMode.MUST:
            all_sets = _of_groups(candidates.in_order(only_allowed=False), terms.groups)
            single_tasks = filter(movable, candidates.one_by_one(all_sets))
            if terms.only is not None:
                positions = {key: index for index, key in enumerate(terms.only)}
                single_tasks = iter(
                    sorted(
                        single_tasks,
                        key=lambda victim_set: positions.get(victim_set.group.key, len(positions)),
                    )
                )
            return attempt.with_moves(
                LazyVictimOrder(self._within_budgets(single_tasks) if self._uses_budgets else single_tasks),
                MAX_LONGER_PREFIXES,
            )
        all_candidates = LazyVictimOrder(
            _of_groups(candidates.in_order(only_allowed=False, movable=movable), terms.groups)
        )
        result = attempt.with_moves(all_candidates, 1)
        if result is None:
            result = attempt.without_moves(LazyVictimOrder(candidates.in_order(only_allowed=True)))
        if result is None:
            result = attempt.with_moves(all_candidates, MAX_LONGER_PREFIXES)
        for without in _omissions(all_candidates.victim_sets) if result is None else ():
            result = attempt.without_moves(
                LazyVictimOrder(candidates.in_order(only_allowed=True, without=without))
            )
            if result is not None:
                return result
        return result

    def _around_budgets(
        self, attempt: VictimSearch, candidates: VictimCandidates, step: NextTasks
    ) -> list[PooledVictimSet] | None:
        """Return victim sets that disruption budgets allow together.

        First those that are allowed in their order, then those on a single node, of the
        nodes that lack least.
        """
        free = self._future_free.free()
        rows: dict[int, None] = {}
        for cls in dict.fromkeys(batch.cls for batch in step.batches):
            missing = missing_fractions(self._state.table, free, cls)
            rows.update(dict.fromkeys(np.argsort(missing, kind="stable")[:MAX_LONGER_PREFIXES].tolist()))
        forbidden: set[str] = set()
        for row in (None, *rows):
            victim_sets = self._within_budgets(candidates.in_order(only_allowed=True), row, forbidden)
            result = attempt.without_moves(LazyVictimOrder(victim_sets))
            if result is not None or not forbidden:
                return result
        return None

    def _within_budgets(
        self,
        victim_sets: Iterator[PooledVictimSet],
        row: int | None = None,
        forbidden: set[str] | None = None,
    ) -> Iterator[PooledVictimSet]:
        """Yield the victim sets that budgets allow after the previous ones.

        ``row``: only sets with a task on this row.
        ``forbidden``: collects the groups that budgets protect.
        """
        remaining: dict[str, int] = {}
        keeping: set[str] = set()
        """Groups that keep some task. Their minimum is not evicted before their elastic members."""
        for victim_set in victim_sets:
            elsewhere = row is not None and all(entry.row != row for entry in victim_set.entries)
            if elsewhere or (victim_set.view.is_minimum and victim_set.group.key in keeping):
                keeping.add(victim_set.group.key)
                continue
            requested = Counter(key for entry in victim_set.entries for key in entry.task.budgets)
            for key in requested:
                if key not in remaining and (allowed := self._state.budgets.left(key)) is not None:
                    remaining[key] = allowed
            if all(n <= remaining.get(key, n) for key, n in requested.items()):
                for key in requested.keys() & remaining.keys():
                    remaining[key] -= requested[key]
                yield victim_set
            else:
                keeping.add(victim_set.group.key)
                if forbidden is not None:
                    forbidden.add(victim_set.group.key)

    def _named(self, keys: Sequence[str]) -> list[GroupEntry]:
        groups = self._state.groups
        return [groups[key] for key in keys if key in groups]

    def _groups_nearby(self, step: NextTasks) -> list[GroupEntry]:
        """Return the groups on the nodes that lack least for a task of the step.

        Work is moved from these nodes only. On a cluster of a few dozen nodes these are
        all groups.
        """
        table = self._state.table
        result: dict[str, GroupEntry] = {}
        free = self._future_free.free()
        for cls in dict.fromkeys(batch.cls for batch in step.batches):
            missing = missing_fractions(table, free, cls)
            rows = np.argsort(missing, kind="stable")[: MAX_NODES + step.members]
            for row in rows.tolist():
                groups = (entry.group for entry in tasks_on(table, row).values())
                result.update((group.key, group) for group in groups if group is not None)
        return list(result.values())

    # ------------------------------------------------------------------ necessary conditions

    def _countable(self, group: GroupEntry, step: NextTasks) -> bool:
        """Return whether counting capacity decides exactly if the step fits."""
        if len(step.batches) != 1 or group.subgroup_topologies:
            return False
        cls = step.batches[0].cls
        return self._plugins.countable and not self._placer.constraints(cls)

    def _insufficient(self, preemption: Preemption, step: NextTasks) -> tuple[str, int] | None:
        """Return a resource with too little left in total, and the required amount.

        Moving cannot change totals. Resources that are counted by device are left out,
        and so are devices with shares: moving packs shares on fewer devices.
        """
        table = self._state.table
        columns, remaining, by_device = (
            table.resources.codes,
            self._future_free.sums(),
            self._counted_by_device(step),
        )
        for name, victim_sets in preemption.request.items():
            if name in columns and name not in by_device and remaining[columns[name]] < victim_sets:
                return name, victim_sets
        return None

    def _counted_by_device(self, step: NextTasks) -> set[str]:
        """Return the resources where node totals do not tell what moving can achieve."""
        shares, result = self._state.table.shares, set[str]()
        for batch in step.batches:
            if batch.cls.needs.devices:
                result |= set(batch.cls.request) - {name for name, _ in batch.cls.needs.node_request}
        if shares.has_shares:
            result |= set(shares.resources)
        return result

    def _could_repack(
        self, candidates: VictimCandidates, limit: int, group: GroupEntry, step: NextTasks
    ) -> bool:
        """Return whether the step and the moved victims of the first groups could all fit.

        Each resource is checked alone. This avoids most searches without a result.
        """
        if group.nominations:
            return True
        fragmented = self.fragmentation(candidates, limit, step)
        if not fragmented.holds_now(candidates):
            return True
        if candidates.is_shared:
            self.obstacle = fragmented
        return False

    def fragmentation(self, candidates: VictimCandidates, limit: int, step: NextTasks) -> Fragmented:
        """Return the possible fragmentation obstacle of a step that moves the first groups."""
        return Fragmented(self, candidates, limit, *self._wants(step))

    def _wants(self, step: NextTasks) -> tuple[int, Wants]:
        """Return how many tasks of a step have to fit, and their requests, as far as resources tell."""
        table, requested = self._state.table, dict[str, list[int]]()
        for batch in step.batches:
            for name, victim_sets in batch.cls.items:
                requested.setdefault(name, []).extend([victim_sets] * len(batch.entries))
        tasks, uncounted = sum([len(run.entries) for run in step.batches]), self._counted_by_device(step)
        wants = tuple(
            [
                (column, (*requests, *[0] * (tasks - len(requests))))
                for name, requests in requested.items()
                if name != PODS
                and name not in uncounted
                and (column := table.resources.codes.get(name)) is not None
            ]
        )
        return 1 if step.extra else step.members, wants

    def _could_repack_with(
        self, requested: tuple[int, Wants], victim_sets: Sequence[PooledVictimSet]
    ) -> bool:
        """Return whether the step and these victims could all fit, by each resource alone."""
        wanted, wants = requested
        repacking = RepackingBound(
            self._future_free.cells(), [entry for victim_set in victim_sets for entry in victim_set.entries]
        )
        return all([repacking.could_hold(column, requests, wanted) for column, requests in wants])

    def insufficient_total(self, name: str, victim_sets: int) -> InsufficientTotal:
        """Return the obstacle that holds while all nodes together have less than that left."""
        return InsufficientTotal(self._state.table, self._future_free, name, victim_sets)

    def repack(self, candidates: VictimCandidates, limit: int) -> tuple[RepackingBound, float | None]:
        """Return the repacking bound for moving the first groups, and the time at which it expires.

        It is computed once for all preemptions with the same candidates.
        """
        state = (self._future_free.free(), limit, *candidates.state_key()) if candidates.is_shared else ()
        cached = self._repacking
        if cached is not None and state and _same(cached[0], state):
            return cached[1], cached[2]
        result = RepackingBound(self._future_free.cells(), candidates.leading_tasks(limit))
        self._repacking = (state, result, candidates.wake_at)
        return result, candidates.wake_at

    def _possible(
        self, candidates: VictimCandidates, group: GroupEntry, step: NextTasks, *, without_victims: bool
    ) -> bool:
        """Return whether the step could fit if all candidates were evicted.

        ``without_victims``: also check if there are no candidates.
        """
        table = self._state.table
        all_candidates = list(candidates.all_tasks())
        if not all_candidates and not without_victims:
            return False
        missing = {batch.cls for batch in step.batches}
        domains, free = self._domains(group), self._future_free.free()
        counts = {
            cls: CapacityIfEvicted(table, cls, free, domains).total_if_evicted(all_candidates)
            for cls in missing
        }
        if len(missing) == 1 and not step.extra:
            return all(count >= step.members for count in counts.values())
        return any(count > 0 for count in counts.values())

    def _domains(self, group: GroupEntry) -> NDArray[np.int64] | None:
        return self._gang_allocator.domain_selector.domains(group) if group.has_topology else None


def _same(first: Sequence[object], second: Sequence[object]) -> bool:
    """Return whether the items are pairwise identical, or equal numbers or texts."""
    return len(first) == len(second) and all(
        [
            first_item is other_item
            or (isinstance(first_item, int | float | str) and first_item == other_item)
            for first_item, other_item in zip(first, second, strict=True)
        ]
    )


def _omissions(victim_sets: Sequence[PooledVictimSet]) -> Iterator[set[str]]:
    """Yield sets of groups to leave out, after the rules rejected all further victims.

    First the first groups together, then each one alone; nothing if there are many.
    """
    groups = list(dict.fromkeys(victim_set.group.key for victim_set in victim_sets))
    if len(groups) > MAX_LONGER_PREFIXES:
        return
    for n in range(1, len(groups)):
        yield set(groups[:n])
    for key in groups[1:]:
        yield {key}


def _of_groups(victim_sets: Iterator[PooledVictimSet], limit: int) -> Iterator[PooledVictimSet]:
    """Yield the victim sets of the first ``limit`` groups (0: of all)."""
    seen: set[str] = set()
    for victim_set in victim_sets:
        seen.add(victim_set.group.key)
        if limit and len(seen) > limit:
            return
        yield victim_set

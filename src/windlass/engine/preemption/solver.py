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

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import NextTasks, whole_step
from windlass.engine.nodes.table import PODS, NodeTable
from windlass.engine.pending.capacity_if_evicted import CapacityIfEvicted, FutureFree, lacking
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

NODES = 64
"""Number of nodes from which work may be moved for one preemption, plus one per task."""
LONGER = 16
"""Number of longer prefixes to try if the shortest one that frees enough breaks a rule."""
Wants = tuple[tuple[int, tuple[int, ...]], ...]
"""Column → request of each of some tasks."""


class InsufficientTotal(msgspec.Struct, frozen=True):
    """Obstacle: all nodes together have too little left of a resource without shared devices."""

    table: NodeTable
    leftover: FutureFree
    name: str
    units: int

    def __call__(self) -> bool:
        table = self.table
        if table.shares.has_shares and self.name in table.shares.resources:
            return False
        return self.leftover.sums()[table.resources.codes[self.name]] < self.units


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
        self._what = (wanted, wants)
        self._least = [(column, sum(sorted(amounts)[:wanted])) for column, amounts in wants]
        """Column → minimum amount that the step takes."""
        self._key = (limit, wanted, wants, *candidates.kind)

    def now(self, candidates: VictimCandidates) -> bool:
        """Return whether this holds for these candidates."""
        repacking, until = self._solver.repack(candidates, self._limit)
        candidates.note_wake(until)
        return self._is_too_little(repacking)

    def __call__(self) -> bool:
        """Return whether this still holds, independent of time."""
        if self._solver.parted:
            return False
        left = self._solver.left()
        if any([left[column] < units for column, units in self._least]):
            return True  # less than before: not enough in total
        repacking, until = self._solver.repack(self._candidates.anew(self._solver.time), self._limit)
        return until is None and self._is_too_little(repacking)

    def _is_too_little(self, repacking: RepackingBound) -> bool:
        wanted, wants = self._what
        return not all([repacking.holds(column, amounts, wanted) for column, amounts in wants])

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
        self._leftover = FutureFree(state.table)
        self._repacking: tuple[tuple[object, ...], RepackingBound, float | None] | None = None
        """Last repacking bound: its key, the bound, and the time until which it is valid."""
        self.time = 0.0
        """Unix seconds."""
        self.obstacle: Callable[[], bool] | None = None
        """Easily checked reason for the last failure.

        While it returns true, there is no solution for any preemption with the same
        request and terms.
        """
        self._tools = SearchContext(
            state,
            plugins,
            gang_allocator,
            statement,
            Relocator(state, placer, statement, gang_allocator.domain_selector),
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
            short = self._short_of(preemption, step)
            if short is not None:
                self.obstacle = self.lacking(*short)
                return None
            if terms.only is not None:
                candidates.look_only_at(self._named(terms.only))
            elif self._state.table.height > NODES + step.members:
                candidates.look_only_at(self._nearby(step))
            if terms.groups and not self._packs(candidates, terms.groups, group, step):
                return None
        elif not candidates.queues():
            self.obstacle = candidates.nobody
            if self._short_of(preemption, step) is not None:
                return None  # no plugin is asked
        bound = bool(self._gang_allocator.refusals_of(group, altered(whole_step(group, step), future=True)))
        counted = not bound and self._countable(group, step)
        attempt = VictimSearch(self._tools, preemption, terms, group, step, counted=counted, spares=not bound)
        alone = counted and terms.move is not RelocationMode.MUST
        possible = partial(self._possible, candidates, group, step, alone=alone)
        if (terms.move is RelocationMode.MUST or not counted or candidates.unsorted) and not possible():
            return None
        attempt.possible = possible
        if terms.move is RelocationMode.MUST and not group.promises:
            attempt.packs = partial(self._repack_these, self._wants(step))
        if attempt.without_victims():
            return []
        if bound and terms.move is RelocationMode.MUST:
            return None
        found = self._searched(attempt, terms, candidates, bound=bound)
        if found is None and terms.move is not RelocationMode.MUST and self._budgeted:
            found = self._around_budgets(attempt, candidates, step)
        return found

    def left(self) -> list[int]:
        """Return by column what all nodes together will have left."""
        return self._leftover.sums()

    @property
    def parted(self) -> bool:
        """Return whether any task holds a share of a device."""
        return self._state.table.shares.has_shares

    @property
    def _budgeted(self) -> bool:
        return self._plugins.heeds_budgets and self._state.budgets.any

    def _searched(
        self, attempt: VictimSearch, terms: PreemptionTerms, candidates: VictimCandidates, *, bound: bool
    ) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets within the terms, as far as they may be evicted together."""
        if bound or terms.move is RelocationMode.NEVER:
            return attempt.plain(LazyVictimOrder(candidates.in_order(only_allowed=True)))
        everyone = LazyVictimOrder(_of_groups(candidates.in_order(only_allowed=False), terms.groups))
        if terms.move is RelocationMode.MUST:
            singly = candidates.one_by_one(everyone.source)
            if terms.only is not None:
                turn = {key: at for at, key in enumerate(terms.only)}
                singly = iter(sorted(singly, key=lambda unit: turn.get(unit.group.key, len(turn))))
            return attempt.moving(
                LazyVictimOrder(self._within_budgets(singly) if self._budgeted else singly), LONGER
            )
        found = attempt.moving(everyone, 1)
        if found is None:
            found = attempt.plain(LazyVictimOrder(candidates.in_order(only_allowed=True)))
        if found is None:
            found = attempt.moving(everyone, LONGER)
        for without in _omissions(everyone.units) if found is None else ():
            found = attempt.plain(LazyVictimOrder(candidates.in_order(only_allowed=True, without=without)))
            if found is not None:
                return found
        return found

    def _around_budgets(
        self, attempt: VictimSearch, candidates: VictimCandidates, step: NextTasks
    ) -> list[PooledVictimSet] | None:
        """Return victim sets that disruption budgets allow together.

        First those that are allowed in their order, then those on a single node, of the
        nodes that lack least.
        """
        free = self._leftover.free()
        rows: dict[int, None] = {}
        for cls in dict.fromkeys(batch.cls for batch in step.batches):
            lacks = lacking(self._state.table, free, cls)
            rows.update(dict.fromkeys(np.argsort(lacks, kind="stable")[:LONGER].tolist()))
        forbidden: set[str] = set()
        for row in (None, *rows):
            units = self._within_budgets(candidates.in_order(only_allowed=True), row, forbidden)
            found = attempt.plain(LazyVictimOrder(units))
            if found is not None or not forbidden:
                return found
        return None

    def _within_budgets(
        self, units: Iterator[PooledVictimSet], row: int | None = None, forbidden: set[str] | None = None
    ) -> Iterator[PooledVictimSet]:
        """Yield the victim sets that budgets allow after the previous ones.

        ``row``: only sets with a task on this row.
        ``forbidden``: collects the groups that budgets protect.
        """
        left: dict[str, int] = {}
        kept: set[str] = set()
        """Groups that keep some task. Their minimum is not evicted before their elastic members."""
        for unit in units:
            away = row is not None and all(entry.row != row for entry in unit.entries)
            if away or (unit.view.core and unit.group.key in kept):
                kept.add(unit.group.key)
                continue
            asked = Counter(key for entry in unit.entries for key in entry.task.budgets)
            for key in asked:
                if key not in left and (allowed := self._state.budgets.left(key)) is not None:
                    left[key] = allowed
            if all(n <= left.get(key, n) for key, n in asked.items()):
                for key in asked.keys() & left.keys():
                    left[key] -= asked[key]
                yield unit
            else:
                kept.add(unit.group.key)
                if forbidden is not None:
                    forbidden.add(unit.group.key)

    def _named(self, keys: Sequence[str]) -> list[GroupEntry]:
        groups = self._state.groups
        return [groups[key] for key in keys if key in groups]

    def _nearby(self, step: NextTasks) -> list[GroupEntry]:
        """Return the groups on the nodes that lack least for a task of the step.

        Work is moved from these nodes only. On a cluster of a few dozen nodes these are
        all groups.
        """
        table = self._state.table
        found: dict[str, GroupEntry] = {}
        free = self._leftover.free()
        for cls in dict.fromkeys(batch.cls for batch in step.batches):
            lacks = lacking(table, free, cls)
            rows = np.argsort(lacks, kind="stable")[: NODES + step.members]
            for row in rows.tolist():
                groups = (entry.group for entry in table.tasks[row].values())
                found.update((group.key, group) for group in groups if group is not None)
        return list(found.values())

    # ------------------------------------------------------------------ necessary conditions

    def _countable(self, group: GroupEntry, step: NextTasks) -> bool:
        """Return whether counting capacity decides exactly if the step fits."""
        if len(step.batches) != 1 or group.near_parts:
            return False
        cls = step.batches[0].cls
        return self._plugins.countable and not self._placer.constraints(cls)

    def _short_of(self, preemption: Preemption, step: NextTasks) -> tuple[str, int] | None:
        """Return a resource with too little left in total, and the required amount.

        Moving cannot change totals. Resources that are counted by device are left out,
        and so are devices with shares: moving packs shares on fewer devices.
        """
        table = self._state.table
        columns, left, by_card = table.resources.codes, self._leftover.sums(), self._by_card(step)
        for name, units in preemption.request.items():
            if name in columns and name not in by_card and left[columns[name]] < units:
                return name, units
        return None

    def _by_card(self, step: NextTasks) -> set[str]:
        """Return the resources where node totals do not tell what moving can achieve."""
        cards, found = self._state.table.shares, set[str]()
        for batch in step.batches:
            if batch.cls.needs.devices:
                found |= set(batch.cls.request) - {name for name, _ in batch.cls.needs.node_request}
        if cards.has_shares:
            found |= set(cards.resources)
        return found

    def _packs(self, candidates: VictimCandidates, limit: int, group: GroupEntry, step: NextTasks) -> bool:
        """Return whether the step and the moved victims of the first groups could all fit.

        Each resource is checked alone. This avoids most searches without a result.
        """
        if group.promises:
            return True
        scattered = self.scattered(candidates, limit, step)
        if not scattered.now(candidates):
            return True
        if candidates.common:
            self.obstacle = scattered
        return False

    def scattered(self, candidates: VictimCandidates, limit: int, step: NextTasks) -> Fragmented:
        """Return the possible fragmentation obstacle of a step that moves the first groups."""
        return Fragmented(self, candidates, limit, *self._wants(step))

    def _wants(self, step: NextTasks) -> tuple[int, Wants]:
        """Return how many tasks of a step have to fit, and their requests, as far as resources tell."""
        table, asked = self._state.table, dict[str, list[int]]()
        for batch in step.batches:
            for name, units in batch.cls.items:
                asked.setdefault(name, []).extend([units] * len(batch.entries))
        tasks, uncounted = sum([len(run.entries) for run in step.batches]), self._by_card(step)
        wants = tuple(
            [
                (column, (*amounts, *[0] * (tasks - len(amounts))))
                for name, amounts in asked.items()
                if name != PODS
                and name not in uncounted
                and (column := table.resources.codes.get(name)) is not None
            ]
        )
        return 1 if step.extra else step.members, wants

    def _repack_these(self, asked: tuple[int, Wants], units: Sequence[PooledVictimSet]) -> bool:
        """Return whether the step and these victims could all fit, by each resource alone."""
        wanted, wants = asked
        repacking = RepackingBound(
            self._leftover.cells(), [entry for unit in units for entry in unit.entries]
        )
        return all([repacking.holds(column, amounts, wanted) for column, amounts in wants])

    def lacking(self, name: str, units: int) -> InsufficientTotal:
        """Return the obstacle that holds while all nodes together have less than that left."""
        return InsufficientTotal(self._state.table, self._leftover, name, units)

    def repack(self, candidates: VictimCandidates, limit: int) -> tuple[RepackingBound, float | None]:
        """Return the repacking bound for moving the first groups, and the time at which it expires.

        It is computed once for all preemptions with the same candidates.
        """
        state = (self._leftover.free(), limit, *candidates.standing()) if candidates.common else ()
        known = self._repacking
        if known is not None and state and _same(known[0], state):
            return known[1], known[2]
        found = RepackingBound(self._leftover.cells(), candidates.leading(limit))
        self._repacking = (state, found, candidates.wake_at)
        return found, candidates.wake_at

    def _possible(
        self, candidates: VictimCandidates, group: GroupEntry, step: NextTasks, *, alone: bool
    ) -> bool:
        """Return whether the step could fit if all candidates were evicted.

        ``alone``: also check if there are no candidates.
        """
        table = self._state.table
        everyone = list(candidates.everyone())
        if not everyone and not alone:
            return False
        missing = {batch.cls for batch in step.batches}
        domains, free = self._domains(group), self._leftover.free()
        best = {cls: CapacityIfEvicted(table, cls, free, domains).at_best(everyone) for cls in missing}
        if len(missing) == 1 and not step.extra:
            return all(room >= step.members for room in best.values())
        return any(room > 0 for room in best.values())

    def _domains(self, group: GroupEntry) -> NDArray[np.int64] | None:
        return self._gang_allocator.domain_selector.domains(group) if group.near else None


def _same(first: Sequence[object], second: Sequence[object]) -> bool:
    """Return whether the items are pairwise identical, or equal numbers or texts."""
    return len(first) == len(second) and all(
        [
            one is other or (isinstance(one, int | float | str) and one == other)
            for one, other in zip(first, second, strict=True)
        ]
    )


def _omissions(units: Sequence[PooledVictimSet]) -> Iterator[set[str]]:
    """Yield sets of groups to leave out, after the rules rejected all further victims.

    First the first groups together, then each one alone; nothing if there are many.
    """
    groups = list(dict.fromkeys(unit.group.key for unit in units))
    if len(groups) > LONGER:
        return
    for n in range(1, len(groups)):
        yield set(groups[:n])
    for key in groups[1:]:
        yield {key}


def _of_groups(units: Iterator[PooledVictimSet], limit: int) -> Iterator[PooledVictimSet]:
    """Yield the victim sets of the first ``limit`` groups (0: of all)."""
    seen: set[str] = set()
    for unit in units:
        seen.add(unit.group.key)
        if limit and len(seen) > limit:
            return
        yield unit

"""Protection and relocation of victims.

After the preemptor is placed, some victims may be unnecessary, because their capacity
is still free. Other victims find another place. It is nominated to them, and they are
recreated there. A victim set is protected or moved as a whole, and elastic members only
together with their minimum. A group that needs one topology domain is moved within it,
or as a whole to another one. A set moves only if all its moved tasks may be relocated
(:class:`~windlass.spi.victims.RelocationFilter`) and start again afterwards
(:mod:`windlass.engine.preemption.readmission`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED
from windlass.engine.placement.domain_selector import DomainDemand, held_rows
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.placement.placer import Placer
from windlass.engine.plugin_set import PluginSet
from windlass.engine.preemption.readmission import Readmission
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims.victim_pool import PooledVictimSet

ANYWHERE: Mapping[str, str] = {}


class RelocationStrategy(StrEnum):
    """Order in which victims get places, and choice of the places."""

    COSTLIEST_FIRST = "dearest-stay"
    LARGEST_FIRST = "largest-stay"
    LARGEST_BY_SCORE = "largest-packed"
    """By score alone, so that contiguous capacity remains."""
    IN_ORDER = "in-turn"
    """In the order of eviction, if a plugin named the victims."""


class Relocator:
    """Finds places for victims."""

    strategies = (
        RelocationStrategy.COSTLIEST_FIRST,
        RelocationStrategy.LARGEST_FIRST,
        RelocationStrategy.LARGEST_BY_SCORE,
    )

    def __init__(
        self,
        state: ClusterState,
        plugins: PluginSet,
        placer: Placer,
        gang_allocator: GangAllocator,
        statement: Statement,
    ) -> None:
        self._state = state
        self._filters = plugins.relocation_filters
        self._domain_selector = gang_allocator.domain_selector
        self._placer = placer
        self._statement = statement
        self._readmission = Readmission(state, gang_allocator, statement)
        self._exhausted: set[TaskClass] = set()
        """Classes without free capacity; it only shrinks while victims get places."""
        self._fixed: set[str] = set()
        """Groups with tasks that would not start again after a move, in the last search."""

    def find_places(
        self,
        victim_sets: Sequence[PooledVictimSet],
        *,
        move: bool,
        strategy: RelocationStrategy = RelocationStrategy.COSTLIEST_FIRST,
        needless: bool = False,
        places: Mapping[str, str] = ANYWHERE,
        whole: bool = False,
    ) -> tuple[set[PooledVictimSet], set[PooledVictimSet]]:
        """Give evicted victim sets a place where possible.

        Return those that stay, and those that move.

        ``needless``: some evictions may be unnecessary, like those in a rack that was
        not chosen. These victims stay, before others are moved to their place.
        ``places``: group → node to which its only task moves if it fits there.
        ``whole``: all or none; stop at the first set without a place.
        """
        staying: set[PooledVictimSet] = (
            self._find_places(victim_sets, move=False)[0] if needless and move else set()
        )
        start = self._statement.checkpoint()
        self._fixed = fixed = set[str]()
        while True:
            stay, moved = self._find_places(
                victim_sets,
                move=move,
                strategy=strategy,
                places=places,
                whole=whole,
                fixed=fixed,
                staying=staying,
            )
            rejected = self._readmission.rejected(_relocated(moved))
            if not rejected:
                return stay, moved
            self._statement.rollback(start)
            fixed |= rejected

    def _find_places(
        self,
        victim_sets: Sequence[PooledVictimSet],
        *,
        move: bool,
        strategy: RelocationStrategy = RelocationStrategy.COSTLIEST_FIRST,
        places: Mapping[str, str] = ANYWHERE,
        whole: bool = False,
        fixed: Set[str] = frozenset(),
        staying: Set[PooledVictimSet] = frozenset(),
    ) -> tuple[set[PooledVictimSet], set[PooledVictimSet]]:
        """Return the result of :meth:`find_places`, without the check of readmission.

        ``fixed``: groups that do not move.
        ``staying``: sets that stay already.
        """
        staying = set(staying)
        moved: set[PooledVictimSet] = set()
        losing_minimum: set[str] = set()
        """Groups that lose their minimum for good; their elastic members are evicted as well."""
        self._exhausted.clear()
        for victim_set in self._sorted(victim_sets, strategy):
            if victim_set.group.key in losing_minimum or victim_set in staying:
                continue
            mark = self._statement.checkpoint()
            target = self._state.table.rows.get(places.get(victim_set.group.key, ""), -1)
            moves = self._place(
                victim_set.group,
                victim_set.entries,
                move=move and victim_set.view.ready and victim_set.group.key not in fixed,
                packed=strategy is RelocationStrategy.LARGEST_BY_SCORE,
                target=target,
            )
            if moves is None:
                self._statement.rollback(mark)
                if whole:
                    break
                if victim_set.view.is_minimum:
                    losing_minimum.add(victim_set.group.key)
            elif moves:
                moved.add(victim_set)
            else:
                staying.add(victim_set)
        return staying, moved

    def _sorted(
        self, victim_sets: Sequence[PooledVictimSet], strategy: RelocationStrategy
    ) -> list[PooledVictimSet]:
        """Return the victim sets in the order in which they get a place.

        A minimum before its elastic members.
        """
        if strategy is RelocationStrategy.IN_ORDER:
            return list(victim_sets)
        costliest = list(reversed(victim_sets))
        if strategy is RelocationStrategy.COSTLIEST_FIRST:
            return costliest
        total = self._state.table.total
        size: dict[str, float] = {}
        for victim_set in costliest:
            for entry in victim_set.entries:
                fractions = [units / total[name] for name, units in entry.cls.items if total.get(name)]
                size[victim_set.group.key] = max(size.get(victim_set.group.key, 0.0), *fractions, 0.0)
        return sorted(costliest, key=lambda unit: size[unit.group.key], reverse=True)

    def _place(
        self, group: GroupEntry, entries: Sequence[TaskEntry], *, move: bool, packed: bool, target: int = -1
    ) -> bool | None:
        """Return whether any of the tasks moves; ``None`` if not all of them get a place.

        ``target``: preferred row of a single task; -1 for any.
        """
        movable = {entry.key for entry in entries if move and self._may_relocate(group, entry)}
        single = entries[0] if len(entries) == 1 and not group.has_topology else None
        if (
            single is not None
            and single.key in movable
            and target not in (-1, single.row)
            and self._best(single.cls, target) == target
        ):
            self._statement.pipeline(single, target)
            return True
        moves = False
        unplaced: list[TaskEntry] = []
        for entry in entries:
            tried = not packed or entry.key not in movable
            fits = tried and self._fits(entry.cls, entry.row) and entry.cls.allocator.could_stay(entry)
            if fits and (not group.has_topology or self._is_allowed(entry)):
                self._statement.withdraw_eviction(entry)
            elif entry.key in movable:
                unplaced.append(entry)
            else:
                return None
        for at, entry in enumerate(unplaced):
            if group.has_topology:
                row = self._best_near(group, unplaced[at:])
            else:
                row = self._best(entry.cls) if entry.cls not in self._exhausted else -1
            if row < 0:
                if single is not None:
                    self._exhausted.add(entry.cls)
                return None
            if row == entry.row and entry.cls.allocator.could_stay(entry):
                self._statement.withdraw_eviction(entry)
            else:  # to another node, or to another device of the same node
                self._statement.pipeline(entry, row)
                moves = True
        return moves

    def was_movable(self, victim_set: PooledVictimSet) -> bool:
        """Return whether nothing but capacity kept the set from moving in the last search."""
        return victim_set.group.key not in self._fixed and self._is_movable(victim_set)

    def could_move(self, victim_set: PooledVictimSet) -> bool:
        """Return whether a running set may be relocated and would start again."""
        return self._is_movable(victim_set) and self._readmission.could_return(
            victim_set.group, victim_set.entries
        )

    def _is_movable(self, victim_set: PooledVictimSet) -> bool:
        return victim_set.view.ready and all(
            self._may_relocate(victim_set.group, entry) for entry in victim_set.entries
        )

    def _may_relocate(self, group: GroupEntry, entry: TaskEntry) -> bool:
        return all(each.may_relocate(group.spec, entry.task) for each in self._filters)

    def _fits(self, cls: TaskClass, row: int) -> bool:
        """Return whether a task of the class will fit on the row."""
        cls.refresh()
        planes = self._state.table.planes[row]
        fractions = cls.vector > 0
        free = planes[ALLOCATABLE] - planes[USED] + planes[RELEASING] - planes[NOMINATED]
        if not cls.static[row] or (free < cls.vector)[fractions].any():
            return False
        domains = self._placer.constraints(cls)
        if not domains:
            return True
        with self._placer.vacated(self._statement):
            mask = self._placer.domain_mask(cls, domains)
        return mask is None or bool(mask[row])

    def _is_allowed(self, entry: TaskEntry) -> bool:
        """Return whether a task may stay on its node, given the other placed tasks of its group."""
        group = entry.group
        if group is None:
            return True
        scope = self._domain_selector.allowed(group, entry.task.subgroup)
        return scope is None or bool(scope.mask[entry.row])

    def _best_near(self, group: GroupEntry, unplaced: Sequence[TaskEntry]) -> int:
        """Return :meth:`_best` for the first task without a place, for a topology constraint."""
        entry = unplaced[0]
        scope = self._domain_selector.allowed(group, entry.task.subgroup)
        need = group.spec.topology
        if need is not None and need.required >= 0 and not held_rows(group):
            demand = DomainDemand(len(unplaced))
            for task in unplaced:
                demand.classes[task.cls] = demand.classes.get(task.cls, 0) + 1
            home_domain = self._domain_selector.anchored_need(group, need)
            scope = next(self._domain_selector.candidates(home_domain, demand, (), scope, future=True), None)
            if scope is None:
                return -1
        with self._placer.within(scope):
            return self._best(entry.cls)

    def _best(self, cls: TaskClass, preferred: int = -1) -> int:
        """Return the best row for one more task of the class when all nominations hold; -1 if none.

        ``preferred``: this row if the task fits there.
        """
        keys = self._keys(cls)
        domains = self._placer.constraints(cls)
        if domains:
            with self._placer.vacated(self._statement):
                mask = self._placer.domain_mask(cls, domains)
            if mask is not None:
                keys = np.where(mask, keys, -1)
        if preferred >= 0 and keys[preferred] >= 0:
            return preferred
        row = int(keys.argmax()) if len(keys) else -1
        return row if row >= 0 and keys[row] >= 0 else -1

    def _keys(self, cls: TaskClass) -> NDArray[np.int64]:
        """Return the rank of each row for one more task when all nominations hold.

        Negative if it does not fit.
        """
        rows = np.arange(self._state.table.height, dtype=np.int64)
        return cls.future(rows)[1]


def _relocated(moved: Iterable[PooledVictimSet]) -> dict[str, list[TaskEntry]]:
    """Return the tasks of moved victim sets with another place, by group."""
    by_group: dict[str, list[TaskEntry]] = {}
    for victim_set in moved:
        entries = [entry for entry in victim_set.entries if entry.nominated_row >= 0]
        by_group.setdefault(victim_set.group.key, []).extend(entries)
    return by_group

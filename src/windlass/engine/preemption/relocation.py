"""Protection and relocation of victims.

After the preemptor is placed, some victims may be unnecessary, because their capacity
is still free. Other victims find another place. It is nominated to them, and they are
recreated there. A victim set is protected or moved as a whole, and elastic members only
together with their minimum. A group that needs one topology domain is moved within it,
or as a whole to another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED
from windlass.engine.placement.domain_selector import DomainDemand, DomainSelector, held_rows
from windlass.engine.placement.placer import Placer
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims.victim_pool import PooledVictimSet

ANYWHERE: Mapping[str, str] = {}


class RelocationStrategy(StrEnum):
    """Order in which victims get places, and choice of the places."""

    DEAREST_STAY = "dearest-stay"
    LARGEST_STAY = "largest-stay"
    LARGEST_PACKED = "largest-packed"
    """By score alone, so that contiguous capacity remains."""
    IN_TURN = "in-turn"
    """In the order of eviction, if a plugin named the victims."""


class Relocator:
    """Finds places for victims."""

    strategies = (
        RelocationStrategy.DEAREST_STAY,
        RelocationStrategy.LARGEST_STAY,
        RelocationStrategy.LARGEST_PACKED,
    )

    def __init__(
        self, state: ClusterState, placer: Placer, statement: Statement, domain_selector: DomainSelector
    ) -> None:
        self._state = state
        self._domain_selector = domain_selector
        self._placer = placer
        self._statement = statement
        self._full: set[TaskClass] = set()
        """Classes without free capacity; it only shrinks while victims get places."""

    def spare(
        self,
        units: Sequence[PooledVictimSet],
        *,
        move: bool,
        strategy: RelocationStrategy = RelocationStrategy.DEAREST_STAY,
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
        stay: set[PooledVictimSet] = self.spare(units, move=False)[0] if needless and move else set()
        moved: set[PooledVictimSet] = set()
        lost: set[str] = set()
        """Groups that lose their minimum for good; their elastic members are evicted as well."""
        self._full.clear()
        for unit in self._sorted(units, strategy):
            if unit.group.key in lost or unit in stay:
                continue
            mark = self._statement.checkpoint()
            to = self._state.table.rows.get(places.get(unit.group.key, ""), -1)
            where = self._place(
                unit.group,
                unit.entries,
                move=move,
                packed=strategy is RelocationStrategy.LARGEST_PACKED,
                to=to,
            )
            if where is None:
                self._statement.rollback(mark)
                if whole:
                    break
                if unit.view.core:
                    lost.add(unit.group.key)
            elif where:
                moved.add(unit)
            else:
                stay.add(unit)
        return stay, moved

    def _sorted(
        self, units: Sequence[PooledVictimSet], strategy: RelocationStrategy
    ) -> list[PooledVictimSet]:
        """Return the victim sets in the order in which they get a place.

        A minimum before its elastic members.
        """
        if strategy is RelocationStrategy.IN_TURN:
            return list(units)
        dearest = list(reversed(units))
        if strategy is RelocationStrategy.DEAREST_STAY:
            return dearest
        total = self._state.table.total
        size: dict[str, float] = {}
        for unit in dearest:
            for entry in unit.entries:
                asked = [units / total[name] for name, units in entry.cls.items if total.get(name)]
                size[unit.group.key] = max(size.get(unit.group.key, 0.0), *asked, 0.0)
        return sorted(dearest, key=lambda unit: size[unit.group.key], reverse=True)

    def _place(
        self, group: GroupEntry, entries: Sequence[TaskEntry], *, move: bool, packed: bool, to: int = -1
    ) -> bool | None:
        """Return whether any of the tasks moves; ``None`` if not all of them get a place.

        ``to``: preferred row of a single task; -1 for any.
        """
        only = entries[0] if len(entries) == 1 and not group.near else None
        if only is not None and to not in (-1, only.row) and self._best(only.cls, to) == to:
            self._statement.pipeline(only, to)
            return True
        moves = False
        homeless: list[TaskEntry] = []
        for entry in entries:
            fits = not packed and self._fits(entry.cls, entry.row) and entry.cls.allocator.could_stay(entry)
            if fits and (not group.near or self._is_allowed(entry)):
                self._statement.withdraw_eviction(entry)
            else:
                homeless.append(entry)
        if homeless and not move:
            return None
        for at, entry in enumerate(homeless):
            if group.near:
                row = self._best_near(group, homeless[at:])
            else:
                row = self._best(entry.cls) if entry.cls not in self._full else -1
            if row < 0:
                if only is not None:
                    self._full.add(entry.cls)
                return None
            if row == entry.row and entry.cls.allocator.could_stay(entry):
                self._statement.withdraw_eviction(entry)
            else:  # to another node, or to another device of the same node
                self._statement.pipeline(entry, row)
                moves = True
        return moves

    def _fits(self, cls: TaskClass, row: int) -> bool:
        """Return whether a task of the class will fit on the row."""
        cls.refresh()
        plane = self._state.table.planes[row]
        asked = cls.vector > 0
        free = plane[ALLOCATABLE] - plane[USED] + plane[RELEASING] - plane[NOMINATED]
        if not cls.static[row] or (free < cls.vector)[asked].any():
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

    def _best_near(self, group: GroupEntry, homeless: Sequence[TaskEntry]) -> int:
        """Return :meth:`_best` for the first task without a place, for a topology constraint."""
        entry = homeless[0]
        scope = self._domain_selector.allowed(group, entry.task.subgroup)
        need = group.spec.topology
        if need is not None and need.required >= 0 and not held_rows(group):
            demand = DomainDemand(len(homeless))
            for one in homeless:
                demand.classes[one.cls] = demand.classes.get(one.cls, 0) + 1
            home = self._domain_selector.home(group, need)
            scope = next(self._domain_selector.scopes(home, demand, (), scope, future=True), None)
            if scope is None:
                return -1
        with self._placer.within(scope):
            return self._best(entry.cls)

    def _best(self, cls: TaskClass, wanted: int = -1) -> int:
        """Return the best row for one more task of the class when all nominations hold; -1 if none.

        ``wanted``: this row if the task fits there.
        """
        key = self._keys(cls)
        domains = self._placer.constraints(cls)
        if domains:
            with self._placer.vacated(self._statement):
                mask = self._placer.domain_mask(cls, domains)
            if mask is not None:
                key = np.where(mask, key, -1)
        if wanted >= 0 and key[wanted] >= 0:
            return wanted
        row = int(key.argmax()) if len(key) else -1
        return row if row >= 0 and key[row] >= 0 else -1

    def _keys(self, cls: TaskClass) -> NDArray[np.int64]:
        """Return the rank of each row for one more task when all nominations hold.

        Negative if it does not fit.
        """
        rows = np.arange(self._state.table.height, dtype=np.int64)
        return cls.future(rows)[1]

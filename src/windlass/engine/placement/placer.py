"""Placement of tasks of one class on the best nodes (level: class and node).

A class is placed by counting if its constraints are static or read only the node's own
row, and if its score never falls as a node fills. The best node takes as many tasks as
fit, then the next one. The result equals placement one by one (checked by a property
test). Other classes are placed one by one: the best node takes a task, and only what
that changed is evaluated again (:mod:`windlass.engine.feasibility.one_by_one`).

With ``future``, tasks that fit nowhere now are nominated to capacity that is being
released. Nodes are evaluated as if all terminating tasks were gone and all nominations
fulfilled. Free capacity comes first, unless a score outranks that.

Placement may be limited to some rows (:attr:`Placer.scope`), such as a topology domain.
A scope may define portions that are filled one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import TaskShares
from windlass.engine.domain_bound import DomainBound
from windlass.engine.feasibility.one_by_one import PlacementRound, Ranks
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.topology_domains import DomainRows
from windlass.engine.plugin_set import PluginSet, counts_terminating
from windlass.engine.queues.flavors import FlavorBound, flavor_bound_of
from windlass.engine.state.statement import Statement
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.plugins import Domain


class _ScopeBound(DomainBound):
    """Domain plugin that excludes the nodes outside of a scope."""

    name = "scope"

    def __init__(self, scope: DomainRows) -> None:
        self._mask = scope.mask

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        return self._mask[nodes.rows]

    def touched(self, number: int, row: int) -> tuple[tuple[str, int], ...]:
        """Return nothing: placements do not change the scope."""
        return ()


class Placer:
    """Places tasks of one class."""

    def __init__(self, table: NodeTable, plugins: PluginSet) -> None:
        self._table = table
        self._count_terminating = [plugin for plugin in plugins.domains if counts_terminating(plugin)]
        """Domain plugins that count terminating tasks until they are gone."""
        self._ranks = Ranks(table, plugins)
        self._everything = TableView(table)
        self._bound: FlavorBound | None = None
        self.scope: DomainRows | None = None
        """Rows to which placement is limited; ``None`` for all rows."""
        self._kept: tuple[Set[TaskClass], DomainRows] | None = None
        """Classes that are limited to further rows."""

    @contextmanager
    def within(self, scope: DomainRows | None) -> Iterator[None]:
        """Limit placement to a scope inside the context."""
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    @contextmanager
    def keeping(self, classes: Set[TaskClass], scope: DomainRows) -> Iterator[None]:
        """Limit placement of some classes to a scope inside the context."""
        before, self._kept = self._kept, (classes, scope)
        try:
            yield
        finally:
            self._kept = before

    def place_class(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        *,
        future: bool = False,
    ) -> int:
        """Place as many of ``entries`` (pending, of class ``cls``) as nodes take, in order.

        ``future``: tasks that fit nowhere now are nominated to capacity that is being
            released. Returns the number of placed and nominated tasks, always a prefix.
        """
        if group.queue is None or not group.queue.tree.flavors:
            return self._place_or_nominate(statement, group, cls, entries, future)
        self._bound = flavor_bound_of(group, cls, future=False)
        try:
            return self._place_or_nominate(statement, group, cls, entries, future)
        finally:
            self._bound = None

    def place_plain(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> bool | None:
        """Place one task on its best node, if there is one.

        ``None`` if a policy compares it with other pods, or :attr:`scope` is set.
        """
        if self.scope is not None or not self._is_plain(group, cls):
            return None
        row = cls.fit.best()
        if row < 0:
            return False
        statement.allocate(group, cls, row, entries)
        return True

    def fill_plain(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        scope: DomainRows,
    ) -> bool:
        """Place tasks on the rows of a scope that holds them by counts, if only counts decide."""
        return (
            cls.countable
            and self._is_plain(group, cls)
            and len(entries) == self._fill_scope(statement, group, cls, entries, scope)
        )

    def is_by_resources(self, group: GroupEntry, cls: TaskClass) -> bool:
        """Return whether tasks of the class are placed by counting, now and as nominations."""
        return self._is_plain(group, cls) and not self._ranks.outranked(cls)

    def _is_plain(self, group: GroupEntry, cls: TaskClass) -> bool:
        """Return whether no policy relates tasks of the class to other pods."""
        if cls.rankers and self._ranks.rankers(cls):
            return False
        for plugin in cls.domains:
            if plugin.constrains(cls.number):
                return False
        queue = group.queue
        return queue is None or not queue.tree.flavors or flavor_bound_of(group, cls, future=False) is None

    def _place_or_nominate(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        future: bool,
    ) -> int:
        if future and statement.terminating and self._ranks.outranked(cls):
            return self._place_by_rank(statement, group, cls, entries)
        if self.scope is not None and self.scope.portions:
            placed = self._place_in_portions(statement, group, cls, entries, self.scope)
        else:
            placed = self._place_on_nodes(statement, group, cls, entries)
        if future and placed < len(entries) and statement.terminating:
            if self._bound is not None:
                self._bound.future = True  # only nominations use capacity that is being released
            placed += self.nominate(statement, cls, entries[placed:])
        return placed

    def _place_on_nodes(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        if self._related(cls) or (cls.rankers and self._ranks.rankers(cls)):
            return self._place_in_rounds(statement, group, cls, entries)
        if cls.countable and self.scope is not None:
            return self._fill_scope(statement, group, cls, entries, self.scope)
        if cls.countable:
            return self._fill_nodes(statement, group, cls, entries)
        return self._place_one_by_one(statement, group, cls, entries)

    def _place_in_portions(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        scope: DomainRows,
    ) -> int:
        """Fill the portions of a scope one after the other."""
        placed = 0
        for portion in scope.portions:
            with self.within(portion):
                placed += self._place_on_nodes(statement, group, cls, entries[placed:])
            if placed == len(entries):
                break
        return placed

    def constraints(self, cls: TaskClass) -> list[Domain]:
        """Return the domain plugins that may exclude nodes for the class.

        They include limits on device models of the group's queues, and the scope.
        """
        constraints = self._related(cls)
        if self.scope is not None:
            constraints.append(_ScopeBound(self.scope))
        return constraints

    def _related(self, cls: TaskClass) -> list[Domain]:
        """Return :meth:`constraints` without the scope."""
        related = [plugin for plugin in cls.domains if plugin.constrains(cls.number)]
        if self._bound is not None:
            related.append(self._bound)
        if self._kept is not None and cls in self._kept[0]:
            related.append(_ScopeBound(self._kept[1]))
        return related

    def domain_mask(self, cls: TaskClass, domains: Sequence[Domain]) -> NDArray[np.bool_] | None:
        """Return the rows that these plugins permit for the class; ``None`` for all rows."""
        mask: NDArray[np.bool_] | None = None
        for plugin in domains:
            verdict = plugin.verdict(cls.number, self._everything)
            if verdict is not None:
                mask = verdict if mask is None else mask & verdict
        return mask

    def _fill_nodes(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        wanted = len(entries)
        placed = 0
        while placed < wanted:
            row = cls.best()
            if row < 0:
                break
            n = min(wanted - placed, int(cls.count[row])) if wanted > 1 else 1
            statement.allocate(group, cls, row, entries[placed : placed + n] if n < wanted else entries)
            placed += n
        return placed

    def _place_one_by_one(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        for placed, entry in enumerate(entries):
            row = cls.best() if self.scope is None else _best_of(cls, self.scope)
            if row < 0:
                return placed
            statement.allocate(group, cls, row, (entry,))
        return len(entries)

    def _fill_scope(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        scope: DomainRows,
    ) -> int:
        """:meth:`_fill_nodes` on the rows of a scope.

        A node is filled at once and does not change others, so one evaluation suffices.
        The remaining tasks are tried once more.
        """
        cls.refresh()
        rows, key = scope.rows, cls.key[scope.rows]
        wanted, placed = len(entries), 0
        while placed < wanted and len(rows):
            at = int(key.argmax())
            if key[at] < 0:
                break
            row = int(rows[at])
            n = min(wanted - placed, int(cls.count[row]))
            statement.allocate(group, cls, row, entries[placed : placed + n] if n < wanted else entries)
            key[at] = -1
            placed += n
        while placed < wanted and (row := _best_of(cls, scope)) >= 0:
            n = min(wanted - placed, int(cls.count[row]))
            statement.allocate(group, cls, row, entries[placed : placed + n])
            placed += n
        return placed

    def _place_in_rounds(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        """Place one by one, if each placement affects the next."""
        current = PlacementRound(
            self._table, self._ranks, cls, self.constraints(cls), self._ranks.rankers(cls)
        )
        for placed, entry in enumerate(entries, start=1):
            row = current.best()
            if row < 0:
                return placed - 1
            statement.allocate(group, cls, row, (entry,))
            if placed < len(entries):
                current.placed(row)
        return len(entries)

    # ------------------------------------------------------------------ room that is being vacated

    def nominate(self, statement: Statement, cls: TaskClass, entries: Sequence[TaskEntry]) -> int:
        """Nominate the first of ``entries`` to capacity that is being released. Return their number."""
        if cls.countable and not self._related(cls) and not self._ranks.rankers(cls):
            return self._nominate_by_counting(statement, cls, entries)
        with self.vacated(statement):
            domains, rankers = self.constraints(cls), self._ranks.rankers(cls)
            everywhere = np.arange(self._table.height, dtype=np.int64)
            rows = everywhere if domains or rankers else self._table.releasing_rows()
            current = PlacementRound(self._table, self._ranks, cls, domains, rankers, later=rows)
            for done, entry in enumerate(entries, start=1):
                row = current.best()
                if row < 0:
                    return done - 1
                statement.pipeline(entry, row)
                if done < len(entries):
                    current.placed(row)
        return len(entries)

    def will_hold(self, statement: Statement, entry: TaskEntry) -> bool:
        """Return whether the nominated capacity of a task still exists after
        terminating tasks are gone.
        """
        cls, row = entry.cls, entry.nominated_row
        with statement.without_nomination(entry):
            count = cls.future_count(np.array([row], dtype=np.int64))
            if count[0] <= 0:
                return False
            if not self.constraints(cls):
                return True  # terminating tasks do not add any
            with self.vacated(statement):
                mask = self.domain_mask(cls, self.constraints(cls))
        return mask is None or bool(mask[row])

    def place_at(
        self,
        statement: Statement,
        group: GroupEntry,
        entry: TaskEntry,
        row: int,
        shares: TaskShares | None = None,
    ) -> bool:
        """Place one task on the given node, if it fits now, and on the given devices, if available."""
        cls = entry.cls
        cls.refresh()
        if cls.count[row] <= 0:
            return False
        domains = self.constraints(cls)
        mask = self.domain_mask(cls, domains) if domains else None
        if mask is not None and not mask[row]:
            return False
        available = shares if shares and statement.fits(row, shares) else None
        statement.allocate(group, cls, row, (entry,), available)
        return True

    def _nominate_by_counting(
        self, statement: Statement, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        rows = self._table.releasing_rows()
        if self.scope is not None:
            rows = rows[self.scope.mask[rows]]
        count, key = cls.future(rows)
        done = 0
        while done < len(entries) and len(rows):
            at = int(key.argmax())
            if key[at] < 0:
                break
            n = min(len(entries) - done, int(count[at]))
            for entry in entries[done : done + n]:
                statement.pipeline(entry, int(rows[at]))
            key[at] = -1
            done += n
        return done

    def _place_by_rank(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        """Place one by one, if a score outranks the preference for free capacity."""
        for done, entry in enumerate(entries):
            now = self._ranked_now(cls)
            with self.vacated(statement):
                row, vacating = self._best_ranked(cls, now)
            if row < 0:
                return done
            if vacating:
                statement.pipeline(entry, row)
            else:
                statement.allocate(group, cls, row, (entry,))
        return len(entries)

    def _ranked_now(self, cls: TaskClass) -> NDArray[np.int64]:
        cls.refresh()
        key = cls.key[: self._table.height]
        domains = self.constraints(cls)
        mask = self.domain_mask(cls, domains) if domains else None
        return key.copy() if mask is None else np.where(mask, key, -1)

    def _best_ranked(self, cls: TaskClass, now: NDArray[np.int64]) -> tuple[int, bool]:
        """Return the best row, and whether its capacity is still being released; -1 for none.

        Outranking scores come first, then free capacity before releasing capacity, then
        all scores.
        """
        rows = np.arange(self._table.height, dtype=np.int64)
        _, later = cls.future(rows)
        domains = self.constraints(cls)
        mask = self.domain_mask(cls, domains) if domains else None
        if mask is not None:
            later = np.where(mask, later, -1)
        candidates = (now >= 0) | (later >= 0)
        if not candidates.any():
            return -1, False
        rank = self._ranks.outranking(cls, candidates)
        best = candidates & (rank == rank[candidates].max())
        rankers = self._ranks.rankers(cls)
        for key, vacating in ((now, False), (later, True)):
            at = self._ranks.best(cls, rankers, np.where(best, key, -1))
            if at >= 0:
                return at, vacating
        return -1, False

    @contextmanager
    def vacated(self, statement: Statement) -> Iterator[None]:
        """Inside, terminating tasks are gone for all domain plugins."""
        domains = self._count_terminating
        terminating = (
            Counter((entry.cls.number, entry.row) for entry in statement.terminating) if domains else {}
        )
        for plugin in domains:
            for (number, row), n in terminating.items():
                plugin.add(number, row, -n)
        try:
            with statement.without_terminating_zones():
                yield
        finally:
            for plugin in domains:
                for (number, row), n in terminating.items():
                    plugin.add(number, row, n)


def _best_of(cls: TaskClass, scope: DomainRows) -> int:
    """Return the best row of a scope that takes a task of the class now; -1 for none."""
    cls.refresh()
    key = cls.key[scope.rows]
    at = int(key.argmax()) if len(key) else -1
    return int(scope.rows[at]) if at >= 0 and key[at] >= 0 else -1

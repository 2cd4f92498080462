"""Placing like tasks on the best nodes.

A class whose constraints are static or in its node's own row, and whose score never falls as a node
fills, is placed by counting: the best node takes as many as it holds, then the next. That equals
placing one by one (a property test holds it). Anything else is placed one by one: each time the best
node is taken, and what the placement touched is looked at again (see ``rounds``).

On request, what fits nowhere now is promised room that is being vacated: nodes are then judged as they
will be once everything that terminates is gone and every promise is kept. Room that is free now goes
first, unless a score outranks that.

All of it may be confined to some rows (:attr:`Placer.scope`): those of a domain of a topology, which may say
in which order portions of it are to be used up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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


class _Within(DomainBound):
    """Closes the nodes outside of a scope: a domain policy for as long as it is in force."""

    name = "scope"

    def __init__(self, scope: DomainRows) -> None:
        self._mask = scope.mask

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        return self._mask[nodes.rows]

    def touched(self, number: int, row: int) -> tuple[tuple[str, int], ...]:
        """Nothing that is placed moves it."""
        return ()


class Placer:
    def __init__(self, table: NodeTable, plugins: PluginSet) -> None:
        self._table = table
        self._until_gone = [plugin for plugin in plugins.domains if counts_terminating(plugin)]
        """The policies about other pods to whom what terminates is there until it is gone."""
        self._ranks = Ranks(table, plugins)
        self._everything = TableView(table)
        self._bound: FlavorBound | None = None
        self.scope: DomainRows | None = None
        """The rows to which everything is confined; ``None``: all."""

    @contextmanager
    def within(self, scope: DomainRows | None) -> Iterator[None]:
        """Confine what happens inside to a scope."""
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    def place_class(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        *,
        future: bool = False,
    ) -> int:
        """Place the first tasks of ``entries`` (pending, of ``cls``) as far as nodes take them.

        ``future``: those that fit nowhere now are promised room that is being vacated. Returns how many
        were placed or promised room, always a prefix.
        """
        self._bound = flavor_bound_of(group, cls, future=False)
        try:
            return self._place_class(statement, group, cls, entries, future)
        finally:
            self._bound = None

    def place_plain(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> bool | None:
        """Place one task on its best node, if one takes it; ``None`` if a policy weighs it against other pods, or
        :attr:`scope` is in force."""
        if self.scope is not None or not self._plain(group, cls):
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
        """Place tasks on the rows of a scope, which by the counts hold them, if nothing but counts decides."""
        return (
            cls.countable
            and self._plain(group, cls)
            and len(entries) == self._fill_scope(statement, group, cls, entries, scope)
        )

    def by_amounts(self, group: GroupEntry, cls: TaskClass) -> bool:
        """Whether tasks of the class are placed by counting, now as later."""
        return self._plain(group, cls) and not self._ranks.outranked(cls)

    def _plain(self, group: GroupEntry, cls: TaskClass) -> bool:
        """Whether no policy weighs tasks of the class against other pods, so that one goes to the best node."""
        if cls.rankers and self._ranks.rankers(cls):
            return False
        for plugin in cls.domains:
            if plugin.constrains(cls.number):
                return False
        queue = group.queue
        return queue is None or not queue.tree.flavors or flavor_bound_of(group, cls, future=False) is None

    def _place_class(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        future: bool,
    ) -> int:
        if future and statement.leaving and self._ranks.outranked(cls):
            return self._by_rank(statement, group, cls, entries)
        if self.scope is not None and self.scope.nearest:
            placed = self._gather(statement, group, cls, entries, self.scope)
        else:
            placed = self._place_class_now(statement, group, cls, entries)
        if future and placed < len(entries) and statement.leaving:
            if self._bound is not None:
                self._bound.future = True  # only what is promised counts on what leaves
            placed += self.nominate(statement, cls, entries[placed:])
        return placed

    def _place_class_now(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        if self._related(cls) or self._ranks.rankers(cls):
            return self._in_rounds(statement, group, cls, entries)
        if cls.countable and self.scope is not None:
            return self._fill_scope(statement, group, cls, entries, self.scope)
        if cls.countable:
            return self._fill_nodes(statement, group, cls, entries)
        return self._one_by_one(statement, group, cls, entries)

    def _gather(
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        scope: DomainRows,
    ) -> int:
        """Use up the portions of a scope, one after the other."""
        placed = 0
        for portion in scope.nearest:
            with self.within(portion):
                placed += self._place_class_now(statement, group, cls, entries[placed:])
            if placed == len(entries):
                break
        return placed

    def constraints(self, cls: TaskClass) -> list[Domain]:
        """The policies that may refuse nodes for the class because of pods elsewhere, what the queues
        of the group that is being placed say about device models, and the scope that is in force."""
        found = self._related(cls)
        if self.scope is not None:
            found.append(_Within(self.scope))
        return found

    def _related(self, cls: TaskClass) -> list[Domain]:
        """:meth:`constraints` without the scope."""
        found = [plugin for plugin in cls.domains if plugin.constrains(cls.number)]
        if self._bound is not None:
            found.append(self._bound)
        return found

    def domain_mask(self, cls: TaskClass, domains: Sequence[Domain]) -> NDArray[np.bool_] | None:
        """Where these policies let a task of the class go; ``None`` for everywhere."""
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

    def _one_by_one(
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
        """:meth:`_fill_nodes` on the rows of a scope. A node is filled at once, and what stands on one moves no
        other, so one look at all of them will do; what is left over is looked for once more."""
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

    def _in_rounds(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        """One by one, where each placement bears on the next."""
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
        """Promise the first of ``entries`` room on nodes that something is leaving. Returns how many got it."""
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

    def holds(self, statement: Statement, entry: TaskEntry) -> bool:
        """Whether what a task is promised will still be there once all that terminates is gone."""
        cls, row = entry.cls, entry.promised
        with statement.withheld(entry):
            count = cls.future_count(np.array([row], dtype=np.int64))
            if count[0] <= 0:
                return False
            if not self.constraints(cls):
                return True  # whoever leaves does not bring any
            with self.vacated(statement):
                mask = self.domain_mask(cls, self.constraints(cls))
        return mask is None or bool(mask[row])

    def place_at(
        self,
        statement: Statement,
        group: GroupEntry,
        entry: TaskEntry,
        row: int,
        cuts: TaskShares | None = None,
    ) -> bool:
        """Place one task on the given node, if it may go there now; on these cards, if that can be."""
        cls = entry.cls
        cls.refresh()
        if cls.count[row] <= 0:
            return False
        domains = self.constraints(cls)
        mask = self.domain_mask(cls, domains) if domains else None
        if mask is not None and not mask[row]:
            return False
        kept = cuts if cuts and statement.fits(row, cuts) else None
        statement.allocate(group, cls, row, (entry,), kept)
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

    def _by_rank(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        """One by one, where a score counts more than whether the room is free now."""
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
        """The best node, and whether its room is still being vacated; -1 if there is none.

        First what the outranking scores say, then free now before vacating, then all scores.
        """
        rows = np.arange(self._table.height, dtype=np.int64)
        _, later = cls.future(rows)
        domains = self.constraints(cls)
        mask = self.domain_mask(cls, domains) if domains else None
        if mask is not None:
            later = np.where(mask, later, -1)
        rivals = (now >= 0) | (later >= 0)
        if not rivals.any():
            return -1, False
        rank = self._ranks.outranking(cls, rivals)
        best = rivals & (rank == rank[rivals].max())
        rankers = self._ranks.rankers(cls)
        for key, vacating in ((now, False), (later, True)):
            at = self._ranks.best(cls, rankers, np.where(best, key, -1))
            if at >= 0:
                return at, vacating
        return -1, False

    @contextmanager
    def vacated(self, statement: Statement) -> Iterator[None]:
        """Inside, what terminates is gone to all policies about pods in relation to one another."""
        domains = self._until_gone
        leaving = Counter((entry.cls.number, entry.row) for entry in statement.leaving) if domains else {}
        for plugin in domains:
            for (number, row), n in leaving.items():
                plugin.add(number, row, -n)
        try:
            with statement.zones_vacated():
                yield
        finally:
            for plugin in domains:
                for (number, row), n in leaving.items():
                    plugin.add(number, row, n)


def _best_of(cls: TaskClass, scope: DomainRows) -> int:
    """The best row of a scope that takes a task of the class now; -1 if none."""
    cls.refresh()
    key = cls.key[scope.rows]
    at = int(key.argmax()) if len(key) else -1
    return int(scope.rows[at]) if at >= 0 and key[at] >= 0 else -1

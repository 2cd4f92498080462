"""Placing like tasks on the best nodes.

A class whose constraints are static or in its node's own row, and whose score never falls as a node
fills, is placed by counting: the best node takes as many as it holds, then the next. That equals
placing one by one (a property test holds it). Anything else is placed one by one: each time the best
node is taken, and the policies about pods in relation to one another are asked again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.classes import TaskClass
from windlass.engine.groups import GroupEntry, TaskEntry
from windlass.engine.policies import Policies
from windlass.engine.statement import Statement
from windlass.engine.table import NodeTable
from windlass.engine.view import TableView
from windlass.spi.plugins import Domain


class Placer:
    def __init__(self, table: NodeTable, policies: Policies) -> None:
        self._table = table
        self._domains = policies.domains
        self._everything = TableView(table)

    def place(
        self, statement: Statement, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]
    ) -> int:
        """Place the first tasks of ``entries`` (pending, of ``cls``) as far as nodes take them.

        Returns how many were placed, always a prefix.
        """
        domains = self.constraints(cls)
        if domains:
            return self._one_by_one(statement, group, cls, entries, domains)
        if cls.countable:
            return self._fill(statement, group, cls, entries)
        return self._one_by_one(statement, group, cls, entries, ())

    def constraints(self, cls: TaskClass) -> list[Domain]:
        """The policies that may refuse nodes for the class because of pods elsewhere."""
        return [plugin for plugin in self._domains if plugin.constrains(cls.number)]

    def domain_mask(self, cls: TaskClass, domains: Sequence[Domain]) -> NDArray[np.bool_] | None:
        """Where these policies let a task of the class go; ``None`` for everywhere."""
        mask: NDArray[np.bool_] | None = None
        for plugin in domains:
            verdict = plugin.verdict(cls.number, self._everything)
            if verdict is not None:
                mask = verdict if mask is None else mask & verdict
        return mask

    def _fill(
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
        self,
        statement: Statement,
        group: GroupEntry,
        cls: TaskClass,
        entries: Sequence[TaskEntry],
        domains: Sequence[Domain],
    ) -> int:
        for placed, entry in enumerate(entries):
            row = self.best(cls, domains)
            if row < 0:
                return placed
            statement.allocate(group, cls, row, (entry,))
        return len(entries)

    def best(self, cls: TaskClass, domains: Sequence[Domain]) -> int:
        """The best node for one task of the class, all policies asked; -1 if there is none."""
        mask = self.domain_mask(cls, domains) if domains else None
        if mask is None:
            return cls.best()
        cls.refresh()
        height = self._table.height
        if not height:
            return -1
        key = np.where(mask, cls.key[:height], -1)
        row = int(key.argmax())
        return row if key[row] >= 0 else -1

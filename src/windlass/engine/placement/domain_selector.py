"""In which domain a group is placed: the candidates, best first.

The tightest level that is asked for is looked at first. Of its domains those come into question that could take
all that is missing, by counting; where members run already, only the one that they lie in. Among several the
policies choose (:class:`~windlass.spi.plugins.DomainScore`), else the one that has least room to spare: large
domains are kept for what needs them. Inside a domain wider than the level that was preferred, and where only the
whole cluster holds the group, the domains next to its members, then those with most room, are used up one
after the other.

Counts are upper bounds where pods are related to other pods, or where a step has several classes: whoever uses
a candidate places the step in it and takes the next one if that fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import ACTIVE, GroupEntry, TaskEntry
from windlass.engine.groups.next_step import MissingSubGroup, NextTasks, TaskBatch
from windlass.engine.nodes.table import NodeTable
from windlass.engine.placement.topology_domains import DomainRows, DomainSums, DomainTree, DomainTrees
from windlass.spi.nodes import IntArray
from windlass.spi.objects import Dialect
from windlass.spi.plugins import DomainScore
from windlass.spi.topology import TopologyNeed

MOST_TRIED = 256
"""So many domains of one level are tried at most."""
_TOO_MUCH = 1 << 62
_NONE_KEPT: frozenset[int] = frozenset()


@dataclass(slots=True)
class DomainDemand:
    """What has to find room in one domain: ``members`` tasks, of each class at most so many."""

    members: int
    classes: dict[TaskClass, int] = field(default_factory=dict)

    @staticmethod
    def of(batches: Iterable[TaskBatch], members: int) -> DomainDemand:
        demand = DomainDemand(members)
        for batch in batches:
            demand.classes[batch.cls] = demand.classes.get(batch.cls, 0) + len(batch.entries)
        return demand

    @staticmethod
    def of_part(part: MissingSubGroup) -> DomainDemand:
        demand = DomainDemand(part.least())
        demand._gather(part)
        return demand

    def _gather(self, part: MissingSubGroup) -> None:
        for batch in part.batches:
            self.classes[batch.cls] = self.classes.get(batch.cls, 0) + len(batch.entries)
        for below in part.parts:
            self._gather(below)

    def request(self) -> dict[str, int]:
        """What the members ask for in sum, the first classes first."""
        found: dict[str, int] = {}
        left = self.members
        for cls, there in self.classes.items():
            n = min(left, there)
            for name, units in cls.items:
                found[name] = found.get(name, 0) + n * units
            left -= n
        return found


class DomainSelector:
    """Domains for groups and their parts."""

    def __init__(self, table: NodeTable, plugins: Sequence[object]) -> None:
        self._table = table
        self.forest = DomainTrees(table)
        self._scores: dict[Dialect, DomainScore] = {}
        for plugin in plugins:
            if isinstance(plugin, DomainScore):
                for dialect in getattr(plugin, "dialects", None) or tuple(Dialect):
                    self._scores.setdefault(dialect, plugin)

    # ------------------------------------------------------------------ candidates

    def of_step(self, group: GroupEntry, step: NextTasks, *, future: bool) -> Iterator[DomainRows]:
        """Where a group's step may be placed, best first."""
        need = group.spec.topology
        if need is None:
            raise ValueError(f"{group.key} asks for no topology")
        if step.extra and len(step.options) > 1:
            demand = DomainDemand.of(step.batches, min(option.least() for option in step.options))
        else:
            demand = DomainDemand.of(step.batches, max(step.members, 1))
        held = held_rows(group) if group.active or group.promises else []
        return self.scopes(need, demand, held, None, future=future)

    def of_part(
        self, group: GroupEntry, part: MissingSubGroup, outer: DomainRows | None, *, future: bool
    ) -> Iterator[DomainRows]:
        """Where what a part lacks may be placed inside ``outer``, best first."""
        need = group.near_parts[part.name]
        return self.scopes(
            need, DomainDemand.of_part(part), held_rows(group, part.name), outer, future=future
        )

    def first(self, need: TopologyNeed, cls: TaskClass, n: int) -> DomainRows | None:
        """The best candidate for ``n`` tasks of one class, if counts alone say which it is."""
        if need.anchor or self._scores or need.required < 0:
            return None
        tree = self.forest.of(need)
        for level in need.tried():
            room = tree.totals(cls, level)[1:]
            if not len(room):
                continue
            spare = np.where(room >= n, room, _TOO_MUCH)
            at = int(spare.argmin())
            if spare[at] < _TOO_MUCH:
                return tree.scope(level, at + 1) if level >= need.preferred else None
        return None

    def scopes(
        self,
        need: TopologyNeed,
        demand: DomainDemand,
        held: Sequence[int],
        outer: DomainRows | None,
        *,
        future: bool = False,
    ) -> Iterator[DomainRows]:
        """Candidates that might hold ``demand`` beside what is on the rows ``held``."""
        tree = self.forest.of(need)
        for level in need.tried():
            room = self.room(tree, level, demand, outer, future=future)
            able = room >= demand.members
            able[0] = False
            if held:
                code = tree.common(level, held)
                codes = np.array([code] if able[code] else [], dtype=np.int64)
            else:
                codes = np.flatnonzero(able)
            if not len(codes):
                continue
            for code in self._ranked(tree, level, codes, room, need, demand, outer):
                scope = tree.scope(level, code).inside(outer)
                if need.preferred > level:
                    scope = self._gathered(tree, level, need, demand, held, scope)
                yield scope
        if need.required < 0:
            everywhere = outer or DomainRows(np.flatnonzero(self._table.live[: tree.height]), tree.height)
            yield self._gathered(tree, -1, need, demand, held, everywhere)

    def room(
        self,
        tree: DomainTree,
        level: int,
        demand: DomainDemand,
        outer: DomainRows | None = None,
        *,
        future: bool = False,
    ) -> IntArray:
        """Per domain, at most how many of the tasks it takes: exact for one class that no policy ties to others."""
        if len(demand.classes) == 1:
            (cls,) = demand.classes
            return self._room(tree, level, cls, outer, future=future)
        found = np.zeros(len(tree.names[level]), dtype=np.int64)
        for cls, there in demand.classes.items():
            found += np.minimum(self._room(tree, level, cls, outer, future=future), there)
        return found

    def _room(
        self, tree: DomainTree, level: int, cls: TaskClass, outer: DomainRows | None, *, future: bool
    ) -> IntArray:
        if outer is None:
            return tree.future_totals(cls, level) if future else tree.totals(cls, level)
        cls.refresh()
        rows = outer.rows
        found = tree.sums(level, cls.count[rows], rows)
        if future:
            leaving = self._table.releasing_rows()
            leaving = leaving[outer.mask[leaving]]
            if len(leaving):
                more = np.maximum(cls.future_count(leaving) - cls.count[leaving], 0)
                found = found + tree.sums(level, more, leaving)
        return found

    def _ranked(
        self,
        tree: DomainTree,
        level: int,
        codes: IntArray,
        room: IntArray,
        need: TopologyNeed,
        demand: DomainDemand,
        outer: DomainRows | None,
    ) -> Iterator[int]:
        """The codes in the order in which they are tried."""
        if len(codes) == 1:
            yield int(codes[0])
            return
        scorer = self._scorer(demand)
        if scorer is None and not need.anchor:
            spare = room[codes]
            yield int(codes[spare.argmin()])
            order = np.argsort(spare, kind="stable")[1:MOST_TRIED]
        else:
            if scorer is None:
                rank = room[codes].astype(np.float64)
            else:
                view = DomainSums(self._table, tree, level, codes, outer.rows if outer else None)
                rank = -scorer.domain_scores(demand.request(), view)
            kept = self._kept(tree, level, need.anchor)
            away = np.array([code not in kept for code in codes.tolist()])
            order = np.lexsort((room[codes], rank, away))[:MOST_TRIED]
        for at in order.tolist():
            yield int(codes[at])

    def _scorer(self, demand: DomainDemand) -> DomainScore | None:
        if not self._scores:
            return None
        return self._scores.get(next(iter(demand.classes)).needs.dialect)

    @staticmethod
    def _kept(tree: DomainTree, level: int, anchor: str) -> frozenset[int] | set[int]:
        """The domains of a level that lie in the named one, or around it."""
        found = tree.code_of(anchor) if anchor else None
        if found is None:
            return _NONE_KEPT
        codes = tree.codes[level][tree.scope(*found).rows]
        return set(np.unique(codes).tolist()) - {0}

    def _gathered(
        self,
        tree: DomainTree,
        level: int,
        need: TopologyNeed,
        demand: DomainDemand,
        held: Sequence[int],
        scope: DomainRows,
    ) -> DomainRows:
        """The same rows in portions: what lies next to the members first, then where there is most room."""
        rows = scope.rows
        keys: list[NDArray[np.int64]] = []
        for finer in range(level + 1, need.preferred + 1):
            codes = tree.codes[finer]
            room = self.room(tree, finer, demand, scope if level >= 0 or len(rows) < tree.height else None)
            near = np.zeros(len(room), dtype=np.int64)
            for row in held:
                near[codes[row]] += 1
            order = np.lexsort((-room[1:], -near[1:])) + 1
            place = np.full(len(room), len(order), dtype=np.int64)  # what lies in none comes last
            place[order] = np.arange(len(order))
            keys.append(place[codes[rows]])
        if not keys:
            return scope
        order = np.lexsort(keys[::-1])
        sorted_rows = rows[order]
        last = np.stack([key[order] for key in keys])
        cuts = np.flatnonzero((last[:, 1:] != last[:, :-1]).any(axis=0)) + 1
        portions = tuple(
            DomainRows(np.sort(part), scope.height) for part in np.split(sorted_rows, cuts) if len(part)
        )
        return DomainRows(
            rows, scope.height, level=scope.level, code=scope.code, name=scope.name, nearest=portions
        )

    # ------------------------------------------------------------------ one task more

    def domains(self, group: GroupEntry) -> IntArray | None:
        """Per row, the domain in one of which all of the group has to be, 0 where none of it may be; ``None``
        if nothing is required of the group as a whole."""
        need = group.spec.topology
        if need is None or need.required < 0:
            return None
        codes = self.forest.of(need).codes[need.required]
        held = held_rows(group)
        if not held:
            return codes
        common = self.forest.of(need).common(need.required, held)
        return np.where(codes == (common or _NOWHERE), codes, 0)

    def allowed(
        self, group: GroupEntry, part: str = "", outer: DomainRows | None = None
    ) -> DomainRows | None:
        """Where one more task of the group (or of a part of it) may be beside those that hold or are promised
        room; ``None`` for everywhere."""
        scope = outer
        for name in chain(group, part):
            need = group.near_parts.get(name) if name else group.spec.topology
            if need is None or need.required < 0:
                continue
            held = held_rows(group, name)
            tree = self.forest.of(need)
            if held:
                found = tree.scope(need.required, tree.common(need.required, held) or _NOWHERE)
            else:
                found = DomainRows(np.flatnonzero(tree.codes[need.required] > 0), tree.height)
            scope = found.inside(scope)
        return scope

    def home(self, group: GroupEntry, need: TopologyNeed) -> TopologyNeed:
        """The need of a group with the domain that its tasks are in, terminating ones included, as the one to be
        tried first."""
        tree = self.forest.of(need)
        rows = [entry.row for entry in group.tasks.values() if entry.row >= 0]
        code = tree.common(need.required, rows) if rows else 0
        return replace(need, anchor=tree.names[need.required][code]) if code else need

    def requires(self, group: GroupEntry) -> bool:
        """Whether it, or a part of it, has to lie in one domain of anything."""
        needs = (group.spec.topology, *group.near_parts.values())
        return any(need is not None and need.required >= 0 for need in needs)

    def may_hold(self, group: GroupEntry) -> bool:
        """Whether, by counting, some domain of the required level holds the group's next step, once all that
        terminates is gone."""
        step, need = group.step, group.spec.topology
        if step is None or need is None or need.required < 0 or step.options or group.promises:
            return True
        return self.most(group, step, future=True) >= step.members

    def most(self, group: GroupEntry, step: NextTasks, *, future: bool) -> int:
        """At most so many of a step's members fit into one domain of the level that is required."""
        need = group.spec.topology
        if need is None or need.required < 0:
            return 0
        tree = self.forest.of(need)
        room = self.room(tree, need.required, DomainDemand.of(step.batches, step.members), future=future)
        held = held_rows(group)
        codes = [tree.common(need.required, held)] if held else range(1, len(room))
        return min(step.members, max((int(room[code]) for code in codes if code), default=0))

    def keeps(self, group: GroupEntry) -> bool:
        """Whether all that hold or are promised room, of the group and of each part, lie as near as required."""
        if not group.near:
            return True
        for name in ("", *group.near_parts):
            need = group.near_parts.get(name) if name else group.spec.topology
            if need is None or need.required < 0:
                continue
            held = held_rows(group, name)
            if held and not self.forest.of(need).common(need.required, held):
                return False
        return True


_NOWHERE = -1
"""The code of no domain."""


def chain(group: GroupEntry, part: str) -> Iterator[str]:
    """The part, those that it lies in, and the group (the empty name)."""
    if group.parts is not None and part:
        entry = group.parts.by_name.get(part)
        while entry is not None and entry is not group.parts.root:
            yield entry.name
            entry = entry.parent
    yield ""


def held_rows(group: GroupEntry, part: str = "") -> list[int]:
    """The rows on which tasks of the group, or of a part and those below it, are or are promised room."""
    if not part:
        return [row for entry in group.tasks.values() if (row := _row(entry)) >= 0]
    tree = group.parts
    top = tree.by_name.get(part) if tree is not None else None
    if tree is None or top is None:
        return []
    names = {below.name for below in top.walk()}
    return [
        row for entry in group.tasks.values() if entry.task.subgroup in names and (row := _row(entry)) >= 0
    ]


def _row(entry: TaskEntry) -> int:
    if entry.promised >= 0:
        return entry.promised
    return entry.row if entry.state in ACTIVE else -1

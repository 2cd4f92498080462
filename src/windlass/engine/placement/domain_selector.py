"""Candidate topology domains of a group, best first.

The finest requested level comes first. Its candidates are the domains that hold all
missing tasks by counts. If members run already, only their domain is a candidate.
Policies choose among several (:class:`~windlass.spi.plugins.DomainScore`). Otherwise
the domain with the least remaining capacity comes first, which keeps large domains for
large gangs.

A candidate may be coarser than the preferred level, or be the whole cluster. Then its
finer domains are filled one after the other: first those next to members, then those
with the most capacity.

Counts are upper bounds if pods depend on other pods, or if the tasks have several
classes. The caller places the tasks in a candidate and tries the next one if that
fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import (
    ACTIVE,
    GroupEntry,
    MissingSubGroup,
    NextTasks,
    TaskBatch,
    TaskEntry,
)
from windlass.engine.nodes.table import NodeTable
from windlass.engine.placement.topology_domains import DomainRows, DomainSums, DomainTree, DomainTrees
from windlass.spi.nodes import IntArray
from windlass.spi.objects import Dialect
from windlass.spi.plugins import DomainScore
from windlass.spi.topology import TopologyNeed

MAX_TRIED = 256
"""Maximum number of domains that are tried per level."""
_TOO_MUCH = 1 << 62
_NO_DOMAINS: frozenset[int] = frozenset()


@dataclass(slots=True)
class DomainDemand:
    """Demand on one domain: ``members`` tasks, with an upper bound for each class."""

    members: int
    classes: dict[TaskClass, int] = field(default_factory=dict)

    @staticmethod
    def of(batches: Iterable[TaskBatch], members: int) -> DomainDemand:
        demand = DomainDemand(members)
        for batch in batches:
            demand.classes[batch.cls] = demand.classes.get(batch.cls, 0) + len(batch.entries)
        return demand

    @staticmethod
    def of_subgroup(subgroup: MissingSubGroup) -> DomainDemand:
        demand = DomainDemand(subgroup.min_tasks())
        demand._gather(subgroup)
        return demand

    def _gather(self, subgroup: MissingSubGroup) -> None:
        for batch in subgroup.batches:
            self.classes[batch.cls] = self.classes.get(batch.cls, 0) + len(batch.entries)
        for below in subgroup.children:
            self._gather(below)

    def request(self) -> dict[str, int]:
        """Return the sum of the requests of the members, taken from the first classes on."""
        request: dict[str, int] = {}
        left = self.members
        for cls, count in self.classes.items():
            n = min(left, count)
            for name, units in cls.items:
                request[name] = request.get(name, 0) + n * units
            left -= n
        return request


class DomainSelector:
    """Selects domains for groups and sub-groups."""

    def __init__(self, table: NodeTable, plugins: Sequence[object]) -> None:
        self._table = table
        self.trees = DomainTrees(table)
        self._scores: dict[Dialect, DomainScore] = {}
        for plugin in plugins:
            if isinstance(plugin, DomainScore):
                for dialect in getattr(plugin, "dialects", None) or tuple(Dialect):
                    self._scores.setdefault(dialect, plugin)

    # ------------------------------------------------------------------ candidates

    def step_candidates(self, group: GroupEntry, step: NextTasks, *, future: bool) -> Iterator[DomainRows]:
        """Yield candidates for the next tasks of a group, best first."""
        need = group.spec.topology
        if need is None:
            raise ValueError(f"{group.key} asks for no topology")
        if step.extra and len(step.options) > 1:
            demand = DomainDemand.of(step.batches, min(option.min_tasks() for option in step.options))
        else:
            demand = DomainDemand.of(step.batches, max(step.members, 1))
        held = held_rows(group) if group.active or group.nominations else []
        return self.candidates(need, demand, held, None, future=future)

    def subgroup_candidates(
        self, group: GroupEntry, subgroup: MissingSubGroup, outer: DomainRows | None, *, future: bool
    ) -> Iterator[DomainRows]:
        """Yield candidates for the missing tasks of a sub-group inside ``outer``, best first."""
        need = group.subgroup_topologies[subgroup.name]
        return self.candidates(
            need, DomainDemand.of_subgroup(subgroup), held_rows(group, subgroup.name), outer, future=future
        )

    def best_by_count(self, need: TopologyNeed, cls: TaskClass, n: int) -> DomainRows | None:
        """Return the best candidate for ``n`` tasks of one class, if counts alone determine it."""
        if need.anchor or self._scores or need.required < 0:
            return None
        tree = self.trees.of(need)
        for level in need.tried():
            capacity = tree.totals(cls, level)[1:]
            if not len(capacity):
                continue
            spare = np.where(capacity >= n, capacity, _TOO_MUCH)
            at = int(spare.argmin())
            if spare[at] < _TOO_MUCH:
                return tree.scope(level, at + 1) if level >= need.preferred else None
        return None

    def candidates(
        self,
        need: TopologyNeed,
        demand: DomainDemand,
        held: Sequence[int],
        outer: DomainRows | None,
        *,
        future: bool = False,
    ) -> Iterator[DomainRows]:
        """Yield candidates for ``demand`` in addition to the tasks on the rows ``held``."""
        tree = self.trees.of(need)
        for level in need.tried():
            capacity = self.capacity(tree, level, demand, outer, future=future)
            suffices = capacity >= demand.members
            suffices[0] = False
            if held:
                code = tree.common(level, held)
                codes = np.array([code] if suffices[code] else [], dtype=np.int64)
            else:
                codes = np.flatnonzero(suffices)
            if not len(codes):
                continue
            for code in self._ranked(tree, level, codes, capacity, need, demand, outer):
                scope = tree.scope(level, code).inside(outer)
                if need.preferred > level:
                    scope = self._in_portions(tree, level, need, demand, held, scope)
                yield scope
        if need.required < 0:
            everywhere = outer or DomainRows(np.flatnonzero(self._table.live[: tree.height]), tree.height)
            yield self._in_portions(tree, -1, need, demand, held, everywhere)

    def capacity(
        self,
        tree: DomainTree,
        level: int,
        demand: DomainDemand,
        outer: DomainRows | None = None,
        *,
        future: bool = False,
    ) -> IntArray:
        """Return the maximum number of tasks per domain.

        It is exact for one class that no policy relates to other pods.
        """
        if len(demand.classes) == 1:
            (cls,) = demand.classes
            return self._class_capacity(tree, level, cls, outer, future=future)
        capacity = np.zeros(len(tree.names[level]), dtype=np.int64)
        for cls, count in demand.classes.items():
            capacity += np.minimum(self._class_capacity(tree, level, cls, outer, future=future), count)
        return capacity

    def _class_capacity(
        self, tree: DomainTree, level: int, cls: TaskClass, outer: DomainRows | None, *, future: bool
    ) -> IntArray:
        if outer is None:
            return tree.future_totals(cls, level) if future else tree.totals(cls, level)
        cls.refresh()
        rows = outer.rows
        capacity = tree.sums(level, cls.count[rows], rows)
        if future:
            releasing = self._table.releasing_rows()
            releasing = releasing[outer.mask[releasing]]
            if len(releasing):
                more = np.maximum(cls.future_count(releasing) - cls.count[releasing], 0)
                capacity = capacity + tree.sums(level, more, releasing)
        return capacity

    def _ranked(
        self,
        tree: DomainTree,
        level: int,
        codes: IntArray,
        capacity: IntArray,
        need: TopologyNeed,
        demand: DomainDemand,
        outer: DomainRows | None,
    ) -> Iterator[int]:
        """Yield the codes in the order in which they are tried."""
        if len(codes) == 1:
            yield int(codes[0])
            return
        scorer = self._scorer(demand)
        if scorer is None and not need.anchor:
            spare = capacity[codes]
            yield int(codes[spare.argmin()])
            order = np.argsort(spare, kind="stable")[1:MAX_TRIED]
        else:
            if scorer is None:
                rank = capacity[codes].astype(np.float64)
            else:
                view = DomainSums(self._table, tree, level, codes, outer.rows if outer else None)
                rank = -scorer.domain_scores(demand.request(), view)
            anchored = self._anchored(tree, level, need.anchor)
            outside = np.array([code not in anchored for code in codes.tolist()])
            order = np.lexsort((capacity[codes], rank, outside))[:MAX_TRIED]
        for at in order.tolist():
            yield int(codes[at])

    def _scorer(self, demand: DomainDemand) -> DomainScore | None:
        if not self._scores:
            return None
        return self._scores.get(next(iter(demand.classes)).needs.dialect)

    @staticmethod
    def _anchored(tree: DomainTree, level: int, anchor: str) -> frozenset[int] | set[int]:
        """Return the domains of a level that lie in the anchor, or contain it."""
        found = tree.code_of(anchor) if anchor else None
        if found is None:
            return _NO_DOMAINS
        codes = tree.codes[level][tree.scope(*found).rows]
        return set(np.unique(codes).tolist()) - {0}

    def _in_portions(
        self,
        tree: DomainTree,
        level: int,
        need: TopologyNeed,
        demand: DomainDemand,
        held: Sequence[int],
        scope: DomainRows,
    ) -> DomainRows:
        """Return the scope with portions: first next to members, then by capacity."""
        rows = scope.rows
        keys: list[NDArray[np.int64]] = []
        for finer in range(level + 1, need.preferred + 1):
            codes = tree.codes[finer]
            capacity = self.capacity(
                tree, finer, demand, scope if level >= 0 or len(rows) < tree.height else None
            )
            members = np.zeros(len(capacity), dtype=np.int64)
            for row in held:
                members[codes[row]] += 1
            order = np.lexsort((-capacity[1:], -members[1:])) + 1
            place = np.full(len(capacity), len(order), dtype=np.int64)  # rows without a domain come last
            place[order] = np.arange(len(order))
            keys.append(place[codes[rows]])
        if not keys:
            return scope
        order = np.lexsort(keys[::-1])
        sorted_rows = rows[order]
        sorted_keys = np.stack([key[order] for key in keys])
        boundaries = np.flatnonzero((sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0)) + 1
        portions = tuple(
            DomainRows(np.sort(portion), scope.height)
            for portion in np.split(sorted_rows, boundaries)
            if len(portion)
        )
        return DomainRows(
            rows, scope.height, level=scope.level, code=scope.code, name=scope.name, nearest=portions
        )

    # ------------------------------------------------------------------ one task more

    def domains(self, group: GroupEntry) -> IntArray | None:
        """Return the domain of every row in which the whole group may be, 0 for excluded rows.

        ``None`` if the group as a whole requires no domain.
        """
        need = group.spec.topology
        if need is None or need.required < 0:
            return None
        codes = self.trees.of(need).codes[need.required]
        held = held_rows(group)
        if not held:
            return codes
        common = self.trees.of(need).common(need.required, held)
        return np.where(codes == (common or _NOWHERE), codes, 0)

    def allowed(
        self, group: GroupEntry, subgroup: str = "", outer: DomainRows | None = None
    ) -> DomainRows | None:
        """Return the rows for one more task of the group or sub-group; ``None`` for all rows.

        They are determined by the tasks that are held or nominated already.
        """
        scope = outer
        for name in enclosing_names(group, subgroup):
            need = group.subgroup_topologies.get(name) if name else group.spec.topology
            if need is None or need.required < 0:
                continue
            held = held_rows(group, name)
            tree = self.trees.of(need)
            if held:
                domain = tree.scope(need.required, tree.common(need.required, held) or _NOWHERE)
            else:
                domain = DomainRows(np.flatnonzero(tree.codes[need.required] > 0), tree.height)
            scope = domain.inside(scope)
        return scope

    def anchored_need(self, group: GroupEntry, need: TopologyNeed) -> TopologyNeed:
        """Return the topology constraint with the present domain of the tasks as the
        first candidate.

        Terminating tasks count.
        """
        tree = self.trees.of(need)
        rows = [entry.row for entry in group.tasks.values() if entry.row >= 0]
        code = tree.common(need.required, rows) if rows else 0
        return replace(need, anchor=tree.names[need.required][code]) if code else need

    def requires_domain(self, group: GroupEntry) -> bool:
        """Return whether the group or a sub-group requires a single domain."""
        needs = (group.spec.topology, *group.subgroup_topologies.values())
        return any(need is not None and need.required >= 0 for need in needs)

    def may_hold(self, group: GroupEntry) -> bool:
        """Return whether by counts a domain of the required level holds the group's next tasks.

        Terminating tasks count as gone.
        """
        step, need = group.step, group.spec.topology
        if step is None or need is None or need.required < 0 or step.options or group.nominations:
            return True
        return self.max_members(group, step, future=True) >= step.members

    def max_members(self, group: GroupEntry, step: NextTasks, *, future: bool) -> int:
        """Return the maximum number of members that fit into one domain of the required level."""
        need = group.spec.topology
        if need is None or need.required < 0:
            return 0
        tree = self.trees.of(need)
        capacity = self.capacity(
            tree, need.required, DomainDemand.of(step.batches, step.members), future=future
        )
        held = held_rows(group)
        codes = [tree.common(need.required, held)] if held else range(1, len(capacity))
        return min(step.members, max((int(capacity[code]) for code in codes if code), default=0))

    def is_satisfied(self, group: GroupEntry) -> bool:
        """Return whether all held and nominated tasks satisfy the topology constraints.

        Constraints of the group and of each sub-group are checked.
        """
        if not group.has_topology:
            return True
        for name in ("", *group.subgroup_topologies):
            need = group.subgroup_topologies.get(name) if name else group.spec.topology
            if need is None or need.required < 0:
                continue
            held = held_rows(group, name)
            if held and not self.trees.of(need).common(need.required, held):
                return False
        return True


_NOWHERE = -1
"""Code of no domain."""


def enclosing_names(group: GroupEntry, subgroup: str) -> Iterator[str]:
    """Yield the names of the sub-group, its ancestors and the group ("")."""
    if group.subgroups is not None and subgroup:
        entry = group.subgroups.by_name.get(subgroup)
        while entry is not None and entry is not group.subgroups.root:
            yield entry.name
            entry = entry.parent
    yield ""


def held_rows(group: GroupEntry, subgroup: str = "") -> list[int]:
    """Return the rows of held and nominated tasks of the group, or of a sub-group's subtree."""
    if not subgroup:
        return [row for entry in group.tasks.values() if (row := _row(entry)) >= 0]
    tree = group.subgroups
    top = tree.by_name.get(subgroup) if tree is not None else None
    if tree is None or top is None:
        return []
    names = {below.name for below in top.walk()}
    return [
        row for entry in group.tasks.values() if entry.task.subgroup in names and (row := _row(entry)) >= 0
    ]


def _row(entry: TaskEntry) -> int:
    if entry.nominated_row >= 0:
        return entry.nominated_row
    return entry.row if entry.state in ACTIVE else -1

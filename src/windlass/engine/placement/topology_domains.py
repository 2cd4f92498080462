"""The domains of topologies: which node lies in which, and what each could take.

A :class:`DomainTree` numbers the domains of every level, in the order of their names; 0 stands for none. How many
tasks of a class each domain takes is kept beside it and brought up to date from the table's change log, so that
a bind costs one entry per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.node_fit import NodeFit
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.nodes.table import ALLOCATABLE, USED, NodeTable
from windlass.spi.nodes import BoolArray, IntArray
from windlass.spi.topology import NODE_NAME, Level, TopologyNeed

KEPT = 4_000_000
"""For so many classes times nodes the numbers of one topology are kept."""
SEPARATOR = "/"


@dataclass(slots=True)
class _Totals:
    """What the domains take of one class. ``seen``: the counts by row that are in the sums."""

    source: IntArray
    seen: IntArray
    mark: int
    by_level: list[IntArray]


class DomainRows:
    """Some rows: those of one domain, or of one domain inside another. ``nearest``: the same rows in smaller
    portions, which are used up one after the other. ``level`` and ``code`` say which domain of its tree it is
    (or lies in); -1 and 0 for a portion or the whole cluster."""

    __slots__ = ("_mask", "code", "height", "level", "name", "nearest", "rows")

    def __init__(
        self,
        rows: IntArray,
        height: int,
        *,
        level: int = -1,
        code: int = 0,
        name: str = "",
        nearest: tuple[DomainRows, ...] = (),
    ) -> None:
        self.rows = rows
        self.height = height
        self.level = level
        self.code = code
        self.name = name
        self.nearest = nearest
        self._mask: BoolArray | None = None

    @property
    def mask(self) -> BoolArray:
        """True on these rows, of all there are."""
        if self._mask is None:
            self._mask = np.zeros(self.height, dtype=np.bool_)
            self._mask[self.rows] = True
        return self._mask

    def inside(self, outer: DomainRows | None) -> DomainRows:
        """What of it lies in ``outer``."""
        if outer is None or outer.rows is self.rows:
            return self
        rows = self.rows[outer.mask[self.rows]]
        if len(rows) == len(self.rows):
            return self
        return DomainRows(rows, self.height, level=self.level, code=self.code, name=self.name)


class DomainTree:
    """One topology over the nodes as they are; made anew when they change."""

    def __init__(self, table: NodeTable, levels: Sequence[Level], *, nested: bool) -> None:
        self._table = table
        self.levels = tuple(levels)
        self.version = table.static_log.mark
        self.height = table.height
        self.codes: list[IntArray] = []
        """Per level and row: the domain's number."""
        self.names: list[list[str]] = []
        """Per level: number → name. A nested domain's name has those of the domains that it lies in before it."""
        self._rows: dict[tuple[int, int], DomainRows] = {}
        self._totals: dict[NodeFit, _Totals] = {}
        live = table.live[: table.height]
        outer: tuple[IntArray, list[str]] | None = None
        for level in self.levels:
            codes, names = self._level(level, live)
            if nested and outer is not None:
                codes, names = _inside(outer, (codes, names))
            self.codes.append(codes)
            self.names.append(names)
            outer = (codes, names)

    def _level(self, level: Level, live: BoolArray) -> tuple[IntArray, list[str]]:
        if not level.label:
            return live.astype(np.int64), ["", level.shown]
        if level.label == NODE_NAME:
            nodes = self._table.nodes[: self.height]
            found = sorted(
                (node.name, row) for row, node in enumerate(nodes) if node is not None and live[row]
            )
            codes = np.zeros(self.height, dtype=np.int64)
            codes[[row for _, row in found]] = np.arange(1, len(found) + 1)
            return codes, ["", *(name for name, _ in found)]
        interner, column = self._table.label_column(level.label)
        raw = np.where(live, column[: self.height], 0)
        present = np.unique(raw)
        present = present[present > 0]
        order = sorted(present.tolist(), key=lambda code: interner.values[code])
        numbers = np.zeros(len(interner.values), dtype=np.int64)
        numbers[order] = np.arange(1, len(order) + 1)
        return numbers[raw], ["", *(interner.values[code] for code in order)]

    # ------------------------------------------------------------------ domains

    def scope(self, level: int, code: int) -> DomainRows:
        """The nodes of one domain."""
        found = self._rows.get((level, code))
        if found is None:
            rows = np.flatnonzero(self.codes[level] == code)
            name = self.names[level][code] if code > 0 else ""
            found = DomainRows(rows, self.height, level=level, code=code, name=name)
            self._rows[level, code] = found
        return found

    def code_of(self, name: str) -> tuple[int, int] | None:
        """Level and number of the domain of that name, the finest of several; ``None`` if there is none."""
        for level in range(len(self.levels) - 1, -1, -1):
            if name in self.names[level]:
                return level, self.names[level].index(name)
        return None

    def common(self, level: int, rows: Sequence[int]) -> int:
        """The domain of a level that all of these rows lie in; 0 if there is none."""
        codes = self.codes[level]
        first = int(codes[rows[0]]) if rows[0] < self.height else 0
        if not first or any(row >= self.height or codes[row] != first for row in rows):
            return 0
        return first

    def tightest(self, rows: Sequence[int]) -> tuple[int, int]:
        """The finest level, and its domain, that holds all of these rows; -1, 0 if no level does."""
        for level in range(len(self.levels) - 1, -1, -1):
            code = self.common(level, rows)
            if code:
                return level, code
        return -1, 0

    # ------------------------------------------------------------------ what they take

    def totals(self, cls: TaskClass, level: int) -> IntArray:
        """Per domain of a level, how many tasks of the class its nodes take now; of 0 those of none."""
        cls.refresh()
        return self._fresh(cls.fit).by_level[level]

    def future_totals(self, cls: TaskClass, level: int) -> IntArray:
        """:meth:`totals` as they will be once all that terminates is gone."""
        now = self.totals(cls, level)
        rows = self._table.releasing_rows()
        if not len(rows):
            return now
        count = cls.future_count(rows)
        more = np.maximum(count - cls.count[rows], 0)
        return now + _sums(self.codes[level][rows], more, len(now))

    def sums(self, level: int, per_row: NDArray[np.int64], rows: IntArray | None = None) -> IntArray:
        """Per domain of a level the sum of what is given per row: of all rows, or of some."""
        codes = self.codes[level] if rows is None else self.codes[level][rows]
        return _sums(codes, per_row, len(self.names[level]))

    def _fresh(self, fit: NodeFit) -> _Totals:
        log = self._table.resource_log
        known = self._totals.get(fit)
        if known is not None and known.source is fit.count:
            behind = log.mark - known.mark
            if not behind:
                return known
            changed = log.since(known.mark)
            if changed is not None and behind <= self.height:
                self._follow(known, fit, set(changed))
                known.mark = log.mark
                return known
        if len(self._totals) >= max(32, KEPT // max(self.height, 1)):
            self._totals.clear()
        count = fit.count[: self.height]
        by_level = [self.sums(level, count) for level in range(len(self.levels))]
        fresh = self._totals[fit] = _Totals(fit.count, count.copy(), log.mark, by_level)
        return fresh

    def _follow(self, known: _Totals, fit: NodeFit, changed: set[int]) -> None:
        seen, count = known.seen, fit.count
        for row in changed:
            more = int(count[row]) - int(seen[row])
            if more:
                seen[row] += more
                for codes, totals in zip(self.codes, known.by_level, strict=True):
                    totals[codes[row]] += more


def _sums(codes: IntArray, values: NDArray[np.int64], size: int) -> IntArray:
    """Exact sums by code, as ``np.bincount`` gives them, which would go by way of floats: right up to 2^53."""
    found = np.zeros(size, dtype=np.int64)
    np.add.at(found, codes, values)
    return found


def _inside(
    outer: tuple[IntArray, list[str]], inner: tuple[IntArray, list[str]]
) -> tuple[IntArray, list[str]]:
    """The domains of a level, told by those of the coarser level that they lie in."""
    codes = np.where((outer[0] > 0) & (inner[0] > 0), outer[0] * len(inner[1]) + inner[0], 0)
    present = np.unique(codes)
    present = present[present > 0]
    found = np.zeros(len(codes), dtype=np.int64)
    at = np.searchsorted(present, codes)
    known = codes > 0
    found[known] = at[known] + 1
    whole, part = np.divmod(present, len(inner[1]))
    names = [f"{outer[1][a]}{SEPARATOR}{inner[1][b]}" for a, b in zip(whole, part, strict=True)]
    return found, ["", *names]


class DomainTrees:
    """The trees that groups ask for."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._trees: dict[tuple[tuple[Level, ...], bool], DomainTree] = {}
        self._last: tuple[TopologyNeed | None, DomainTree | None] = (None, None)

    def of(self, need: TopologyNeed) -> DomainTree:
        """The tree of what is asked for, over the nodes as they are."""
        table = self._table
        last, tree = self._last
        if last is need and tree is not None and tree.version == table.static_log.mark:
            return tree
        key = (need.levels, need.nested)
        found = self._trees.get(key)
        if found is None or found.version != table.static_log.mark:
            if len(self._trees) > 64:
                self._trees.clear()
            found = self._trees[key] = DomainTree(table, need.levels, nested=need.nested)
        self._last = (need, found)
        return found


@dataclass(slots=True)
class DomainSums:
    """What :class:`~windlass.spi.plugins.DomainsView` shows of some domains of one level."""

    table: NodeTable
    tree: DomainTree
    level: int
    codes: IntArray
    within: IntArray | None = None
    _known: dict[tuple[int, str], IntArray] = field(default_factory=dict)

    def allocatable(self, resource: str) -> IntArray:
        return self._plane(ALLOCATABLE, resource)

    def used(self, resource: str) -> IntArray:
        return self._plane(USED, resource)

    def _plane(self, plane: int, resource: str) -> IntArray:
        column = self.table.resources.codes.get(resource)
        if column is None:
            return np.zeros(len(self.codes), dtype=np.int64)
        found = self._known.get((plane, resource))
        if found is None:
            cells = self.table.planes[: self.tree.height, plane, column]
            if self.within is not None:
                cells = cells[self.within]
            sums = self.tree.sums(self.level, cells, self.within)
            found = self._known[plane, resource] = sums[self.codes]
        return found

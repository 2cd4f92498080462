"""Domains of topologies: the nodes and the capacity of each.

A :class:`DomainTree` numbers the domains of every level in name order, and 0 is no
domain. The number of tasks of a class that each domain takes is cached and updated from
the change log of the table, so a bind costs one entry per level.
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
from windlass.spi.topology import LACKS, NODE_NAME, Level, TopologyNeed

MAX_CACHED = 4_000_000
"""Maximum product of classes and nodes with cached counts, per topology."""
SEPARATOR = "/"


@dataclass(slots=True)
class _Totals:
    """Capacity of domains for one class. ``seen``: counts by row that the sums include."""

    source: IntArray
    seen: IntArray
    mark: int
    by_level: list[IntArray]


class DomainRows:
    """Rows of a domain, or of its part inside another domain.

    * ``portions``: the same rows in portions that are filled one after the other.
    * ``level``, ``code``: the domain in its tree, or -1 and 0 for a portion or the
      whole cluster.
    """

    __slots__ = ("_mask", "code", "height", "level", "name", "portions", "rows")

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
        self.portions = nearest
        self._mask: BoolArray | None = None

    @property
    def mask(self) -> BoolArray:
        """Boolean mask of these rows over all rows."""
        if self._mask is None:
            self._mask = np.zeros(self.height, dtype=np.bool_)
            self._mask[self.rows] = True
        return self._mask

    def inside(self, outer: DomainRows | None) -> DomainRows:
        """Return the rows that are also in ``outer``."""
        if outer is None or outer.rows is self.rows:
            return self
        rows = self.rows[outer.mask[self.rows]]
        if len(rows) == len(self.rows):
            return self
        return DomainRows(rows, self.height, level=self.level, code=self.code, name=self.name)


class DomainTree:
    """Topology over the present nodes. Rebuilt when nodes change."""

    def __init__(self, table: NodeTable, levels: Sequence[Level], *, nested: bool) -> None:
        self._table = table
        self.levels = tuple(levels)
        self.version = table.static_log.mark
        self.height = table.height
        self.codes: list[IntArray] = []
        """Domain number per level and row."""
        self.names: list[list[str]] = []
        """Domain name per level and number. Names of nested domains begin with those of
        their parents.
        """
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
            named_rows = sorted(
                (node.name, row) for row, node in enumerate(nodes) if node is not None and live[row]
            )
            codes = np.zeros(self.height, dtype=np.int64)
            codes[[row for _, row in named_rows]] = np.arange(1, len(named_rows) + 1)
            return codes, ["", *(name for name, _ in named_rows)]
        interner, column = self._table.label_column(level.label)
        raw = np.where(live, column[: self.height], 0)
        present = np.unique(raw)
        present = present[present > 0]
        order = sorted(
            (c for c in present.tolist() if interner.values[c] != LACKS), key=interner.values.__getitem__
        )
        numbers = np.zeros(len(interner.values), dtype=np.int64)
        numbers[order] = np.arange(1, len(order) + 1)
        return numbers[raw], ["", *(interner.values[code] for code in order)]

    # ------------------------------------------------------------------ domains

    def scope(self, level: int, code: int) -> DomainRows:
        """Return the rows of a domain."""
        domain = self._rows.get((level, code))
        if domain is None:
            rows = np.flatnonzero(self.codes[level] == code)
            name = self.names[level][code] if code > 0 else ""
            domain = DomainRows(rows, self.height, level=level, code=code, name=name)
            self._rows[level, code] = domain
        return domain

    def code_of(self, name: str) -> tuple[int, int] | None:
        """Return level and number of the finest domain of that name, or ``None``."""
        for level in range(len(self.levels) - 1, -1, -1):
            if name in self.names[level]:
                return level, self.names[level].index(name)
        return None

    def common(self, level: int, rows: Sequence[int]) -> int:
        """Return the domain of a level that contains all of these rows; 0 if there is none."""
        codes = self.codes[level]
        first = int(codes[rows[0]]) if rows[0] < self.height else 0
        if not first or any(row >= self.height or codes[row] != first for row in rows):
            return 0
        return first

    def tightest(self, rows: Sequence[int]) -> tuple[int, int]:
        """Return the finest level and its domain that contains all of these rows; -1, 0 for none."""
        for level in range(len(self.levels) - 1, -1, -1):
            code = self.common(level, rows)
            if code:
                return level, code
        return -1, 0

    # ------------------------------------------------------------------ what they take

    def totals(self, cls: TaskClass, level: int) -> IntArray:
        """Return the number of tasks of the class that each domain of a level takes now.

        Entry 0 is for nodes without a domain.
        """
        cls.refresh()
        return self._updated_totals(cls.fit).by_level[level]

    def future_totals(self, cls: TaskClass, level: int) -> IntArray:
        """Return :meth:`totals` after all terminating tasks are gone."""
        now = self.totals(cls, level)
        rows = self._table.releasing_rows()
        if not len(rows):
            return now
        count = cls.future_count(rows)
        more = np.maximum(count - cls.count[rows], 0)
        return now + _sums(self.codes[level][rows], more, len(now))

    def sums(self, level: int, per_row: NDArray[np.int64], rows: IntArray | None = None) -> IntArray:
        """Return the sums of per-row values by domain of a level, over all rows or the given ones."""
        codes = self.codes[level] if rows is None else self.codes[level][rows]
        return _sums(codes, per_row, len(self.names[level]))

    def _updated_totals(self, fit: NodeFit) -> _Totals:
        log = self._table.resource_log
        totals = self._totals.get(fit)
        if totals is not None and totals.source is fit.count:
            behind = log.mark - totals.mark
            if not behind:
                return totals
            changed = log.since(totals.mark)
            if changed is not None and behind <= self.height:
                self._update(totals, fit, set(changed))
                totals.mark = log.mark
                return totals
        if len(self._totals) >= max(32, MAX_CACHED // max(self.height, 1)):
            self._totals.clear()
        count = fit.count[: self.height]
        by_level = [self.sums(level, count) for level in range(len(self.levels))]
        fresh = self._totals[fit] = _Totals(fit.count, count.copy(), log.mark, by_level)
        return fresh

    def _update(self, cached: _Totals, fit: NodeFit, changed: set[int]) -> None:
        seen, count = cached.seen, fit.count
        for row in changed:
            more = int(count[row]) - int(seen[row])
            if more:
                seen[row] += more
                for codes, totals in zip(self.codes, cached.by_level, strict=True):
                    totals[codes[row]] += more


def _sums(codes: IntArray, values: NDArray[np.int64], size: int) -> IntArray:
    """Return exact sums by code. ``np.bincount`` would use floats, exact only up to 2^53."""
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, codes, values)
    return sums


def _inside(
    outer: tuple[IntArray, list[str]], inner: tuple[IntArray, list[str]]
) -> tuple[IntArray, list[str]]:
    """Return the domains of a level, separated by the coarser domains that contain them."""
    codes = np.where((outer[0] > 0) & (inner[0] > 0), outer[0] * len(inner[1]) + inner[0], 0)
    present = np.unique(codes)
    present = present[present > 0]
    numbers = np.zeros(len(codes), dtype=np.int64)
    at = np.searchsorted(present, codes)
    has_domain = codes > 0
    numbers[has_domain] = at[has_domain] + 1
    outer_codes, inner_codes = np.divmod(present, len(inner[1]))
    names = [f"{outer[1][a]}{SEPARATOR}{inner[1][b]}" for a, b in zip(outer_codes, inner_codes, strict=True)]
    return numbers, ["", *names]


class DomainTrees:
    """Cached trees by topology constraint."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._trees: dict[tuple[tuple[Level, ...], bool], DomainTree] = {}
        self._last: tuple[TopologyNeed | None, DomainTree | None] = (None, None)

    def of(self, need: TopologyNeed) -> DomainTree:
        """Return the tree of the constraint over the present nodes."""
        table = self._table
        last, tree = self._last
        if last is need and tree is not None and tree.version == table.static_log.mark:
            return tree
        key = (need.levels, need.nested)
        tree = self._trees.get(key)
        if tree is None or tree.version != table.static_log.mark:
            if len(self._trees) > 64:
                self._trees.clear()
            tree = self._trees[key] = DomainTree(table, need.levels, nested=need.nested)
        self._last = (need, tree)
        return tree


@dataclass(slots=True)
class DomainSums:
    """Sums over some domains of one level (:class:`~windlass.spi.plugins.DomainsView`)."""

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
        sums = self._known.get((plane, resource))
        if sums is None:
            cells = self.table.planes[: self.tree.height, plane, column]
            if self.within is not None:
                cells = cells[self.within]
            by_code = self.tree.sums(self.level, cells, self.within)
            sums = self._known[plane, resource] = by_code[self.codes]
        return sums

"""Placement of tasks of one class one by one, where each placement affects the next.

All nodes are evaluated at the start of a round: masks of plugins about other pods, and
ranks. After each placement only what it touched is evaluated again: the row of the
node, and the domains that a plugin names
(:class:`~windlass.spi.plugins.PlacementEffect`). For a plugin that does not name them,
all nodes are evaluated. The result equals a complete evaluation for every task (a
property test checks this).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.evaluate import SCORE_UNITS, TIE_BITS
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.spi.plugins import Domain, PlacementEffect, RelativeScore

BoolArray = NDArray[np.bool_]
Keys = NDArray[np.int64]

_TIE_MASK = (1 << TIE_BITS) - 1
_FINENESS = 1e7
"""Sums of scores are compared in whole ten-millionths of a point."""


class Ranks:
    """Keys of nodes combined with scores that depend on other nodes."""

    def __init__(self, table: NodeTable, plugins: PluginSet) -> None:
        self._table = table
        self._plugins = plugins
        self._all_rows = TableView(table)
        self._stepwise = {id(p): p for p in plugins.domains if isinstance(p, PlacementEffect)}

    def stepwise(self, plugin: Domain) -> PlacementEffect | None:
        """Return the plugin if it names what a placement touches."""
        found = self._stepwise.get(id(plugin))
        return plugin if found is None and isinstance(plugin, PlacementEffect) else found

    def rankers(self, cls: TaskClass) -> list[RelativeScore]:
        """Return the plugins that may prefer one node to another for the class."""
        rankers = cls.rankers
        if not rankers:
            return []
        view = self._all_rows
        return [plugin for plugin in rankers if plugin.has_preference(cls.number, cls.needs, view)]

    def relative(
        self, cls: TaskClass, rankers: Sequence[RelativeScore], candidates: BoolArray
    ) -> NDArray[np.float64]:
        """Return the weighted sum of their scores for all rows.

        At least one row has to be a candidate.
        """
        total = np.zeros(len(candidates))
        for plugin in rankers:
            total += plugin.weight * plugin.relative(cls.number, cls.needs, self._all_rows, candidates)
        return total

    def outranked(self, cls: TaskClass) -> bool:
        """Return whether a score takes precedence over capacity that is free now."""
        scores = self._plugins.scores(cls.needs.dialect)
        return bool(scores.outranking) or any(
            plugin.has_preference(cls.number, cls.needs, self._all_rows)
            for plugin in scores.outranking_relative
        )

    def outranking(self, cls: TaskClass, candidates: BoolArray) -> NDArray[np.float64]:
        """Return the sum of such scores for all rows; rows with releases in their future state."""
        scores = self._plugins.scores(cls.needs.dialect)
        rank = self.relative(cls, scores.outranking_relative, candidates)
        view = TableView(self._table, future=True)
        for plugin in scores.outranking:
            score = plugin.score(cls.needs, view)
            if score is not None:
                rank += plugin.weight * score
        return rank

    def best(self, cls: TaskClass, rankers: Sequence[RelativeScore], key: Keys) -> int:
        """Return the best row by ``key`` and ``rankers``; -1 if there is none.

        ``key``: of all rows, -1 where no task fits.
        """
        if not len(key):
            return -1
        row = int(key.argmax())
        if key[row] < 0:
            return -1
        if not rankers:
            return row
        candidates = key >= 0
        points = (key >> TIE_BITS) * (self._plugins.scores(cls.needs.dialect).weight / SCORE_UNITS)
        ranks = np.rint((points + self.relative(cls, rankers, candidates)) * _FINENESS)
        ranks[~candidates] = -np.inf
        first = np.flatnonzero(ranks == ranks.max())
        return int(first[(key[first] & _TIE_MASK).argmax()])


class PlacementRound:
    """Round of placements of one class. No other task may be placed during it.

    ``later``: rows for nominations, all in their state after the releases; no other row
    is used.
    """

    def __init__(
        self,
        table: NodeTable,
        ranks: Ranks,
        cls: TaskClass,
        domains: Sequence[Domain],
        rankers: Sequence[RelativeScore],
        *,
        later: NDArray[np.int64] | None = None,
    ) -> None:
        self._table = table
        self._ranks = ranks
        self._cls = cls
        self._domains = domains
        self._rankers = rankers
        self._stepwise = [ranks.stepwise(plugin) for plugin in domains]
        self._all_rows = TableView(table)
        cls.refresh()
        self._height = table.height
        self._mark = table.resource_log.mark
        self._masks = [self._mask_of(plugin) for plugin in domains]
        self._later: Keys | None = None
        if later is not None:
            self._later = np.full(self._height, -1, dtype=np.int64)
            self._later[later] = cls.future(later)[1]
            self._offered = np.zeros(self._height, dtype=np.bool_)
            self._offered[later] = True
        self._key = self._masked(self._keys())

    def best(self) -> int:
        """Return the row for the next task; -1 if there is none."""
        return self._ranks.best(self._cls, self._rankers, self._key)

    def placed(self, row: int) -> None:
        """Record a placement on ``row``, and evaluate again what it touched."""
        cls, log = self._cls, self._table.resource_log
        cls.refresh()
        changed = log.since(self._mark)
        self._mark = log.mark
        if self._height != self._table.height:
            raise RuntimeError("the nodes have changed in the middle of a round")
        dirty = set(changed)
        self._update_future(dirty)
        all_changed = False
        for index, plugin in enumerate(self._domains):
            stepwise = self._stepwise[index]
            touched = None if stepwise is None else stepwise.touched(cls.number, row)
            if touched is None:
                self._masks[index] = self._mask_of(plugin)
                all_changed = True
                continue
            for key, code in touched:
                rows = self._rows(key, code)
                self._update_mask(index, plugin, rows)
                dirty.update(rows.tolist())
        if all_changed:
            self._key = self._masked(self._keys())
        elif dirty:
            self._update_keys(np.fromiter(dirty, dtype=np.int64, count=len(dirty)))

    def _keys(self) -> Keys:
        """Return the key of every row by itself."""
        return self._cls.key[: self._height] if self._later is None else self._later

    def _update_future(self, changed: set[int]) -> None:
        if self._later is not None:
            rows = np.array([row for row in changed if self._offered[row]], dtype=np.int64)
            if len(rows):
                self._later[rows] = self._cls.future(rows)[1]

    def _mask_of(self, plugin: Domain) -> BoolArray | None:
        mask = plugin.verdict(self._cls.number, self._all_rows)
        return None if mask is None else mask.copy()

    def _rows(self, key: str, code: int) -> NDArray[np.int64]:
        if not key:
            return np.array([code], dtype=np.int64)
        return np.flatnonzero(self._table.label_column(key)[1][: self._height] == code)

    def _update_mask(self, index: int, plugin: Domain, rows: NDArray[np.int64]) -> None:
        verdict = plugin.verdict(self._cls.number, TableView(self._table, rows))
        mask = self._masks[index]
        if mask is None:
            if verdict is None:
                return
            mask = self._masks[index] = np.ones(self._height, dtype=np.bool_)
        mask[rows] = True if verdict is None else verdict

    def _masked(self, key: Keys) -> Keys:
        """Return a copy of ``key`` with -1 where a plugin rejects the row."""
        plugin = key.copy()
        for mask in self._masks:
            if mask is not None:
                plugin[~mask] = -1
        return plugin

    def _update_keys(self, rows: NDArray[np.int64]) -> None:
        key = self._keys()[rows]
        for mask in self._masks:
            if mask is not None:
                key[~mask[rows]] = -1
        self._key[rows] = key

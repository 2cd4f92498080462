"""State of every node for tasks with equal needs, independent of other pods.

Per node there are the static mask, ``count`` (number of tasks that it still holds) and
``key``, an integer that ranks the node. A key has the score in its high bits and the
name order in its low bits; it is -1 if no task fits. The best node is ``argmax(key)``.
The arrays are updated from the change logs of the table, so a bind costs one row.
Changed rows are evaluated (:mod:`windlass.engine.feasibility.evaluate`) one by one or
all at once, whichever is cheaper. Results can be cached by the bytes of a row: nodes in
equal states are evaluated once.

Task classes that differ only in the relation of their pods to other pods share one
:class:`NodeFit`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.feasibility.batch_evaluate import evaluate_together
from windlass.engine.feasibility.evaluate import NodeEvaluator
from windlass.engine.nodes.free_rows import FreeRows
from windlass.engine.nodes.row_cache import Cells, RowCache
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED, NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.spi.objects import Needs

_MAX_FEW = 48
_MIN_FILTERED = 3
"""Number of changed rows above which full ones are filtered out first."""
_MAX_HITS = 32
_MAX_FUTURE_ONE_BY_ONE = 16
"""Maximum number of rows with a future state that are evaluated one by one."""
_MIN_TOGETHER = 3
"""Minimum number of fits for which the same rows are evaluated together."""
_MAX_PLAIN = 256
_MAX_PLAIN_OPEN = 32
"""Maximum numbers of rows, and of rows with capacity, that are evaluated in plain integers."""
_MAX_PLAIN_OPEN_DEVICES = 64
"""The same as the latter if scores read devices, since arrays cost more then."""
_MAX_RECENT = 16
"""Maximum number of changes for which no row is left for later."""


class CacheBudget:
    """Number of cached rows per fit, so that all fits together stay within bounds."""

    def __init__(self, total: int = 100_000, most: int = 2_000, least: int = 64) -> None:
        self._total = total
        self._most = most
        self._least = least
        self.limit = most

    def share(self, fits: int) -> None:
        """Set the number of fits."""
        self.limit = min(self._most, max(self._least, self._total // max(fits, 1)))


class FitContext:
    """Dependencies that all fits of an engine share. ``allocator``: used only for device shares."""

    def __init__(
        self, table: NodeTable, plugins: PluginSet, allocator: DeviceAllocator | None = None
    ) -> None:
        self.budget = CacheBudget()
        self.cells = RowCache(table)
        self.allocator = allocator or DeviceAllocator(table, plugins)
        self.fits: dict[Needs, NodeFit] = {}
        """Fits by the part of their needs that concerns nodes."""
        self._table = table
        self._open: dict[int, FreeRows] = {}

    def open_rows(self, column: int) -> FreeRows:
        """Return the free rows of a resource, up to date."""
        result = self._open.get(column)
        if result is None:
            result = self._open[column] = FreeRows(self._table, column)
        result.sync()
        return result


class NodeFit:
    """Fit of one kind of tasks. Arrays are valid after :meth:`refresh`, until the table changes."""

    __slots__ = (
        "_built_epoch",
        "_cache",
        "_cache_hits",
        "_context",
        "_max_open",
        "_plugins",
        "_seen_open",
        "_seen_resources",
        "_seen_statics",
        "_static_score",
        "_table",
        "_tie_epoch",
        "_top",
        "_top_key",
        "_total",
        "_used_mark",
        "allocator",
        "built",
        "count",
        "evaluator",
        "key",
        "needs",
        "static",
        "used_at",
        "users",
    )

    def __init__(
        self,
        needs: Needs,
        request: Mapping[str, int],
        table: NodeTable,
        plugins: PluginSet,
        context: FitContext,
    ) -> None:
        """``request``: request to a node, ``pods`` included, without what is counted by device."""
        self.needs = needs
        self.users = 0
        """Number of task classes."""
        self.used_at = 0
        self._table = table
        self._plugins = plugins
        self._context = context
        self.allocator = context.allocator
        self.evaluator = NodeEvaluator(needs, request, table, plugins, context.allocator, context.cells)
        self._max_open = _MAX_PLAIN_OPEN
        self.drop()

    def drop(self) -> None:
        """Drop the arrays; the next refresh builds them again."""
        self.built = False
        self.static: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.count: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.key: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._static_score: NDArray[np.float64] = np.zeros(0)
        self._cache: dict[bytes, tuple[int, float]] = {}
        self._total = 0
        self._cache_hits = _MAX_HITS
        """Above 0 while states of rows have mostly been seen before."""
        self._top = self._top_key = -1
        """Best row while its key is equal to ``_top_key``; no row has a larger key."""
        self._used_mark = 0
        self._built_epoch = -1
        self._tie_epoch = -1
        self._seen_resources = 0
        self._seen_open = 0
        """Change up to which rows with free units of the rarest resource have been evaluated."""
        self._seen_statics = 0

    @property
    def total(self) -> int:
        """Return the sum of ``count``: number of such tasks that fit in the cluster now."""
        if self._total < 0:
            self._total = int(self.count.sum())
        return self._total

    # ------------------------------------------------------------------ updates

    def refresh(self) -> None:
        """Process the changes since the last call."""
        table = self._table
        if not self.built or self._built_epoch != table.epoch:
            self._build()
            return
        log, statics = table.resource_log, table.static_log
        if self._seen_statics != statics.mark or self._tie_epoch != table.ranking.epoch:
            self._refresh_statics()
        self._used_mark = log.mark
        if self._seen_resources == log.mark:
            return
        changed = log.since(self._seen_resources)
        if 2 * len(changed) > table.height > _MAX_FEW:
            self._refresh_rows(np.arange(table.height, dtype=np.int64), everything=True)
        elif self._cache_hits > 0 and len(changed) <= _MIN_FILTERED and not self.evaluator.prefers_plain:
            self._refresh_few(changed)
        elif not self._refresh_plain(changed) and not self._refresh_together():
            self._refresh_some(changed)
        self._seen_resources = log.mark
        self._total = -1

    def _build(self) -> None:
        table = self._table
        table.ranking.settle()
        if self.evaluator.plugins_epoch != table.epoch:
            self.evaluator.update_plugins()
        self._max_open = (
            _MAX_PLAIN_OPEN_DEVICES
            if self.evaluator.scores_devices or self.evaluator.prefers_plain
            else _MAX_PLAIN_OPEN
        )
        old = self.count
        self.static = np.zeros(table.capacity, dtype=np.bool_)
        self.count = np.zeros(table.capacity, dtype=np.int64)
        self.count[: len(old)] = old
        self.key = np.full(table.capacity, -1, dtype=np.int64)
        self._static_score = np.zeros(table.capacity)
        self._top = self._top_key = -1
        self._cache = {}
        self.built = True
        self._built_epoch = table.epoch
        self._tie_epoch = table.ranking.epoch
        rows = np.arange(table.height, dtype=np.int64)
        self._evaluate_statics(rows)
        self._refresh_rows(rows, everything=True)
        self._seen_resources = self._used_mark = table.resource_log.mark
        self._seen_statics = table.static_log.mark

    def _refresh_statics(self) -> None:
        table = self._table
        table.ranking.settle()
        changed = table.static_log.since(self._seen_statics)
        if self._tie_epoch != table.ranking.epoch:
            rows = np.arange(table.height, dtype=np.int64)
        else:
            rows = np.array(changed, dtype=np.int64)
        self._tie_epoch = table.ranking.epoch
        self._seen_statics = table.static_log.mark
        if len(rows):
            self._evaluate_statics(rows)
            self._refresh_rows(rows)

    def _evaluate_statics(self, rows: NDArray[np.int64]) -> None:
        self.static[rows], self._static_score[rows] = self.evaluator.statics(rows)

    def _refresh_rows(self, rows: NDArray[np.int64], *, everything: bool = False) -> None:
        if not len(rows):
            return
        view = TableView(self._table, None if everything else rows)
        count = self.evaluator.counts(view)
        self._store(rows, count, self.evaluator.score_open(view, count, self.static))

    def _store(self, rows: NDArray[np.int64], count: NDArray[np.int64], score: NDArray[np.float64]) -> None:
        """Store the results of rows."""
        count[~self.static[rows]] = 0
        self._total = -1
        self.count[rows] = count
        keys = self._keys(rows, count, score)
        self.key[rows] = keys
        index = int(keys.argmax())
        self._update_top(int(rows[index]), int(keys[index]))

    def _update_top(self, row: int, key: int) -> None:
        if key > self._top_key:
            self._top, self._top_key = row, key

    def _refresh_together(self) -> bool:
        """Update all recently used fits at once, if there are enough of them."""
        if not self.evaluator.can_join:
            return False
        table, mark = self._table, self._table.resource_log.mark
        since = 2 * self._seen_resources - mark  # as far back again
        fits = [fit for fit in self._context.fits.values() if fit._is_peer(self, since)]
        if len(fits) < _MIN_TOGETHER:
            return False
        changed = table.resource_log.since(min([fit._seen_resources for fit in fits]))
        rows = np.array(changed, dtype=np.int64)
        kinds = [(fit.needs, fit.evaluator.vector) for fit in fits]
        evaluated = evaluate_together(kinds, TableView(table, rows), self._plugins)
        for fit, count, score in zip(fits, *evaluated, strict=True):
            fit._store(rows, count, score)
            fit._seen_resources = mark
        return True

    def _is_peer(self, other: NodeFit, since: int) -> bool:
        """Return whether both can be updated together, and this one was used after ``since``."""
        return self is other or (
            self.evaluator.can_join
            and self._used_mark > since
            and self._seen_resources > since
            and self.evaluator.scores is other.evaluator.scores
            and self._seen_statics == other._seen_statics
            and self._tie_epoch == other._tie_epoch
            and self._built_epoch == other._built_epoch
        )

    def _keys(
        self, rows: NDArray[np.int64], count: NDArray[np.int64], score: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        keys = self.evaluator.keys(rows, self._static_score[rows], score)
        keys[count <= 0] = -1
        return keys

    def _refresh_some(self, rows: Collection[int]) -> None:
        """Update rows like :meth:`_refresh_rows`, in the cheapest way."""
        if len(rows) > _MIN_FILTERED and self._plugins.resources_only:
            rows = self._mark_full_rows(np.fromiter(rows, dtype=np.int64, count=len(rows)))
        if len(rows) <= _MAX_FEW:
            self._refresh_few(rows)
        else:
            self._refresh_rows(np.fromiter(rows, dtype=np.int64, count=len(rows)))

    def _mark_full_rows(self, rows: NDArray[np.int64]) -> list[int]:
        """Close the rows that lack a requested amount. Return the others."""
        planes = self._table.planes[rows]
        nominated = np.maximum(planes[:, NOMINATED] - planes[:, RELEASING], 0)
        fits = (planes[:, ALLOCATABLE] - planes[:, USED] - nominated >= self.evaluator.minimum).all(axis=1)
        self._mark_full(rows[~fits])
        result: list[int] = rows[fits].tolist()
        return result

    def _mark_full(self, rows: NDArray[np.int64] | list[int]) -> None:
        """Record that these rows hold no task."""
        if len(rows) < _MIN_FILTERED:
            for row in rows:
                self.count[row] = 0
                self.key[row] = -1
            return
        self.count[rows] = 0
        self.key[rows] = -1

    def _refresh_plain(self, rows: Sequence[int]) -> bool:
        """Update rows like :meth:`_refresh_rows`, in plain integers. Return whether it did."""
        static, count_of, evaluator = self.static, self.count.item, self.evaluator
        requested = evaluator.plain_request
        if evaluator.plain_scores is None or len(rows) > _MAX_PLAIN:
            return False
        cells_of, stamps = self._context.cells, self._table.resource_log.stamps
        cached = cells_of.known()
        if len(rows) > _MAX_FEW:
            rows = self._mark_full_rows(np.array(rows, dtype=np.int64))
        full: list[int] = []
        opened: list[int] = []
        for row in rows:
            if not static[row]:
                continue
            cells = cached.get(row)
            if cells is None or cells[0] != stamps[row]:
                cells = cells_of.read(row, stamps[row])
            free = cells[1]
            for column, units in requested:
                if free[column] < units:
                    if count_of(row):
                        full.append(row)
                    break
            else:
                opened.append(row)
                if len(opened) > self._max_open:
                    return False
        if full:
            self._mark_full(full)
        self._rank_rows(opened)
        return True

    def _rank_rows(self, rows: Sequence[int]) -> None:
        """Update rows like :meth:`_refresh_rows`, one by one in plain integers."""
        static, scored, evaluate, key_of = (
            self.static,
            self._static_score.item,
            self.evaluator.evaluate_row,
            self.evaluator.key,
        )
        cells_of, stamps = self._context.cells, self._table.resource_log.stamps
        cached, counts, keys = cells_of.known(), self.count, self.key
        for row in rows:
            if not static[row]:
                continue
            cells = cached.get(row)
            if cells is None or cells[0] != stamps[row]:
                cells = cells_of.read(row, stamps[row])
            count, score = evaluate(row, cells)
            counts[row] = count
            key = keys[row] = key_of(row, scored(row) + score) if count else -1
            if key > self._top_key:
                self._top, self._top_key = row, key

    def _refresh_few(self, rows: Collection[int]) -> None:
        """Update rows like :meth:`_refresh_rows`, from the cache of rows in equal states."""
        planes, static, cache = self._table.planes, self.static, self._cache
        shared = self._plugins.shares_rows
        unknown: list[tuple[int, bytes]] = []
        for row in rows:
            if not static[row]:
                continue
            state = planes[row].tobytes()
            if not shared:
                state += row.to_bytes(4, "little")
            if self.evaluator.depends_on_devices:
                state += self.allocator.rows.state_key(row, self.needs.devices)
            cached = cache.get(state)
            if cached is None:
                unknown.append((row, state))
            else:
                self._set_row(row, cached[0], cached[1])
        self._cache_hits = min(self._cache_hits + len(rows) - 2 * len(unknown), _MAX_HITS)
        if unknown:
            if len(cache) > self._context.budget.limit:
                cache.clear()
            result = self.evaluator.few([row for row, _ in unknown], static)
            for (row, state), cached in zip(unknown, result, strict=True):
                cache[state] = cached
                self._set_row(row, *cached)

    def _set_row(self, row: int, count: int, score: float) -> None:
        self.count[row] = count
        key = self.key[row] = self.evaluator.key(row, self._static_score.item(row) + score) if count else -1
        if key > self._top_key:
            self._top, self._top_key = row, key

    # ------------------------------------------------------------------ queries

    def future(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return ``count`` and ``key`` of some rows after all releases and nominations."""
        if self.evaluator.plain_future and len(rows) <= _MAX_FUTURE_ONE_BY_ONE:
            self.refresh()
            result = [self._future_at(row) for row in rows.tolist()]
            return np.array([n for n, _ in result], dtype=np.int64), np.array(
                [k for _, k in result], dtype=np.int64
            )
        count = self.future_count(rows)
        key = np.full(len(rows), -1, dtype=np.int64)
        fitting = count.nonzero()[0]
        if len(fitting):
            subset = rows[fitting]
            score = self.evaluator.score(TableView(self._table, subset, future=True))
            key[fitting] = self._keys(subset, count[fitting], score)
        return count, key

    def future_count(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return only the counts of :meth:`future`."""
        self.refresh()
        if self.evaluator.plain_future and len(rows) <= _MAX_FUTURE_ONE_BY_ONE:
            return np.array([self._future_at(row, ranked=False)[0] for row in rows.tolist()], dtype=np.int64)
        count = self.evaluator.counts(TableView(self._table, rows, future=True))
        count[~self.static[rows]] = 0
        return count

    def takes_any(self, rows: NDArray[np.int64]) -> bool:
        """Return whether some of the rows hold a task, now or after all releases."""
        self.refresh()
        if len(rows) > _MAX_FUTURE_ONE_BY_ONE or not self.evaluator.plain_future:
            return bool((self.count[rows] > 0).any()) or bool((self.future_count(rows) > 0).any())
        count = self.count.item
        return any(count(row) > 0 or self._future_at(row, ranked=False)[0] > 0 for row in rows.tolist())

    def fits_after_release(self, row: int) -> bool:
        """Return whether a row holds no task now, but one after all releases.

        Valid only if the future state of a row can be evaluated in plain integers.
        """
        self.refresh()
        return not self.count.item(row) and self._future_at(row, ranked=False)[0] > 0

    def _future_at(self, row: int, *, ranked: bool = True) -> tuple[int, int]:
        """Return :meth:`future` of one row in plain integers; without ``ranked`` only the count."""
        if not self.static[row]:
            return 0, -1
        count, score = self.evaluator.future(row, scored=ranked)
        return self._ranked(row, count, score) if ranked else (count, -1)

    def ranked(self, row: int, cells: Cells) -> tuple[int, int]:
        """Return capacity and key of a row in this state.

        Valid only if rows can be evaluated in plain integers.
        """
        return self._ranked(row, *self.evaluator.evaluate_row(row, cells))

    def ranked_later(self, row: int, allocatable: list[int], held: list[int]) -> tuple[int, int]:
        """Return the same for a row with these held amounts after all releases and nominations."""
        return self._ranked(row, *self.evaluator.held(allocatable, held, scored=True))

    def _ranked(self, row: int, count: int, score: float) -> tuple[int, int]:
        """Return capacity and key of the row. ``score``: the row score."""
        return count, self.evaluator.key(row, self._static_score.item(row) + score) if count else -1

    def future_total(self) -> int:
        """Return ``total`` after all releases."""
        self.refresh()
        rows = self._table.releasing_rows()
        if not len(rows):
            return self.total
        count = self.future_count(rows)
        return self.total + int(np.maximum(count - self.count[rows], 0).sum())

    def best(self) -> int:
        """Return the best row for a task of the class now; -1 if none.

        Domain plugins are not applied. The arrays of other rows may be outdated.
        """
        full = None
        if self._table.resource_log.mark - self._used_mark > _MAX_RECENT:
            full = self._evaluate_open()
        if full is None:
            self.refresh()
        key, top = self.key, self._top
        if top >= 0 and key.item(top) == self._top_key and (full is None or not full.item(top)):
            return top
        if not len(key):
            return -1
        if full is not None:
            np.bitwise_or(key, full, out=key)  # -1 without free units
        row = int(key.argmax())
        self._top_key = int(key[row])
        self._top = row if self._top_key >= 0 else -1
        return self._top

    def _evaluate_open(self) -> NDArray[np.int64] | None:
        """Evaluate only those changed rows that have free units of the rarest resource.

        This is enough to find the best row. Return the mask of full rows
        (:attr:`FreeRows.full`); ``None`` if this is not possible or not worthwhile.
        """
        table, evaluator, mark = self._table, self.evaluator, self._table.resource_log.mark
        if (
            evaluator.plain_scores is None
            or self._built_epoch != table.epoch
            or self._seen_statics != table.static_log.mark
            or self._tie_epoch != table.ranking.epoch
            or not self.built
        ):
            return None
        opened = self._context.open_rows(evaluator.plain_request[0][0])
        rows = opened.since(max(self._seen_open, self._seen_resources), self._max_open)
        if rows is None:
            return None
        self._rank_rows(rows)
        self._seen_open = self._used_mark = mark
        return opened.full

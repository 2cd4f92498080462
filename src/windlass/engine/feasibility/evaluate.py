"""Evaluation of nodes for tasks with equal needs: capacity and score.

Only the functions are stored here. Many rows are evaluated as arrays. One row is
evaluated in plain integers (:mod:`windlass.engine.nodes.row_cache`) if every plugin
supports that. Both give equal results to the last bit (a property test checks this).
Results are stored by :mod:`windlass.engine.feasibility.node_fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.feasibility.batch_evaluate import can_join
from windlass.engine.nodes.row_cache import Cells, PlainScores, RowCache, plain_scores
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.spi.nodes import BoolArray, FloatArray, IntArray
from windlass.spi.objects import Needs

UNLIMITED = 1 << 40
UNBOUNDED = 1 << 62
"""Bound of available amounts: no amount is below its negative."""
SCORE_UNITS = 1_000_000
TIE_BITS = 32


class NodeEvaluator:
    """Evaluator for one kind of tasks.

    Valid after :meth:`update_plugins`, until the table's ``epoch`` changes.
    """

    __slots__ = (
        "__weakref__",
        "_allocator",
        "_cells",
        "_columns",
        "_count_devices",
        "_plugins",
        "_request",
        "_table",
        "can_join",
        "depends_on_devices",
        "evaluate_row",
        "minimum",
        "needs",
        "plain_future",
        "plain_request",
        "plain_scores",
        "plugins_epoch",
        "prefers_plain",
        "scores",
        "scores_devices",
        "vector",
    )

    def __init__(
        self,
        needs: Needs,
        request: Mapping[str, int],
        table: NodeTable,
        plugins: PluginSet,
        allocator: DeviceAllocator,
        cells: RowCache,
    ) -> None:
        """``request``: request to a node, ``pods`` included, without what is counted by device."""
        self.needs = needs
        self._request = request
        self._table = table
        self._plugins = plugins
        self._allocator = allocator
        self._cells = cells
        self.vector = table.request_vector(request)
        """Request as a row of the table; it always has the table's width."""
        self._update_columns()
        self.update_plugins()
        self.widen()  # a plugin may have named a new resource
        table.width_listeners.add(self)

    def update_plugins(self) -> None:
        """Read the scores of the plugins, and how they can be computed."""
        plugins, needs = self._plugins, self.needs
        self.scores = plugins.scores(needs.dialect)
        self.plain_scores: PlainScores | None = plain_scores(plugins, needs, self._table)
        """Row scores for one row in plain integers; ``None`` if a plugin does not support this."""
        self.scores_devices = any(of is not None for _, _, of in self.plain_scores or ())
        """True if some of these scores read single devices."""
        self.prefers_plain = self.plain_scores is not None and bool(needs.devices) and not self.scores_devices
        """True if evaluating a row in plain integers is faster than finding it in the cache.

        The cache key would contain the devices of the row.
        """
        self.depends_on_devices = bool(needs.devices) or self.scores.reads_devices
        """True if the result depends on the node's single devices."""
        self._count_devices = self._allocator.counter(needs) if needs.devices else None
        self.plain_future = self.plain_scores is not None and not self.scores_devices and not needs.devices
        """True if the future state of a row can be evaluated in plain integers."""
        self.can_join = can_join(plugins, needs)
        """True if this can join :mod:`windlass.engine.feasibility.batch_evaluate`."""
        self.plugins_epoch = self._table.epoch
        """Epoch of the table for which the plugins were read."""
        self.evaluate_row = self._row_evaluator()
        """Function for :meth:`counts` and :meth:`score` of one row; valid only with :attr:`plain_scores`.

        The score is 0 if the row holds no task.
        """

    def widen(self) -> None:
        """Adapt to rows of the table that may have become wider."""
        if len(self.vector) != self._table.width:
            self.vector = self._table.request_vector(self._request)
            self._update_columns()
            self.evaluate_row = self._row_evaluator()

    def _update_columns(self) -> None:
        self._columns = np.flatnonzero(self.vector)
        self.minimum = np.where(self.vector > 0, self.vector, -UNBOUNDED)
        """By column, what has to be free for one task."""
        self.plain_request = [(index, int(self.vector[index])) for index in reversed(self._columns.tolist())]
        """Columns and units, the rarest resources first."""

    # ------------------------------------------------------------------ many rows

    def statics(self, rows: IntArray) -> tuple[BoolArray, FloatArray]:
        """Return the static mask and the weighted static score: labels, taints and the like."""
        view = TableView(self._table, rows)
        mask = self._table.live[rows]
        for plugin in self._plugins.static_filters:
            result = plugin.filter(self.needs, view)
            if result is not None:
                mask = mask & result
        score = np.zeros(len(rows))
        for plugin in self.scores.static:
            points = plugin.score(self.needs, view)
            if points is not None:
                score += plugin.weight * points
        return mask, score

    def counts(self, view: TableView) -> IntArray:
        """Return how many tasks each row holds, without the static mask."""
        if self._plugins.resources_only:
            columns = self._columns
            count = (view.free(columns) // self.vector[columns]).min(axis=1)
        else:
            count = np.full(view.size, UNLIMITED, dtype=np.int64)
        for plugin in self._plugins.other_capacities:
            limit = plugin.capacity(self.needs, view)
            if limit is not None:
                np.minimum(count, limit, out=count)
        for plugin in self._plugins.row_filters:
            result = plugin.filter(self.needs, view)
            if result is not None:
                count[~result] = 0
        np.maximum(count, 0, out=count)
        if self.needs.devices:
            self._allocator.limit_counts(count, view, self.needs)
        return count

    def score(self, view: TableView) -> FloatArray:
        """Return the weighted row score."""
        score = np.zeros(view.size)
        for plugin in self.scores.row:
            points = plugin.score(self.needs, view)
            if points is not None:
                score += plugin.weight * points
        return score

    def score_open(self, view: TableView, count: IntArray, static: BoolArray) -> FloatArray:
        """Return :meth:`score`, with 0 for full rows if scores read devices and most rows are full.

        ``static``: mask of all rows of the table.
        """
        if self.scores.reads_devices:
            index = np.flatnonzero((count > 0) & static[view.rows])
            if 2 * len(index) < view.size:
                score = np.zeros(view.size)
                if len(index):
                    subset = TableView(self._table, view.rows[index], empty=view.empty, future=view.future)
                    score[index] = self.score(subset)
                return score
        return self.score(view)

    def keys(self, rows: IntArray, static: FloatArray, score: FloatArray) -> IntArray:
        """Return one integer per row that ranks it: the sum of both scores, then the name."""
        ranked = np.rint((static + score) / self.scores.weight * SCORE_UNITS)
        keys: NDArray[np.int64] = (ranked.astype(np.int64) << TIE_BITS) | self._table.ranking.tie[rows]
        return keys

    # ------------------------------------------------------------------ one row

    def _row_evaluator(self) -> Callable[[int, Cells], tuple[int, float]]:
        """Return the function for :attr:`evaluate_row`. It is called most often, so everything is prepared."""
        columns, scores = tuple(self.plain_request), tuple(self.plain_scores or ())
        count_devices, devices_of = self._count_devices, self._allocator.devices_of

        def evaluate(row: int, cells: Cells) -> tuple[int, float]:
            _, free, allocatable, used, releasing = cells
            count = UNLIMITED
            for column, units in columns:
                fits = free[column] // units
                if fits < count:
                    if fits <= 0:
                        return 0, 0.0
                    count = fits
            if count_devices is not None:
                fits = count_devices(row, free)
                if fits < count:
                    if fits <= 0:
                        return 0, 0.0
                    count = fits
            score, devices = 0.0, None
            for weight, by_resources, by_devices in scores:
                if by_resources is not None:
                    score += weight * by_resources(allocatable, used, releasing)
                elif by_devices is not None:
                    devices = devices or devices_of(row)
                    score += weight * by_devices(free, used, devices)
            return count, score

        return evaluate

    def key(self, row: int, score: float) -> int:
        """Return :meth:`keys` of one row. ``score``: sum of both scores."""
        ranked = round(score / self.scores.weight * SCORE_UNITS)
        return (ranked << TIE_BITS) | self._table.ranking.tie.item(row)

    def few(self, rows: list[int], static: BoolArray) -> list[tuple[int, float]]:
        """Return :meth:`counts` and :meth:`score` of a few rows in the cheapest way.

        ``static``: mask of all rows.
        """
        if self.plain_scores is None:
            view = TableView(self._table, np.array(rows, dtype=np.int64))
            counts = self.counts(view)
            scores = self.score_open(view, counts, static)
            return list(zip(counts.tolist(), scores.tolist(), strict=True))
        cells, stamps = self._cells, self._table.resource_log.stamps
        return [self.evaluate_row(row, cells.get(row, stamps[row])) for row in rows]

    def future(self, row: int, *, scored: bool) -> tuple[int, float]:
        """Return capacity and, if ``scored``, score of a row after all releases and nominations.

        Valid only with :attr:`plain_future`.
        """
        allocatable, used, releasing, nominated = self._table.planes[row].tolist()
        held = [
            used_units - releasing_units + nominated_units
            for used_units, releasing_units, nominated_units in zip(used, releasing, nominated, strict=True)
        ]
        return self.held(allocatable, held, scored=scored)

    def held(self, allocatable: list[int], held: list[int], *, scored: bool) -> tuple[int, float]:
        """Return the same for a row with these held amounts."""
        count = min([(allocatable[column] - held[column]) // units for column, units in self.plain_request])
        score = 0.0
        if count > 0 and scored:
            nothing = [0] * len(held)
            for weight, by_resources, _ in self.plain_scores or ():
                if by_resources is not None:
                    score += weight * by_resources(allocatable, held, nothing)
        return max(count, 0), score

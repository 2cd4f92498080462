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
from windlass.engine.feasibility.batch_evaluate import joins
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
        "_asked",
        "_cells",
        "_count_cards",
        "_plugins",
        "_request",
        "_table",
        "at_once",
        "by_card",
        "by_cards",
        "heard",
        "joins",
        "least",
        "needs",
        "one",
        "plain",
        "plain_asked",
        "plain_later",
        "scores",
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
        self._note_asked()
        self.hear()
        self.widen()  # a plugin may have named a new resource
        table.kept_wide.add(self)

    def hear(self) -> None:
        """Read the scores of the plugins, and how they can be computed."""
        plugins, needs = self._plugins, self.needs
        self.scores = plugins.scores(needs.dialect)
        self.plain: PlainScores | None = plain_scores(plugins, needs, self._table)
        """Row scores for one row in plain integers; ``None`` if a plugin does not support this."""
        self.by_cards = any(of is not None for _, _, of in self.plain or ())
        """True if some of these scores read single devices."""
        self.at_once = self.plain is not None and bool(needs.devices) and not self.by_cards
        """True if evaluating a row in plain integers is faster than finding it in the cache.

        The cache key would contain the devices of the row.
        """
        self.by_card = bool(needs.devices) or self.scores.reads_cards
        """True if the result depends on the node's single devices."""
        self._count_cards = self._allocator.counter(needs) if needs.devices else None
        self.plain_later = self.plain is not None and not self.by_cards and not needs.devices
        """True if the future state of a row can be evaluated in plain integers."""
        self.joins = joins(plugins, needs)
        """True if this can join :mod:`windlass.engine.feasibility.batch_evaluate`."""
        self.heard = self._table.epoch
        """Epoch of the table for which the plugins were read."""
        self.one = self._one()
        """Function for :meth:`counts` and :meth:`score` of one row; valid only with :attr:`plain`.

        The score is 0 if the row holds no task.
        """

    def widen(self) -> None:
        """Adapt to rows of the table that may have become wider."""
        if len(self.vector) != self._table.width:
            self.vector = self._table.request_vector(self._request)
            self._note_asked()
            self.one = self._one()

    def _note_asked(self) -> None:
        self._asked = np.flatnonzero(self.vector)
        self.least = np.where(self.vector > 0, self.vector, -UNBOUNDED)
        """By column, what has to be free for one task."""
        self.plain_asked = [(at, int(self.vector[at])) for at in reversed(self._asked.tolist())]
        """Columns and units, the rarest resources first."""

    # ------------------------------------------------------------------ many rows

    def statics(self, rows: IntArray) -> tuple[BoolArray, FloatArray]:
        """Return the static mask and the weighted static score: labels, taints and the like."""
        view = TableView(self._table, rows)
        mask = self._table.live[rows]
        for plugin in self._plugins.static_filters:
            verdict = plugin.filter(self.needs, view)
            if verdict is not None:
                mask = mask & verdict
        score = np.zeros(len(rows))
        for plugin in self.scores.static:
            part = plugin.score(self.needs, view)
            if part is not None:
                score += plugin.weight * part
        return mask, score

    def counts(self, view: TableView) -> IntArray:
        """Return how many tasks each row holds, without the static mask."""
        if self._plugins.amounts_decide:
            asked = self._asked
            count = (view.free(asked) // self.vector[asked]).min(axis=1)
        else:
            count = np.full(view.size, UNLIMITED, dtype=np.int64)
        for plugin in self._plugins.other_capacities:
            limit = plugin.capacity(self.needs, view)
            if limit is not None:
                np.minimum(count, limit, out=count)
        for plugin in self._plugins.row_filters:
            verdict = plugin.filter(self.needs, view)
            if verdict is not None:
                count[~verdict] = 0
        np.maximum(count, 0, out=count)
        if self.needs.devices:
            self._allocator.limit_counts(count, view, self.needs)
        return count

    def score(self, view: TableView) -> FloatArray:
        """Return the weighted row score."""
        score = np.zeros(view.size)
        for plugin in self.scores.row:
            part = plugin.score(self.needs, view)
            if part is not None:
                score += plugin.weight * part
        return score

    def score_open(self, view: TableView, count: IntArray, static: BoolArray) -> FloatArray:
        """Return :meth:`score`, with 0 for full rows if scores read devices and most rows are full.

        ``static``: mask of all rows of the table.
        """
        if self.scores.reads_cards:
            at = np.flatnonzero((count > 0) & static[view.rows])
            if 2 * len(at) < view.size:
                score = np.zeros(view.size)
                if len(at):
                    some = TableView(self._table, view.rows[at], empty=view.empty, future=view.future)
                    score[at] = self.score(some)
                return score
        return self.score(view)

    def keys(self, rows: IntArray, static: FloatArray, score: FloatArray) -> IntArray:
        """Return one integer per row that ranks it: the sum of both scores, then the name."""
        ranked = np.rint((static + score) / self.scores.weight * SCORE_UNITS)
        keys: NDArray[np.int64] = (ranked.astype(np.int64) << TIE_BITS) | self._table.ranking.tie[rows]
        return keys

    # ------------------------------------------------------------------ one row

    def _one(self) -> Callable[[int, Cells], tuple[int, float]]:
        """Return the function for :attr:`one`. It is called most often, so everything is prepared."""
        asked, scores = tuple(self.plain_asked), tuple(self.plain or ())
        count_cards, cards_of = self._count_cards, self._allocator.devices_of

        def one(row: int, cells: Cells) -> tuple[int, float]:
            _, free, allocatable, used, releasing = cells
            count = UNLIMITED
            for column, units in asked:
                left = free[column] // units
                if left < count:
                    if left <= 0:
                        return 0, 0.0
                    count = left
            if count_cards is not None:
                left = count_cards(row, free)
                if left < count:
                    if left <= 0:
                        return 0, 0.0
                    count = left
            score, cards = 0.0, None
            for weight, by_amounts, by_cards in scores:
                if by_amounts is not None:
                    score += weight * by_amounts(allocatable, used, releasing)
                elif by_cards is not None:
                    cards = cards or cards_of(row)
                    score += weight * by_cards(free, used, cards)
            return count, score

        return one

    def key(self, row: int, score: float) -> int:
        """Return :meth:`keys` of one row. ``score``: sum of both scores."""
        ranked = round(score / self.scores.weight * SCORE_UNITS)
        return (ranked << TIE_BITS) | self._table.ranking.tie.item(row)

    def few(self, rows: list[int], static: BoolArray) -> list[tuple[int, float]]:
        """Return :meth:`counts` and :meth:`score` of a few rows in the cheapest way.

        ``static``: mask of all rows.
        """
        if self.plain is None:
            view = TableView(self._table, np.array(rows, dtype=np.int64))
            counts = self.counts(view)
            scores = self.score_open(view, counts, static)
            return list(zip(counts.tolist(), scores.tolist(), strict=True))
        cells, stamps = self._cells, self._table.amounts.stamps
        return [self.one(row, cells.of(row, stamps[row])) for row in rows]

    def later(self, row: int, *, scored: bool) -> tuple[int, float]:
        """Return capacity and, if ``scored``, score of a row after all releases and nominations.

        Valid only with :attr:`plain_later`.
        """
        allocatable, used, releasing, promised = self._table.planes[row].tolist()
        held = [has - goes + comes for has, goes, comes in zip(used, releasing, promised, strict=True)]
        return self.held(allocatable, held, scored=scored)

    def held(self, allocatable: list[int], held: list[int], *, scored: bool) -> tuple[int, float]:
        """Return the same for a row with these held amounts."""
        count = min([(allocatable[column] - held[column]) // units for column, units in self.plain_asked])
        score = 0.0
        if count > 0 and scored:
            nothing = [0] * len(held)
            for weight, by_amounts, _ in self.plain or ():
                if by_amounts is not None:
                    score += weight * by_amounts(allocatable, held, nothing)
        return max(count, 0), score

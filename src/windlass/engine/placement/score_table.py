"""Scores of nodes for one class of pods, plugin by plugin, as shown by ``explain``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.placer import Placer
from windlass.engine.plugin_set import PluginSet
from windlass.spi.plugins import RelativeScore, Score
from windlass.spi.scoring import ScoreParts


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """Score of a plugin, or of a named part of it: ``weight`` times points from 0 to 100."""

    plugin: str
    part: str
    weight: float

    @property
    def title(self) -> str:
        return f"{self.plugin}.{self.part}" if self.part else self.plugin


@dataclass(frozen=True, slots=True)
class NodeScore:
    """Scores of a node.

    ``points``: one value per column. ``total``: sum of weight times points. ``fits``:
        the node takes one more such pod now.
    """

    node: str
    fits: bool
    total: float
    points: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Nodes by rank, feasible ones first. ``pods``: number of pods of this class in the group."""

    pods: int
    columns: tuple[ScoreColumn, ...]
    nodes: tuple[NodeScore, ...]


def score_table(
    table: NodeTable, plugins: PluginSet, placer: Placer, cls: TaskClass, pods: int
) -> ScoreTable:
    """Return the table for one more task of ``cls`` in the present state."""
    cls.refresh()
    rows = np.flatnonzero(table.live[: table.height])
    view = TableView(table, rows)
    domains = placer.constraints(cls)
    mask = placer.domain_mask(cls, domains) if domains else None
    feasible = cls.key[: table.height][rows] >= 0
    if mask is not None:
        feasible = feasible & mask[rows]
    columns, points = _columns(plugins, cls, view, feasible, table)
    weights = np.array([column.weight for column in columns])
    total = points @ weights if columns else np.zeros(len(rows))
    order = np.lexsort((-table.ranking.tie[rows], -np.round(total, 6), ~feasible))
    return ScoreTable(
        pods,
        tuple(columns),
        tuple(
            NodeScore(
                table.names[rows[at]],
                bool(feasible[at]),
                float(total[at]),
                tuple(float(p) for p in points[at]),
            )
            for at in order.tolist()
        ),
    )


def _columns(
    plugins: PluginSet, cls: TaskClass, view: TableView, candidates: NDArray[np.bool_], table: NodeTable
) -> tuple[list[ScoreColumn], NDArray[np.float64]]:
    scores = plugins.scores(cls.needs.dialect)
    columns: list[tuple[ScoreColumn, NDArray[np.float64]]] = []
    for plugin in (*scores.static, *scores.row):
        columns += _of(plugin, cls, view)
    if candidates.any():
        columns += _relative(scores.relative, cls, view, candidates, table)
    stacked = np.stack([points for _, points in columns], axis=1) if columns else np.zeros((view.size, 0))
    return [column for column, _ in columns], stacked


def _of(plugin: Score, cls: TaskClass, view: TableView) -> list[tuple[ScoreColumn, NDArray[np.float64]]]:
    needs = cls.needs.node_part()
    if isinstance(plugin, ScoreParts):
        return [
            (ScoreColumn(plugin.name, name, weight), np.asarray(points, dtype=np.float64))
            for name, (weight, points) in plugin.parts(needs, view).items()
        ]
    points = plugin.score(needs, view)
    return [] if points is None else [(ScoreColumn(plugin.name, "", plugin.weight), points)]


def _relative(
    plugins: Sequence[RelativeScore],
    cls: TaskClass,
    view: TableView,
    candidates: NDArray[np.bool_],
    table: NodeTable,
) -> list[tuple[ScoreColumn, NDArray[np.float64]]]:
    everything = TableView(table)
    wide = np.zeros(table.height, dtype=np.bool_)
    wide[view.rows] = candidates
    return [
        (
            ScoreColumn(plugin.name, "", plugin.weight),
            plugin.relative(cls.number, cls.needs, everything, wide)[view.rows],
        )
        for plugin in plugins
        if plugin.has_preference(cls.number, cls.needs, everything)
    ]

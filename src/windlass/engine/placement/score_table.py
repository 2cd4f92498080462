"""How the nodes rank for one kind of pods, score by score: what ``explain`` shows."""

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
    """One opinion: of a plugin, or of a named part of it. It counts ``weight`` times its points, which run
    from 0 to 100."""

    plugin: str
    part: str
    weight: float

    @property
    def title(self) -> str:
        return f"{self.plugin}.{self.part}" if self.part else self.plugin


@dataclass(frozen=True, slots=True)
class NodeScore:
    """``points``: one for each column; ``total``: the sum of weight times points. ``fits``: the node takes
    one more such pod now."""

    node: str
    fits: bool
    total: float
    points: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """``pods``: how many of the group are of this kind. Nodes by rank, those that take the pod first."""

    pods: int
    columns: tuple[ScoreColumn, ...]
    nodes: tuple[NodeScore, ...]


def score_table(
    table: NodeTable, plugins: PluginSet, placer: Placer, cls: TaskClass, pods: int
) -> ScoreTable:
    """The table for one more task of ``cls``, the cluster being as it is."""
    cls.refresh()
    rows = np.flatnonzero(table.live[: table.height])
    view = TableView(table, rows)
    domains = placer.constraints(cls)
    mask = placer.domain_mask(cls, domains) if domains else None
    open_ = cls.key[: table.height][rows] >= 0
    if mask is not None:
        open_ = open_ & mask[rows]
    columns, points = _opinions(plugins, cls, view, open_, table)
    weights = np.array([column.weight for column in columns])
    total = points @ weights if columns else np.zeros(len(rows))
    order = np.lexsort((-table.ranking.tie[rows], -np.round(total, 6), ~open_))
    return ScoreTable(
        pods,
        tuple(columns),
        tuple(
            NodeScore(
                table.names[rows[at]], bool(open_[at]), float(total[at]), tuple(float(p) for p in points[at])
            )
            for at in order.tolist()
        ),
    )


def _opinions(
    plugins: PluginSet, cls: TaskClass, view: TableView, rivals: NDArray[np.bool_], table: NodeTable
) -> tuple[list[ScoreColumn], NDArray[np.float64]]:
    scores = plugins.scores(cls.needs.dialect)
    found: list[tuple[ScoreColumn, NDArray[np.float64]]] = []
    for plugin in (*scores.static, *scores.row):
        found += _of(plugin, cls, view)
    if rivals.any():
        found += _relative(scores.relative, cls, view, rivals, table)
    stacked = np.stack([points for _, points in found], axis=1) if found else np.zeros((view.size, 0))
    return [column for column, _ in found], stacked


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
    rivals: NDArray[np.bool_],
    table: NodeTable,
) -> list[tuple[ScoreColumn, NDArray[np.float64]]]:
    everything = TableView(table)
    wide = np.zeros(table.height, dtype=np.bool_)
    wide[view.rows] = rivals
    return [
        (
            ScoreColumn(plugin.name, "", plugin.weight),
            plugin.relative(cls.number, cls.needs, everything, wide)[view.rows],
        )
        for plugin in plugins
        if plugin.has_preference(cls.number, cls.needs, everything)
    ]

"""Evaluation of the same rows for many kinds of tasks at once.

If pods of fifty classes come and go by the hundred, each class would evaluate the same
changed rows, at a dozen array operations each. Here the kinds are a second axis of the
arrays. The results equal those of separate evaluations to the last bit (a property test
checks this).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.spi.objects import Needs
from windlass.spi.plugins import ManyScores

Kind = tuple[Needs, NDArray[np.int64]]
"""Needs of a task, and its request as a row of the table."""


def can_join(plugins: PluginSet, needs: Needs) -> bool:
    """Return whether tasks with these needs can be evaluated together with others."""
    return (
        not needs.devices
        and plugins.resources_only
        and not plugins.other_capacities
        and not plugins.row_filters
        and all(isinstance(plugin, ManyScores) for plugin in plugins.scores(needs.dialect).row)
    )


def evaluate_together(
    kinds: Sequence[Kind], view: TableView, plugins: PluginSet
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return capacity and weighted row score for each kind and row, all of one queue API.

    Static masks and scores are not included.
    """
    needs = [need for need, _ in kinds]
    scores = np.zeros((len(kinds), view.size))
    for plugin in plugins.scores(needs[0].dialect).row:
        if isinstance(plugin, ManyScores):
            scores += plugin.weight * plugin.score_many(needs, view)
    return _counts([vector for _, vector in kinds], view), scores


def _counts(vectors: Sequence[NDArray[np.int64]], view: TableView) -> NDArray[np.int64]:
    by_columns: dict[bytes, list[int]] = {}
    for index, vector in enumerate(vectors):
        by_columns.setdefault((vector > 0).tobytes(), []).append(index)
    counts = np.empty((len(vectors), view.size), dtype=np.int64)
    for members in by_columns.values():
        columns = np.flatnonzero(vectors[members[0]])
        free = view.free(columns)
        units = np.stack([vectors[at][columns] for at in members])
        counts_of_kind = free[:, 0] // units[:, 0, None]
        for column in range(1, len(columns)):
            np.minimum(counts_of_kind, free[:, column] // units[:, column, None], out=counts_of_kind)
        counts[members] = np.maximum(counts_of_kind, 0)
    return counts

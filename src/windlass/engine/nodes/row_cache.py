"""Single rows of the node table in plain integers.

A placement of a class mostly finds one or two changed rows. For so few, plain integers
are an order of magnitude cheaper than arrays. The results are equal to the last bit (a
property test checks this).
"""

from __future__ import annotations

from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED, NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.spi.objects import Needs
from windlass.spi.plugins import PlainScore, PlainScorer
from windlass.spi.scoring import DeviceScorer, PlainDeviceScore

Cells = tuple[int, list[int], list[int], list[int], list[int]]
"""Number of the change that it shows; by column: free, allocatable, used, releasing."""
MAX_CACHED = 4096


class RowCache:
    """Rows that were read since their last change, for all classes together."""

    __slots__ = ("_epoch", "_known", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known: dict[int, Cells] = {}
        self._epoch = -1

    def known(self) -> dict[int, Cells]:
        """Return the rows by number.

        A row is current if its first entry is its stamp in the change log.
        """
        if self._epoch != self._table.epoch or len(self._known) > MAX_CACHED:
            self._known = {}
            self._epoch = self._table.epoch
        return self._known

    def get(self, row: int, stamp: int) -> Cells:
        """Return the row. ``stamp``: its stamp in the change log."""
        cells = self.known().get(row)
        return self.read(row, stamp) if cells is None or cells[0] != stamp else cells

    def read(self, row: int, stamp: int) -> Cells:
        """Return the current row, and add it to :meth:`known`."""
        cells = self._known[row] = (stamp, *resources_at(self._table, row))
        return cells


def resources_at(table: NodeTable, row: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return by column what is free, allocatable, used and releasing on a row."""
    planes = table.planes[row].tolist()
    allocatable, used, releasing = planes[ALLOCATABLE], planes[USED], planes[RELEASING]
    free = [
        allocatable_units - used_units
        for allocatable_units, used_units in zip(allocatable, used, strict=True)
    ]
    if any(planes[NOMINATED]):
        for column, nominated in enumerate(planes[NOMINATED]):
            free[column] -= max(nominated - releasing[column], 0)
    return free, allocatable, used, releasing


PlainScores = list[tuple[float, PlainScorer | None, DeviceScorer | None]]
"""Weights, and scores of one row: by its resources, or by its devices as well."""


def plain_scores(plugins: PluginSet, needs: Needs, table: NodeTable) -> PlainScores | None:
    """Return the row scores for tasks with these needs, computed row by row in plain integers.

    ``None`` if a plugin supports arrays only, or if no node lists a requested resource
    (MIG slices that are created on demand).
    """
    if not plugins.resources_only or plugins.other_capacities or plugins.row_filters:
        return None
    if any(resource not in table.resources.values for resource, _ in needs.request):
        return None
    scores: PlainScores = []
    for plugin in plugins.scores(needs.dialect).row:
        by_resources = by_devices = None
        if isinstance(plugin, PlainScore):
            by_resources = plugin.plain(needs, table.resources.values)
        elif isinstance(plugin, PlainDeviceScore):
            by_devices = plugin.plain_devices(needs, table.resources.values)
        else:
            return None
        if by_resources is not None or by_devices is not None:
            scores.append((plugin.weight, by_resources, by_devices))
    return scores

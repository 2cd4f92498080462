"""Single rows of the node table in plain integers.

A turn of a class mostly finds one or two rows to look at again. For so few, plain integers are an order of
magnitude cheaper than arrays; the answers are the same to the last bit (a property test holds it).
"""

from __future__ import annotations

from windlass.engine.nodes.table import ALLOCATABLE, PROMISED, RELEASING, USED, NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.spi.objects import Needs
from windlass.spi.plugins import PlainScore, PlainScorer
from windlass.spi.scoring import CardScorer, PlainDeviceScore

Cells = tuple[int, list[int], list[int], list[int], list[int]]
"""The change of the row that they show; by column what is free, allocatable, used, releasing."""
MOST = 4096


class RowCache:
    """The rows that somebody has looked at since they changed last, for all classes together."""

    __slots__ = ("_epoch", "_known", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known: dict[int, Cells] = {}
        self._epoch = -1

    def known(self) -> dict[int, Cells]:
        """By row; current where the first entry is the row's stamp in the log of amounts."""
        if self._epoch != self._table.epoch or len(self._known) > MOST:
            self._known = {}
            self._epoch = self._table.epoch
        return self._known

    def of(self, row: int, stamp: int) -> Cells:
        """The row; ``stamp`` is that of the log of amounts."""
        cells = self.known().get(row)
        return self.read(row, stamp) if cells is None or cells[0] != stamp else cells

    def read(self, row: int, stamp: int) -> Cells:
        """The row as it is now, noted in :meth:`known`."""
        cells = self._known[row] = (stamp, *resources_at(self._table, row))
        return cells


def resources_at(table: NodeTable, row: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """By column what is free, allocatable, used, releasing on a row."""
    planes = table.planes[row].tolist()
    allocatable, used, releasing = planes[ALLOCATABLE], planes[USED], planes[RELEASING]
    free = [has - taken for has, taken in zip(allocatable, used, strict=True)]
    if any(planes[PROMISED]):
        for at, promised in enumerate(planes[PROMISED]):
            free[at] -= max(promised - releasing[at], 0)
    return free, allocatable, used, releasing


PlainScores = list[tuple[float, PlainScorer | None, CardScorer | None]]
"""Weights, and the scores of one row: by its amounts, or by its cards as well."""


def plain_scores(plugins: PluginSet, needs: Needs, table: NodeTable) -> PlainScores | None:
    """The row scores for tasks of these needs, asked about one row at a time; ``None`` where a policy can
    only be asked about arrays, and for a resource that no node lists (MIG slices that are carved)."""
    if not plugins.amounts_decide or plugins.other_capacities or plugins.row_filters:
        return None
    if any(resource not in table.resources.values for resource, _ in needs.request):
        return None
    found: PlainScores = []
    for plugin in plugins.scores(needs.dialect).row:
        by_amounts = by_cards = None
        if isinstance(plugin, PlainScore):
            by_amounts = plugin.plain(needs, table.resources.values)
        elif isinstance(plugin, PlainDeviceScore):
            by_cards = plugin.plain_cards(needs, table.resources.values)
        else:
            return None
        if by_amounts is not None or by_cards is not None:
            found.append((plugin.weight, by_amounts, by_cards))
    return found

"""What policies that look at a whole node say of its cards, asked in plain values.

Where every such policy can be asked like that (:class:`~windlass.spi.scoring.PlainDeviceRanks`), the points of
the cards of a row cost no arrays. What was asked for which kind of pods is kept as long as the policies, and
the resources of the table, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.devices.plain_view import PlainDevices
from windlass.engine.nodes.row_cache import resources_at
from windlass.engine.nodes.table import NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Needs
from windlass.spi.scoring import CardRanker, DeviceRanks, PlainDeviceRanks

MOST = 4096
Rankers = list[tuple[float, CardRanker]]
"""Weights, and what is said of the cards of one row."""


class PluginDeviceScores:
    def __init__(self, table: NodeTable, plugins: PluginSet, cards: PlainDevices) -> None:
        self._table = table
        self._plugins = plugins
        self._cards = cards
        self._known: dict[tuple[int, str, int], tuple[Needs, Rankers | None]] = {}
        self._asked: tuple[list[DeviceRanks], int] = ([], -1)

    def rankers(self, needs: Needs, need: DeviceNeed) -> Rankers | None:
        """Those that have a word on the cards for such a need; ``None`` if one can only be asked about arrays."""
        policies, epoch = self._plugins.card_ranks, self._table.epoch
        if self._asked[0] is not policies or self._asked[1] != epoch or len(self._known) > MOST:
            self._known.clear()
            self._asked = (policies, epoch)
        listed = bool(needs.devices) and need is needs.devices[0]
        key = (id(needs), "" if listed else need.resource, 0 if listed else need.count)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (needs, self._ask(needs, need))
        return known[1]

    def _ask(self, needs: Needs, need: DeviceNeed) -> Rankers | None:
        found: Rankers = []
        for plugin in self._plugins.card_ranks:
            if not isinstance(plugin, PlainDeviceRanks):
                return None
            ranker = plugin.plain_rank(needs, need, self._table.resources.values)
            if ranker is not None:
                found.append((plugin.weight, ranker))
        return found

    def points(self, row: int, rankers: Rankers) -> Sequence[float]:
        """What they say in sum, by slot."""
        cards = self._cards.of(row)
        available = resources_at(self._table, row)[0]
        if len(rankers) == 1 and rankers[0][0] == 1.0:
            return rankers[0][1](available, cards)
        total = [0.0] * len(cards.free_milli)
        for weight, ranker in rankers:
            said = ranker(available, cards)
            total = [a + weight * b for a, b in zip(total, said, strict=True)]
        return total

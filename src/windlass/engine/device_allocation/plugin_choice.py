"""The word of policies on which cards a pod gets, and whole cards chosen by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.engine.device_allocation.plugin_scores import PluginDeviceScores, Rankers
from windlass.engine.devices.assignment import Choose
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet, speaks
from windlass.spi.devices import CandidateDevice, DeviceChoice, DeviceNeed
from windlass.spi.objects import Dialect, Needs


class PluginDeviceChoice:
    def __init__(self, table: NodeTable, plugins: PluginSet, heard: PluginDeviceScores) -> None:
        self._table = table
        self._cards = table.cards
        self._plugins = plugins
        self._heard = heard
        self._choosers = {
            dialect: [p for p in plugins.card_choices if speaks(p, dialect)] for dialect in Dialect
        }

    def chooses(self, needs: Needs) -> bool:
        """Whether a policy may have a word on the cards of such tasks."""
        return bool(self._plugins.card_ranks or self._choosers[needs.dialect])

    def choosers(self, needs: Needs) -> list[DeviceChoice]:
        """The policies that may have a word on single cards for such tasks."""
        return self._choosers[needs.dialect]

    def choice(self, needs: Needs, row: int = -1, *, later: bool = False) -> Choose | None:
        """What policies say of cards: those that look at one card, and those that look at the node."""
        plugins = self.choosers(needs)
        ranks = self._plugins.card_ranks if row >= 0 else ()
        if not plugins and not ranks:
            return None
        view = TableView(self._table, np.array([row], dtype=np.int64), future=later) if ranks else None
        slots = self._cards.row(row).device_set.slots if ranks else {}

        def choose(need: DeviceNeed, cards: Sequence[CandidateDevice]) -> Sequence[float] | None:
            if need.pack is not None:
                return None  # the pod's own word counts
            total = [0.0] * len(cards)
            any_said = False
            for plugin in plugins:
                said = plugin.prefer(needs, need, cards)
                if said is not None:
                    any_said = True
                    total = [a + plugin.weight * b for a, b in zip(total, said, strict=True)]
            for ranker in ranks:
                points = ranker.rank(needs, need, view) if view is not None else None
                if points is not None:
                    any_said = True
                    here = [float(points[0, slots[card.resource, card.index]]) for card in cards]
                    total = [a + ranker.weight * b for a, b in zip(total, here, strict=True)]
            return total if any_said else None

        return choose

    def pick_whole(self, row: int, resource: str, count: int, needs: Needs) -> int:
        """The free cards that policies would rather give to a plain pod, as a bit set; 0 if all are the same
        to them, or there are too few."""
        slots = self._table.devices.rows[row][resource]
        free = bits(slots.free & ~slots.kept)
        if len(free) <= count:
            return 0
        need = DeviceNeed(resource, count, WHOLE)
        if self._plugins.card_ranks and not self.choosers(needs):
            rankers = self._heard.rankers(needs, need)
            if rankers is not None:
                return self._best_whole(row, resource, need, free, rankers) if rankers else 0
        choose = self.choice(needs, row if self._plugins.card_ranks else -1)
        if choose is None:
            return 0
        device_set = self._cards.row(row).device_set
        devices = [device_set.cards[device_set.slots[resource, index]].device for index in free]
        cards = [
            CandidateDevice(
                resource, d.index, d.model, d.memory_mib, WHOLE, d.memory_mib, 0, d.numa, d.link_group
            )
            for d in devices
        ]
        said = choose(need, cards)
        if said is None or len(set(said)) == 1:
            return 0
        order = sorted(range(len(cards)), key=lambda at: (-said[at], cards[at].index))
        return sum(1 << cards[at].index for at in order[:count])

    def _best_whole(
        self, row: int, resource: str, need: DeviceNeed, free: Sequence[int], rankers: Rankers
    ) -> int:
        """:meth:`pick_whole` by points alone."""
        points, slots = self._heard.points(row, rankers), self._cards.row(row).device_set.slots
        said = {index: points[slots[resource, index]] for index in free}
        if len(set(said.values())) == 1:
            return 0
        order = sorted(free, key=lambda index: (-said[index], index))
        return sum(1 << index for index in order[: need.count])

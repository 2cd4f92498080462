"""Choice of devices by plugins, for shares and for whole devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.engine.device_allocation.plugin_scores import PluginDeviceScores, Rankers
from windlass.engine.devices.assignment import Choose
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet, supports
from windlass.spi.devices import CandidateDevice, DeviceChoice, DeviceNeed
from windlass.spi.objects import Dialect, Needs


class PluginDeviceChoice:
    """Plugins that choose among the devices of a node."""

    def __init__(self, table: NodeTable, plugins: PluginSet, scores: PluginDeviceScores) -> None:
        self._table = table
        self._shares = table.shares
        self.plugins = plugins
        self._scores = scores
        self.by_api = {
            dialect: [p for p in plugins.device_choices if supports(p, dialect)] for dialect in Dialect
        }
        """Plugins that choose single devices, by API."""

    def choosers(self, needs: Needs) -> list[DeviceChoice]:
        """Return the plugins that may choose single devices for such tasks."""
        return self.by_api[needs.dialect]

    def choice(self, needs: Needs, row: int = -1, *, later: bool = False) -> Choose | None:
        """Return the plugin scores of devices: of plugins for one device and for the whole node."""
        plugins = self.choosers(needs)
        ranks = self.plugins.device_ranks if row >= 0 else ()
        if not plugins and not ranks:
            return None
        view = TableView(self._table, np.array([row], dtype=np.int64), future=later) if ranks else None
        slots = self._shares.row(row).device_set.slots if ranks else {}

        def choose(need: DeviceNeed, candidates: Sequence[CandidateDevice]) -> Sequence[float] | None:
            if need.pack is not None:
                return None  # the preference of the pod takes precedence
            total = [0.0] * len(candidates)
            any_preference = False
            for plugin in plugins:
                preference = plugin.prefer(needs, need, candidates)
                if preference is not None:
                    any_preference = True
                    total = [a + plugin.weight * b for a, b in zip(total, preference, strict=True)]
            for ranker in ranks:
                points = ranker.rank(needs, need, view) if view is not None else None
                if points is not None:
                    any_preference = True
                    scores = [
                        float(points[0, slots[candidate.resource, candidate.index]])
                        for candidate in candidates
                    ]
                    total = [a + ranker.weight * b for a, b in zip(total, scores, strict=True)]
            return total if any_preference else None

        return choose

    def pick_whole(self, row: int, resource: str, count: int, needs: Needs) -> int:
        """Return the free devices that plugins prefer for a plain pod, as a bit set.

        0 if the scores are equal or if there are too few devices.
        """
        slots = self._table.devices.rows[row][resource]
        free = bits(slots.free & ~slots.nominated)
        if len(free) <= count:
            return 0
        need = DeviceNeed(resource, count, WHOLE)
        if self.plugins.device_ranks and not self.choosers(needs):
            rankers = self._scores.rankers(needs, need)
            if rankers is not None:
                return self._best_whole(row, resource, need, free, rankers) if rankers else 0
        choose = self.choice(needs, row if self.plugins.device_ranks else -1)
        if choose is None:
            return 0
        device_set = self._shares.row(row).device_set
        devices = [device_set.devices[device_set.slots[resource, index]].device for index in free]
        candidates = [
            CandidateDevice(
                resource, d.index, d.model, d.memory_mib, WHOLE, d.memory_mib, 0, d.numa, d.link_group
            )
            for d in devices
        ]
        scores = choose(need, candidates)
        if scores is None or len(set(scores)) == 1:
            return 0
        order = sorted(range(len(candidates)), key=lambda index: (-scores[index], candidates[index].index))
        return sum(1 << candidates[index].index for index in order[:count])

    def _best_whole(
        self, row: int, resource: str, need: DeviceNeed, free: Sequence[int], rankers: Rankers
    ) -> int:
        """Return :meth:`pick_whole` by scores only."""
        points, slots = self._scores.points(row, rankers), self._shares.row(row).device_set.slots
        scores = {index: points[slots[resource, index]] for index in free}
        if len(set(scores.values())) == 1:
            return 0
        order = sorted(free, key=lambda index: (-scores[index], index))
        return sum(1 << index for index in order[: need.count])

"""Scores of devices by plugins that look at a whole node, in plain values.

If every such plugin supports plain values
(:class:`~windlass.spi.scoring.PlainDeviceRanks`), scoring the devices of a row needs no
arrays. The rankers of each kind of pod are cached as long as the plugins, and the
resources of the table, stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.devices.plain_view import PlainDevices
from windlass.engine.nodes.row_cache import resources_at
from windlass.engine.nodes.table import NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Needs
from windlass.spi.scoring import DeviceRanker, DeviceRanks, PlainDeviceRanks

MAX_CACHED = 4096
Rankers = list[tuple[float, DeviceRanker]]
"""Weights, and functions that score the devices of one row."""


class PluginDeviceScores:
    """Cached rankers of plugins, and their scores."""

    def __init__(self, table: NodeTable, plugins: PluginSet, plain_devices: PlainDevices) -> None:
        self._table = table
        self._plugins = plugins
        self._plain_devices = plain_devices
        self._cached: dict[tuple[int, str, int], tuple[Needs, Rankers | None]] = {}
        self._cache_key: tuple[list[DeviceRanks], int] = ([], -1)

    def rankers(self, needs: Needs, need: DeviceNeed) -> Rankers | None:
        """Return the rankers for such a need; ``None`` if a plugin supports only arrays."""
        policies, epoch = self._plugins.device_ranks, self._table.epoch
        if (
            self._cache_key[0] is not policies
            or self._cache_key[1] != epoch
            or len(self._cached) > MAX_CACHED
        ):
            self._cached.clear()
            self._cache_key = (policies, epoch)
        listed = bool(needs.devices) and need is needs.devices[0]
        key = (id(needs), "" if listed else need.resource, 0 if listed else need.count)
        cached = self._cached.get(key)
        if cached is None:
            cached = self._cached[key] = (needs, self._make_rankers(needs, need))
        return cached[1]

    def _make_rankers(self, needs: Needs, need: DeviceNeed) -> Rankers | None:
        rankers: Rankers = []
        for plugin in self._plugins.device_ranks:
            if not isinstance(plugin, PlainDeviceRanks):
                return None
            ranker = plugin.plain_rank(needs, need, self._table.resources.values)
            if ranker is not None:
                rankers.append((plugin.weight, ranker))
        return rankers

    def points(self, row: int, rankers: Rankers) -> Sequence[float]:
        """Return the weighted sum of the scores, by slot."""
        devices = self._plain_devices.of(row)
        available = resources_at(self._table, row)[0]
        if len(rankers) == 1 and rankers[0][0] == 1.0:
            return rankers[0][1](available, devices)
        total = [0.0] * len(devices.free_milli)
        for weight, ranker in rankers:
            scores = ranker(available, devices)
            total = [a + weight * b for a, b in zip(total, scores, strict=True)]
        return total

"""What topology spread constraints count, from the tasks alone."""

from __future__ import annotations

from collections import Counter

import numpy as np

from windlass.engine.core import Core
from windlass.engine.groups.entries import ACTIVE
from windlass.plugins.nodes.pod_class_index import meets
from windlass.plugins.nodes.topology_spread import TopologySpread


def check_spreads(engine: Core) -> None:
    """Held against the counts that are kept: every pod counts that is on a node, or has room promised on it, and
    does not terminate, in earnest or in thought."""
    for plugin in engine.world.policies.domains:
        if isinstance(plugin, TopologySpread) and plugin._censuses:
            _check(engine, plugin)


def _check(engine: Core, plugin: TopologySpread) -> None:
    standing = _standing(engine)
    needs = {cls.number: cls.needs for cls in engine.world.classes}
    for census in plugin._censuses.values():
        plugin._settle(census)
        codes = plugin._all.label(census.key)
        expected = np.zeros(len(plugin._all.label_values(census.key)), dtype=np.int64)
        by_row = np.zeros(plugin._all.size, dtype=np.int64)
        for (number, row), n in standing.items():
            if meets(needs[number], dict(needs[number].labels), (census.condition,)):
                by_row[row] += n
                expected[codes[row]] += n * bool(census.eligible[row])
        assert census.counts.tolist() == expected.tolist(), (census.condition, census.key)
        assert plugin.on_row(census).tolist() == by_row.tolist(), (census.condition, census.key)


def _standing(engine: Core) -> Counter[tuple[int, int]]:
    """(class, row) → how many of its pods are there or will be, and do not terminate."""
    world, found = engine.world, Counter[tuple[int, int]]()
    for entry in world.tasks.values():
        if entry.state in ACTIVE and entry.key not in world.ledger.leaving:
            found[entry.cls.number, entry.row] += 1
        if entry.promised >= 0:
            found[entry.cls.number, entry.promised] += 1
    for hold in world.ledger.holds:
        found[hold.cls.number, hold.row] += 1
    return found

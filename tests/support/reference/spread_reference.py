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
    for plugin in engine.state.plugins.domains:
        if isinstance(plugin, TopologySpread) and plugin._spread_counts:
            _check(engine, plugin)


def _check(engine: Core, plugin: TopologySpread) -> None:
    standing = _standing(engine)
    needs = {cls.number: cls.needs for cls in engine.state.classes}
    for counts in plugin._spread_counts.values():
        plugin._update(counts)
        codes = plugin._all.label(counts.key)
        expected = np.zeros(len(plugin._all.label_values(counts.key)), dtype=np.int64)
        by_row = np.zeros(plugin._all.size, dtype=np.int64)
        for (number, row), n in standing.items():
            if meets(needs[number], dict(needs[number].labels), (counts.condition,)):
                by_row[row] += n
                expected[codes[row]] += n * bool(counts.eligible[row])
        assert counts.counts.tolist() == expected.tolist(), (counts.condition, counts.key)
        assert plugin.on_row(counts).tolist() == by_row.tolist(), (counts.condition, counts.key)


def _standing(engine: Core) -> Counter[tuple[int, int]]:
    """(class, row) → how many of its pods are there or will be, and do not terminate."""
    state, found = engine.state, Counter[tuple[int, int]]()
    for entry in state.tasks.values():
        if entry.state in ACTIVE and entry.key not in state.ledger.terminating:
            found[entry.cls.number, entry.row] += 1
        if entry.nominated_row >= 0:
            found[entry.cls.number, entry.nominated_row] += 1
    for hold in state.ledger.holds:
        found[hold.cls.number, hold.row] += 1
    return found

"""``engine.nodes.free_rows``: the best row is the same, whether all rows are brought up to date or only what
decides."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cluster_dsl import GPU
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.feasibility.task_class import ClassIndex, TaskClass
from windlass.engine.nodes.free_rows import FreeRows
from windlass.engine.nodes.table import ALLOCATABLE, USED, NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Needs, Node

KINDS = [
    Needs(request=(("cpu", 2),)),
    Needs(request=(("cpu", 1), (GPU, 1))),
    Needs(request=(("cpu", 1), (GPU, 4))),
    Needs(request=(("cpu", 1), (GPU, 1)), node_selector=(("zone", "a"),)),
]


def table_of(n: int) -> NodeTable:
    table = NodeTable()
    for i in range(n):
        table.upsert(Node(f"n{i:03}", {"cpu": 20, GPU: 8, "pods": 50}, {"zone": "ab"[i % 2]}))
    return table


def use(table: NodeTable, row: int, rng: random.Random) -> None:
    full = rng.random() < 0.6
    table.planes[row, USED, table.column(GPU)] = 8 if full else rng.randrange(9)
    table.planes[row, USED, table.column("cpu")] = rng.randrange(21)
    table.touch(row)


def best_of(cls: TaskClass, table: NodeTable, plugins: PluginSet) -> int:
    fresh = TaskClass(99, cls.needs, table, plugins)
    fresh.refresh()
    row = int(fresh.key.argmax())
    return row if fresh.key[row] >= 0 else -1


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([18, 30, 200]))
def test_the_best_row_is_that_of_a_new_class(seed: int, most: int) -> None:
    """However many changes lie between two questions, and whoever asked in between."""
    rng = random.Random(seed)
    table, plugins = table_of(60), PluginSet(default_plugins())
    index = ClassIndex(table, plugins, 100)
    classes = [index.get(needs) for needs in KINDS]
    for _ in range(12):
        for _ in range(rng.randrange(1, most)):
            use(table, rng.randrange(60), rng)
        for cls in rng.sample(classes, 3):
            row = cls.best()
            assert row == best_of(cls, table, plugins)
            if row >= 0:
                assert cls.count[row] > 0
    for cls in classes:
        fresh = TaskClass(99, cls.needs, table, plugins)
        fresh.refresh()
        cls.refresh()
        assert np.array_equal(cls.count, fresh.count)
        assert np.array_equal(cls.key, fresh.key)
        assert cls.total == fresh.total


@pytest.mark.parametrize("changes", [1, 20, 400])
def test_what_changed_is_shut_or_in_the_log(changes: int) -> None:
    table, rng = table_of(120), random.Random(changes)
    gpu = table.column(GPU)
    opened = FreeRows(table, gpu)
    opened.sync()
    for _ in range(5):
        mark = table.resource_log.mark
        for _ in range(changes):
            use(table, rng.randrange(120), rng)
        opened.sync()
        left = table.planes[:, ALLOCATABLE, gpu] > table.planes[:, USED, gpu]
        assert np.array_equal(opened.full, left.astype(np.int64) - 1)
        expected = [row for row in table.resource_log.since(mark) if left[row]]
        assert opened.since(mark, 120) == (expected if changes < 400 else None)
        if expected and changes < 400:
            assert opened.since(mark, len(expected) - 1) is None


def test_a_table_that_grew_is_looked_at_anew() -> None:
    table = table_of(10)
    opened = FreeRows(table, table.column(GPU))
    opened.sync()
    before = table.resource_log.mark
    for i in range(100):
        table.upsert(Node(f"x{i:03}", {"cpu": 20, GPU: 8, "pods": 50}))
    opened.sync()
    assert len(opened.full) == table.capacity
    assert opened.since(before, 1000) is None
    assert opened.since(table.resource_log.mark, 1000) == []

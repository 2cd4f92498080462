"""``engine.feasibility.batch_evaluate``: many kinds at once are judged as each alone, to the last bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cluster_dsl import GPU
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.feasibility import node_fit
from windlass.engine.feasibility.batch_evaluate import can_join, evaluate_together
from windlass.engine.feasibility.task_class import ClassIndex, TaskClass
from windlass.engine.nodes.table import USED, NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.plugins.defaults import default_plugins
from windlass.plugins.nodes.binpack import Binpack
from windlass.plugins.nodes.spread import Spread
from windlass.spi.objects import Dialect, Needs, Node
from windlass.spi.plugins import ManyScores

NAMES = ("cpu", "memory", GPU, "amd.com/gpu")
REQUESTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9))


def wants(**request: int) -> Needs:
    return Needs(request=tuple(sorted((name.replace("gpu", GPU), n) for name, n in request.items())))


def table_of(n: int, rng: random.Random) -> NodeTable:
    table = NodeTable()
    for i in range(n):
        amounts = {"cpu": 99, "memory": 99, GPU: 9, "amd.com/gpu": i % 3, "pods": 50}
        table.upsert(Node(f"n{i:03}", amounts, {"zone": "ab"[i % 2]}))
    change(table, range(n), rng)
    return table


def change(table: NodeTable, rows: range | list[int], rng: random.Random) -> None:
    for row in rows:
        for name in NAMES:
            table.planes[row, USED, table.column(name)] = rng.randrange(0, 9)
        table.touch(row)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=6), st.integers(0, 1000))
def test_scores_and_counts_are_those_of_each_alone(requests, seed) -> None:
    table, plugins = table_of(20, random.Random(seed)), PluginSet(default_plugins())
    rows = np.array([3, 1, 17, 8], dtype=np.int64)
    needs = [Needs(request=tuple(sorted(request.items()))) for request in requests]
    classes = [TaskClass(at, one, table, plugins) for at, one in enumerate(needs)]
    view = TableView(table, rows)
    counts, scores = evaluate_together([(cls.needs, cls.vector) for cls in classes], view, plugins)
    for at, cls in enumerate(classes):
        cls.refresh()
        assert np.array_equal(counts[at], cls.count[rows])
        assert np.array_equal(scores[at], Binpack().score(cls.needs, TableView(table))[rows])


def four(index: ClassIndex) -> list[TaskClass]:
    return [index.get(one) for one in (wants(cpu=3), wants(cpu=5, memory=2), wants(gpu=1), wants())]


def same(classes: list[TaskClass], table: NodeTable, plugins: PluginSet) -> None:
    for cls in classes:
        fresh = TaskClass(99, cls.needs, table, plugins)
        fresh.refresh()
        cls.refresh()
        assert np.array_equal(cls.count, fresh.count)
        assert np.array_equal(cls.key, fresh.key)
        assert cls.best() == int(fresh.key.argmax())
        assert cls.total == fresh.total


def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were judged together, each time."""
    found: list[int] = []

    def watched(kinds, view, policies):
        found.append(len(kinds))
        return evaluate_together(kinds, view, policies)

    monkeypatch.setattr(node_fit, "evaluate_together", watched)
    return found


def test_what_was_asked_of_late_is_brought_up_to_date_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, plugins, times = random.Random(1), PluginSet(default_plugins()), judged(monkeypatch)
    table = table_of(200, rng)
    index = ClassIndex(table, plugins, 99)
    classes = four(index)
    never = index.get(wants(cpu=7))
    elsewhere = index.get(Needs(request=(("cpu", 3),), dialect=Dialect.KAI))
    for cls in (*classes, never, elsewhere):
        cls.refresh()
    for _ in range(3):
        change(table, rng.sample(range(200), 40), rng)
        classes[0].refresh()
        same(classes, table, plugins)
    assert times == [5, 4, 4]  # the one that nobody asks again was among them once
    same([never, elsewhere], table, plugins)


def test_few_rows_are_judged_one_kind_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, plugins, times = random.Random(1), PluginSet(default_plugins()), judged(monkeypatch)
    table = table_of(200, rng)
    classes = four(ClassIndex(table, plugins, 99))
    for _ in range(5):
        change(table, rng.sample(range(200), 10), rng)
        same(classes, table, plugins)
    assert times == []


def test_who_sees_other_nodes_or_looks_at_them_differently_is_not_among_them() -> None:
    plugins = PluginSet(default_plugins())
    assert can_join(plugins, wants(cpu=1))
    assert not can_join(plugins, Needs(request=(("cpu", 1),), dialect=Dialect.KAI))
    assert not can_join(PluginSet([*default_plugins(), Spread()]), wants(cpu=1))
    assert not can_join(PluginSet([]), wants(cpu=1))
    assert isinstance(Binpack(), ManyScores)


def test_a_change_of_labels_leaves_the_others_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, plugins, times = random.Random(2), PluginSet(default_plugins()), judged(monkeypatch)
    table = table_of(200, rng)
    classes = four(ClassIndex(table, plugins, 99))
    same(classes, table, plugins)
    change(table, rng.sample(range(200), 40), rng)
    table.upsert(Node("n001", {"cpu": 99, "pods": 50}, {"zone": "b"}, unschedulable=True))
    classes[0].refresh()
    assert times == []  # the others have not seen yet that a node is closed
    same(classes, table, plugins)

"""``engine.nodes.row_cache``: rows in plain integers say what the arrays say, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from cluster_dsl import GPU
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.feasibility.task_class import ClassIndex
from windlass.engine.nodes.row_cache import MAX_CACHED, RowCache, plain_scores
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED, NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.plugins.default_node_plugins import node_policies
from windlass.plugins.defaults import default_plugins
from windlass.plugins.kai import node_scores
from windlass.plugins.nodes.binpack import Binpack
from windlass.plugins.nodes.spread import Spread
from windlass.spi.nodes import IntArray, NodeView
from windlass.spi.objects import Dialect, Needs, Node
from windlass.spi.plugins import PlainScore

NAMES = ("cpu", "memory", GPU, "amd.com/gpu")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 1 << 53))
SMALL = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9))
DIALECTS = st.sampled_from(list(Dialect))


def wants(request: Mapping[str, int], dialect: Dialect) -> Needs:
    return Needs(request=tuple(sorted(request.items())), dialect=dialect)


def write(table: NodeTable, row: int, plane: int, amounts: Mapping[str, int]) -> None:
    for name, units in amounts.items():
        column = table.column(name)  # which may make the planes anew
        table.planes[row, plane, column] = min(units, 1 << 52)


SCORES = [
    Binpack(),
    *(node_scores.Density(devices=devices, pack=pack) for devices in (True, False) for pack in (True, False)),
    node_scores.NodeKind(),
]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SCORES),
    st.one_of(AMOUNTS, SMALL),
    st.tuples(*[st.one_of(AMOUNTS, SMALL)] * 3),
    DIALECTS,
)
def test_a_plain_score_is_the_score(plugin, request, amounts, dialect) -> None:
    table = NodeTable()
    table.upsert(Node("n", {"pods": 9}))
    needs = wants(request, dialect)
    table.request_vector({**request, "pods": 1})
    plain = plugin.plain(needs, table.resources.values)
    row = table.rows["n"]
    for plane, of in zip((ALLOCATABLE, USED, RELEASING), amounts, strict=True):
        write(table, row, plane, of)  # resources that nobody had named before are among them
    score = plugin.score(needs, TableView(table))
    assert (score is None) is (plain is None)
    if plain is not None:
        has, used, releasing, _ = table.planes[row].tolist()
        assert plain(has, used, releasing) == score[0]


CHANGES = st.lists(
    st.tuples(st.integers(0, 29), st.sampled_from((USED, RELEASING, NOMINATED)), SMALL), max_size=40
)


@settings(max_examples=examples(80), deadline=None)
@given(SMALL, DIALECTS, st.lists(CHANGES, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_a_class_that_follows_equals_one_made_anew(request, dialect, rounds, spread, kai_spread) -> None:
    table = NodeTable()
    for i in range(30):
        table.upsert(Node(f"n{i:02}", {"cpu": 9, "memory": 9, GPU: i % 9, "pods": 3}, {}))
    kind = "spread" if kai_spread else "binpack"
    plugins = PluginSet(
        node_policies(placement="spread" if spread else "binpack", kai_gpu=kind, kai_cpu=kind)
    )
    needs = wants(request, dialect)
    cls = ClassIndex(table, plugins, 9).get(needs)
    cls.refresh()
    for number, changes in enumerate(rounds):
        for row, plane, amounts in changes:
            write(table, row, plane, amounts)
            table.touch(row)
        table.upsert(Node(f"n{number:02}", {"cpu": 4, GPU: 2, "pods": 9}, {"changed": str(number)}))
        cls.refresh()
        other = ClassIndex(table, plugins, 9).get(needs)
        other.refresh()
        assert np.array_equal(cls.count, other.count)
        assert np.array_equal(cls.key, other.key)
        assert cls.total == other.total == cls.count.sum()
        assert cls.best() == (int(other.key.argmax()) if other.total else -1)


@settings(max_examples=examples(80), deadline=None)
@given(SMALL, DIALECTS, CHANGES, st.sets(st.integers(0, 29), max_size=12))
def test_a_few_rows_will_be_what_many_will_be(request, dialect, changes, few) -> None:
    table = NodeTable()
    for i in range(30):
        table.upsert(Node(f"n{i:02}", {"cpu": 9, "memory": 9, GPU: i % 9, "pods": 3}, {}))
    cls = ClassIndex(table, PluginSet(node_policies()), 9).get(wants(request, dialect))
    for row, plane, amounts in changes:
        write(table, row, plane, amounts)
        table.touch(row)
    rows = np.array(sorted(few), dtype=np.int64)
    counts, keys = cls.future(np.arange(30, dtype=np.int64))
    found = cls.future(rows)
    assert np.array_equal(found[0], counts[rows])
    assert np.array_equal(found[1], keys[rows])
    assert np.array_equal(cls.future_count(rows), counts[rows])


def test_rows_are_read_again_once_they_have_changed_or_the_columns_have() -> None:
    table = NodeTable()
    table.upsert(Node("n", {"cpu": 5, "pods": 9}))
    cells, row = RowCache(table), table.rows["n"]
    stamp = table.resource_log.stamps[row]
    assert cells.known() == {}
    write(table, row, USED, {"cpu": 2})
    write(table, row, NOMINATED, {"cpu": 2})
    write(table, row, RELEASING, {"cpu": 1})
    cpu = table.column("cpu")
    found = cells.read(row, stamp)
    assert [found[0], *(part[cpu] for part in found[1:])] == [stamp, 5 - 2 - (2 - 1), 5, 2, 1]
    assert cells.known() == {row: found}
    for at in range(20):
        table.column(f"r/{at}")
    assert cells.known() == {}
    for at in range(MAX_CACHED + 1):
        cells.read(at % 64, at)
        cells._known[at + 64] = found
    assert cells.known() == {}


class Everything:
    """A capacity that says nothing."""

    name = "everything"

    def capacity(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        return None


@pytest.mark.parametrize(
    ("plugins", "plain"),
    [
        (default_plugins(), True),
        ([*default_plugins(), Everything()], False),
        ([], False),
        ([Spread()], False),
    ],
    ids=["defaults", "a capacity", "nobody counts", "arrays only"],
)
def test_only_where_every_policy_can_be_asked_about_one_node(plugins, plain) -> None:
    table = NodeTable()
    table.request_vector({GPU: 1, "pods": 1})
    found = plain_scores(PluginSet(plugins), wants({GPU: 1}, Dialect.WINDLASS), table)
    assert (found is not None) is plain


def test_the_built_in_scores_offer_it() -> None:
    assert all(isinstance(plugin, PlainScore) for plugin in SCORES)
    assert not isinstance(Spread(), PlainScore)

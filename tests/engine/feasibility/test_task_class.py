"""``engine.feasibility.task_class``: cached arrays equal what a new evaluation finds, and classes come and go."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cluster_dsl import GPU, Cluster, needs

from windlass.engine.feasibility.task_class import UNLIMITED, ClassIndex, TaskClass
from windlass.engine.nodes.table import USED, NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.plugins.defaults import default_plugins
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Expression, Needs, Node, NodeTerm
from windlass.spi.plugins import Footprint, Trend


def table_of(n: int) -> NodeTable:
    table = NodeTable()
    for i in range(n):
        table.upsert(Node(f"n{i:03}", {GPU: 8000, "cpu": 16_000, "pods": 50}, {"zone": "ab"[i % 2]}))
    return table


def fresh(cls: TaskClass, table: NodeTable, plugins: PluginSet) -> TaskClass:
    other = TaskClass(99, cls.needs, table, plugins)
    other.refresh()
    return other


def same(one: TaskClass, other: TaskClass) -> bool:
    return one.total == other.total and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("static", "count", "key")
    )


def test_a_class_knows_its_request_with_one_pod_and_its_devices() -> None:
    plugins = PluginSet(default_plugins())
    cls = TaskClass(0, needs("gpu=2 cpu=1"), NodeTable(), plugins)
    assert dict(cls.items) == {GPU: 2000, "cpu": 1000, "pods": 1}
    assert cls.device_requests == ((GPU, 2),)
    half = Needs(request=((GPU, 500), ("cpu", 0)))
    assert TaskClass(0, half, NodeTable(), plugins).device_requests == ()
    assert "cpu" not in TaskClass(0, half, NodeTable(), plugins).request


@pytest.mark.parametrize("writes", [1, 2, 30, 100, 2000])
def test_the_cache_follows_the_table(writes: int) -> None:
    """One row, few rows, many rows, more than the log is worth: every way of catching up."""
    table = table_of(120)
    plugins = PluginSet(default_plugins())
    cls = TaskClass(0, needs("gpu=1 cpu=3", node_selector={"zone": "a"}), table, plugins)
    cls.refresh()
    rng = random.Random(writes)
    gpu, cpu = table.column(GPU), table.column("cpu")
    for _ in range(3):
        for _ in range(writes):
            row = rng.randrange(120)
            table.planes[row, USED, gpu] = 1000 * rng.randrange(9)
            table.planes[row, USED, cpu] = 1000 * rng.randrange(17)
            table.touch(row)
        cls.refresh()
        assert same(cls, fresh(cls, table, plugins))


def test_the_cache_follows_nodes_that_come_go_and_change() -> None:
    table = table_of(10)
    plugins = PluginSet(default_plugins())
    cls = TaskClass(0, needs("gpu=1", node_selector={"zone": "a"}), table, plugins)
    cls.refresh()
    changes = [
        lambda: table.upsert(Node("m", {GPU: 4000, "pods": 9}, {"zone": "a"})),
        lambda: table.remove("n002"),
        lambda: table.upsert(Node("n004", {GPU: 8000, "pods": 9}, {"zone": "c"})),
        lambda: table.upsert(Node("n006", {GPU: 8000, "pods": 9}, {"zone": "a"}, unschedulable=True)),
        lambda: [table.upsert(Node(f"x{i}", {GPU: 1000, "pods": 9}, {"zone": "a"})) for i in range(100)],
        lambda: table.column("new/resource") and [table.column(f"r/{i}") for i in range(20)],
    ]
    for change in changes:
        change()
        cls.refresh()
        assert same(cls, fresh(cls, table, plugins))


def test_a_reader_that_lags_far_behind_looks_at_everything() -> None:
    table = table_of(60)
    plugins = PluginSet(default_plugins())
    cls = TaskClass(0, needs("gpu=1"), table, plugins)
    cls.refresh()
    for row in range(60):
        table.planes[row, USED, table.column(GPU)] = 8000
        table.touch(row)
        table.upsert(Node(f"n{row:03}", {GPU: 8000, "pods": 9}, {"zone": "z"}, unschedulable=row == 0))
    cls.refresh()
    assert cls.total == 0
    assert same(cls, fresh(cls, table, plugins))


def test_the_best_row_is_the_first_name_among_equals_and_minus_one_when_none_fits() -> None:
    table = NodeTable()
    for name in ("b", "a", "c"):
        table.upsert(Node(name, {GPU: 1000, "pods": 9}))
    plugins = PluginSet(default_plugins())
    cls = TaskClass(0, needs("gpu=1"), table, plugins)
    assert table.names[cls.best()] == "a"
    for name in ("a", "b", "c"):
        row = table.rows[name]
        table.planes[row, USED, table.column(GPU)] = 1000
        table.touch(row)
    assert cls.best() == -1
    assert TaskClass(0, needs("gpu=1"), NodeTable(), plugins).best() == -1


class Picky:
    """A row filter: no room on a node that already has two pods."""

    name = "picky"
    footprint = Footprint.ROW

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        return nodes.used("pods") < 2


class Lexical:
    """A row scorer that looks at labels, so equal amounts do not mean equal scores."""

    name = "lexical"
    footprint = Footprint.ROW
    weight = 1.0
    reads_labels = True

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return (nodes.label("zone") == 1) * 50.0 + nodes.used("pods") * 0.0


def test_a_row_filter_makes_a_class_uncountable() -> None:
    assert not TaskClass(0, needs(), NodeTable(), PluginSet([ResourcesFit(), Picky()])).countable
    assert TaskClass(0, needs("gpu=1"), NodeTable(), PluginSet(default_plugins())).countable
    assert not TaskClass(
        0, needs("gpu=1"), NodeTable(), PluginSet(default_plugins(placement="spread"))
    ).countable
    c = Cluster(plugins=[*default_plugins(), Picky()]).queues("default").nodes("n1", "n2")
    c.gang("g", 6, "cpu=1", min=4)
    c.cycle()
    assert c.where("g") == {"n1": 2, "n2": 2}


def test_rows_in_equal_states_share_an_answer_only_if_no_plugin_reads_labels() -> None:
    table = table_of(6)
    for plugins, shared in (([ResourcesFit()], True), ([ResourcesFit(), Lexical()], False)):
        policies = PluginSet(plugins)
        assert policies.shares_rows is shared
        cls = TaskClass(0, needs("gpu=1"), table, policies)
        cls.refresh()
        for row in (0, 1):
            table.planes[row, USED, table.column(GPU)] = 1000
            table.touch(row)
        cls.refresh()
        assert same(cls, fresh(cls, table, policies))


def test_without_policies_everything_fits_everywhere() -> None:
    table = table_of(2)
    cls = TaskClass(0, needs("gpu=99"), table, PluginSet([]))
    cls.refresh()
    assert cls.count[:2].tolist() == [UNLIMITED, UNLIMITED]


# ---------------------------------------------------------------------- the index


def test_equal_needs_are_one_class() -> None:
    table = NodeTable()
    index = ClassIndex(table, PluginSet(default_plugins()), keep=10)
    assert index.get(needs("gpu=1")) is index.get(needs("gpu=1"))
    assert index.get(needs("gpu=2")) is not index.get(needs("gpu=1"))
    assert len(index) == 2


def test_classes_without_tasks_are_forgotten_oldest_first_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, plugins = NodeTable(), PluginSet(default_plugins())
    forgotten: list[int] = []
    monkeypatch.setattr(type(plugins.domains[0]), "forget", lambda self, number: forgotten.append(number))
    index = ClassIndex(table, plugins, keep=3)
    wants = [needs(f"cpu={i + 1}") for i in range(5)]
    classes = [index.get(want) for want in wants]
    classes[0].tasks = 1
    for cls in (classes[3], classes[1], classes[2], classes[4]):
        index.touch(cls)
    index.trim(())
    assert [cls.needs for cls in index] == [wants[0], wants[2], wants[4]]
    assert forgotten == [classes[3].number, classes[1].number], "the domain policies forget them too"
    assert index.get(wants[1]) is not classes[1]


def test_arrays_used_longest_ago_are_dropped_but_not_watched_ones() -> None:
    table = table_of(3)
    index = ClassIndex(table, PluginSet(default_plugins()), keep=2)
    classes = [index.get(needs(f"cpu={i + 1}")) for i in range(4)]
    for cls in classes:
        cls.tasks = 1
        cls.refresh()
        index.touch(cls)
    index.trim({classes[0]})
    assert [cls.built for cls in classes] == [True, False, True, True]
    total = classes[1].total
    classes[1].refresh()
    assert (total, classes[1].total) == (0, 3 * 8)


def test_a_product_stands_for_its_variants_only_while_no_node_has_it_exactly() -> None:
    product = "nvidia.com/gpu.product"
    asked = needs("gpu=1", node_terms=(NodeTerm(labels=(Expression(product, "In", ("H100",)),)),))

    def runs_on(*nodes: str, before: str = "") -> dict[str, int]:
        c = Cluster()
        c.queues("default")
        if before:
            c.nodes(before)
            c.gang("early", 1, asked)
            c.cycle()
            c.remove("early")
            c.remove_node(before.split()[0])
        c.nodes(*nodes)
        c.gang("late", 1, asked)
        c.cycle()
        return c.where("late")

    assert runs_on(f"variant gpu=8 {product}=H100-HBM3") == {"variant": 1}
    assert runs_on(f"variant gpu=8 {product}=H100-HBM3", f"exact gpu=8 {product}=H100") == {"exact": 1}
    assert runs_on(f"variant gpu=8 {product}=H100-HBM3", before=f"gone gpu=8 {product}=H100") == {
        "variant": 1
    }

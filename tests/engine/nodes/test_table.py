"""``engine.nodes.table`` and ``engine.nodes.view``: columns that follow the nodes."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import GIB, GPU, Cluster, node, resources

from windlass.engine.nodes.table import (
    ALLOCATABLE,
    CELL_LIMIT,
    NO_POD_LIMIT,
    NOMINATED,
    RELEASING,
    USED,
    NodeTable,
)
from windlass.engine.nodes.view import TableView
from windlass.spi.objects import Device, Node, Taint


def filled(*texts: str) -> NodeTable:
    table = NodeTable()
    for text in texts:
        table.upsert(node(text))
    return table


def test_amounts_stand_in_columns_by_resource() -> None:
    table = filled("n1 gpu=8 cpu=4 mem=2 pods=10", "n2 fpga=3")
    view = TableView(table)
    assert view.size == 2
    assert view.allocatable(GPU).tolist() == [8000, 0]
    assert view.allocatable("memory").tolist() == [2 * GIB, 256 * GIB]
    assert view.allocatable("pods").tolist() == [10, 110]
    assert view.allocatable("example.com/fpga").tolist() == [0, 3]
    assert view.allocatable("never/seen").tolist() == [0, 0]
    assert table.total["cpu"] == 68_000


def test_a_node_that_states_no_pod_limit_has_none() -> None:
    table = NodeTable()
    table.upsert(Node("n", {"cpu": 1000}))
    assert TableView(table).allocatable("pods").tolist() == [NO_POD_LIMIT]


def test_rows_and_columns_grow_and_rows_stay() -> None:
    table = NodeTable()
    rows = {}
    for i in range(150):
        rows[f"n{i}"] = table.upsert(Node(f"n{i}", {f"r{i}": i}))
    assert {name: table.rows[name] for name in rows} == rows
    view = TableView(table)
    for i in (0, 77, 149):
        assert int(view.allocatable(f"r{i}")[rows[f"n{i}"]]) == i
        assert int(view.allocatable(f"r{i}").sum()) == i


def test_an_equal_node_logs_nothing_and_another_logs_what_changed() -> None:
    table = filled("n1 zone=a")
    marks = table.static_log.mark, table.resource_log.mark
    table.improved.clear()
    table.upsert(node("n1 zone=a"))
    assert (table.static_log.mark, table.resource_log.mark) == marks
    assert not table.improved
    table.upsert(node("n1 zone=a cpu=5"))
    assert (table.static_log.mark, table.resource_log.mark) == (marks[0], marks[1] + 1)
    table.upsert(node("n1 zone=b cpu=5"))
    assert table.static_log.mark == marks[0] + 1
    assert table.relabelled == {0}
    assert table.improved == {0}


def test_a_removed_node_leaves_nothing_and_its_row_is_used_again() -> None:
    table = filled("n1 gpu=8", "n2")
    assert table.remove("n1") == 0
    assert table.remove("n1") is None
    assert table.remove("unknown") is None
    assert GPU not in table.total
    assert not table.live[0]
    assert table.upsert(node("n3")) == 0
    assert TableView(table).allocatable(GPU).tolist() == [0, 0]


def test_a_node_named_by_a_task_first_becomes_live_when_it_arrives() -> None:
    table = NodeTable()
    row = table.row("late")
    assert not table.live[row]
    assert table.upsert(node("late gpu=1")) == row
    assert table.live[row]


def test_amounts_beyond_the_limit_are_capped_and_requests_beyond_never_fit() -> None:
    table = NodeTable()
    table.upsert(Node("n", {"memory": 1 << 61}))
    assert TableView(table).allocatable("memory").tolist() == [CELL_LIMIT]
    assert int(table.request_vector({"memory": 1 << 61}).max()) == CELL_LIMIT + 1


def test_unhealthy_devices_are_not_allocatable() -> None:
    table = NodeTable()
    devices = tuple(Device(i, GPU, healthy=i != 1) for i in range(4))
    table.upsert(Node("n", {GPU: 4000}, devices=devices))
    assert TableView(table).allocatable(GPU).tolist() == [3000]
    table.upsert(Node("n", {GPU: 8000}, devices=devices))  # the node claims more than it lists
    assert TableView(table).allocatable(GPU).tolist() == [3000]


def test_available_keeps_what_is_promised_beyond_what_is_being_freed() -> None:
    table = filled("n1 gpu=8")
    column = table.column(GPU)
    table.planes[0, USED, column] = 6000
    view = TableView(table, np.array([0]))
    assert view.available(GPU).tolist() == [2000]
    table.planes[0, RELEASING, column] = 4000
    table.planes[0, NOMINATED, column] = 3000
    assert TableView(table).available(GPU).tolist() == [2000]  # the promise is covered by what is freed
    table.planes[0, NOMINATED, column] = 5000
    assert TableView(table).available(GPU).tolist() == [1000]
    assert TableView(table, empty=True).available(GPU).tolist() == [8000]
    assert TableView(table).releasing(GPU).tolist() == [4000]
    assert TableView(table).used(GPU).tolist() == [6000]


def test_labels_are_codes_with_zero_for_absent() -> None:
    table = filled("n1 zone=a", "n2", "n3 zone=b", "n4 zone=a")
    view = TableView(table)
    codes = view.label("zone").tolist()
    assert codes[1] == 0
    assert codes[0] == codes[3] != codes[2]
    assert [view.label_values("zone")[c] for c in codes if c] == ["a", "b", "a"]
    table.upsert(node("n2 zone=b"))
    assert int(view.label("zone")[1]) == codes[2]
    table.remove("n1")
    assert int(view.label("zone")[0]) == 0


def test_an_empty_label_value_is_not_an_absent_one() -> None:
    table = NodeTable()
    table.upsert(Node("n1", {}, {"flag": ""}))
    table.upsert(Node("n2", {}))
    first, second = TableView(table).label("flag").tolist()
    assert first != 0
    assert second == 0


def test_taints_flags_and_names() -> None:
    table = filled("n1 taint=a=b:NoSchedule", "n2 cordoned", "n3 notready")
    view = TableView(table)
    sets = view.taint_sets()
    assert [sets[c] for c in view.taints().tolist()] == [(Taint("a", "b", "NoSchedule"),), (), ()]
    assert view.unschedulable().tolist() == [False, True, False]
    assert view.ready().tolist() == [True, True, False]
    assert list(view.names()) == ["n1", "n2", "n3"]
    assert list(TableView(table, np.array([2, 0])).names()) == ["n3", "n1"]
    assert TableView(table, np.array([2, 0])).rows.tolist() == [2, 0]
    assert view.rows.tolist() == [0, 1, 2]


def test_a_view_of_everything_follows_the_table() -> None:
    table = filled("n1")
    view = TableView(table)
    table.upsert(node("n2"))
    assert view.size == 2


@pytest.mark.parametrize("state", ["same", "smaller"])
def test_tasks_stay_booked_when_their_node_goes_and_comes_back(state: str) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=8").running("x", "n1", "gpu=4", devices=(4, 5, 6, 7))
    c.remove_node("n1")
    c.cycle()
    assert c.placed("x") == 1
    c.nodes("n1 gpu=8" if state == "same" else "n1 gpu=6")
    c.gang("y", 4, "gpu=1", min=1)
    c.cycle()
    assert c.placed("y") == (4 if state == "same" else 2)
    assert c.devices_of("y-0") == [0]
    row = c.engine.state.table.rows["n1"]
    assert int(c.engine.state.table.planes[row, ALLOCATABLE, c.engine.state.table.column(GPU)]) == (
        8000 if state == "same" else 6000
    )


def test_resources_of_the_language_of_these_tests() -> None:
    assert resources("gpu=2 cpu=0.5") == {GPU: 2000, "cpu": 500}

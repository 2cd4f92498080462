"""Packing and spreading: the formulas, and the promise about how scores move."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import GPU, needs
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.table import USED, NodeTable
from windlass.engine.view import TableView
from windlass.plugins.binpack import Binpack
from windlass.plugins.node_affinity import NodeAffinity
from windlass.plugins.spread import Spread
from windlass.plugins.taints import TaintToleration
from windlass.spi.objects import Node
from windlass.spi.plugins import Trend


def use(nodes: TableView, row: int, resource: str, units: int) -> None:
    table = nodes._table
    table.planes[row, USED, table.column(resource)] = units


def test_devices_count_first(view) -> None:
    nodes = view("n1 gpu=8 cpu=10", "n2 gpu=8 cpu=10", "n3 gpu=2 cpu=10")
    use(nodes, 0, GPU, 6000)
    use(nodes, 1, "cpu", 9000)
    score = Binpack().score(needs("gpu=1 cpu=1"), nodes)
    assert score.round(6).tolist() == [
        round(90 * 7 / 8 + 10 * 1 / 10, 6),
        round(90 * 1 / 8 + 10 * 10 / 10, 6),
        round(90 * 1 / 2 + 10 * 1 / 10, 6),
    ]


def test_without_devices_full_nodes_are_better_than_idle_ones(view) -> None:
    nodes = view("n1 gpu=2 cpu=10", "n2 gpu=2 cpu=10", "n3 cpu=10")
    use(nodes, 1, GPU, 2000)
    score = Binpack().score(needs("cpu=5"), nodes).tolist()
    assert score == [30.0, 70.0, 70.0]


def test_a_node_without_the_resource_scores_nothing_for_it(view) -> None:
    assert Binpack().score(needs("gpu=1"), view("n1")).tolist() == [0.0]


def test_what_asks_for_nothing_goes_where_the_fewest_pods_are(view) -> None:
    nodes = view("n1", "n2", "n3")
    use(nodes, 0, "pods", 1)
    use(nodes, 1, "pods", 9)
    for plugin in (Binpack(), Spread()):
        assert plugin.score(needs(), nodes).tolist() == [50.0, 10.0, 100.0]


def test_spread_is_the_room_left(view) -> None:
    nodes = view("n1 gpu=8 cpu=10", "n2 gpu=4 cpu=10")
    use(nodes, 0, GPU, 4000)
    assert Spread().score(needs("gpu=2 cpu=9"), nodes).tolist() == [25.0, 50.0]
    assert Spread().score(needs("cpu=5"), nodes).tolist() == [50.0, 50.0]


AMOUNT = st.integers(0, 8)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(AMOUNT, AMOUNT, AMOUNT),
    st.tuples(AMOUNT, AMOUNT, AMOUNT),
    st.integers(0, 5),
    st.sampled_from([Binpack(), Spread(), NodeAffinity(), TaintToleration()]),
)
def test_scores_stay_in_range_and_move_as_promised(has, asks, before, plugin) -> None:
    table = NodeTable()
    names = (GPU, "cpu", "memory")
    table.upsert(Node("n", dict(zip(names, has, strict=True))))
    wants = needs(f"gpu={asks[0]}")
    wants = type(wants)(request=tuple(zip(names, asks, strict=True)))
    row = table.rows["n"]
    scores = []
    for placed in range(before, before + 4):
        for name, units in (*wants.request, ("pods", 1)):
            table.planes[row, USED, table.column(name)] = units * placed
        score = plugin.score(wants, TableView(table))
        scores.append(0.0 if score is None else float(score[0]))
    assert all(0.0 <= score <= 100.0 for score in scores)
    trend = plugin.trend(wants)
    steps = np.diff(scores)
    assert trend is not Trend.RISES or (steps >= 0).all()
    assert trend is not Trend.FALLS or (steps <= 0).all()


@pytest.mark.parametrize("plugin", [Binpack(), Spread()])
def test_a_score_depends_on_no_other_node(view, plugin) -> None:
    texts = ["n1 gpu=8 cpu=4", "n2 gpu=2", "n3", "n4 gpu=8 cpu=8"]
    together = plugin.score(needs("gpu=1 cpu=1"), view(*texts)).tolist()
    assert together == [plugin.score(needs("gpu=1 cpu=1"), view(text)).tolist()[0] for text in texts]

"""Packing and spreading: the formulas, and the promise about how scores move."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import GPU, needs
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.nodes.table import RELEASING, USED, NodeTable
from windlass.engine.nodes.view import TableView
from windlass.plugins.kai import node_scores
from windlass.plugins.nodes.binpack import Binpack
from windlass.plugins.nodes.node_affinity import NodeAffinity
from windlass.plugins.nodes.spread import Spread
from windlass.plugins.nodes.taints import TaintToleration
from windlass.plugins.volcano.nodes import binpack
from windlass.plugins.volcano.nodes.nodeorder import BalancedResource, LeastRequested, MostRequested
from windlass.plugins.volcano.nodes.resource_strategy_fit import (
    ResourceStrategy,
    ResourceStrategyFit,
    ScarceResources,
)
from windlass.spi.objects import Needs, Node
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


def test_wishes_about_nodes_weigh_twice_what_packing_does() -> None:
    assert (Binpack().weight, Spread().weight, NodeAffinity().weight) == (1.0, 1.0, 2.0)


AMOUNT = st.integers(0, 8)
EVERY = [
    Binpack(),
    Spread(),
    NodeAffinity(),
    TaintToleration(),
    node_scores.NodeKind(),
    *(node_scores.Density(devices=devices, pack=pack) for devices in (True, False) for pack in (True, False)),
    LeastRequested(),
    MostRequested(),
    BalancedResource(),
    ResourceStrategyFit({"cpu": ResourceStrategy(True), GPU: ResourceStrategy(True, 3.0)}),
    ResourceStrategyFit({"cpu": ResourceStrategy(), "memory": ResourceStrategy(True)}),
    ScarceResources({GPU: 1.0}),
    *binpack.build({"binpack.resources": GPU}),
]


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(AMOUNT, AMOUNT, AMOUNT),
    st.tuples(AMOUNT, AMOUNT, AMOUNT),
    st.integers(0, 5),
    st.sampled_from(EVERY),
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
    has_room = [
        all(units * n <= most for units, most in zip(asks, has, strict=True))
        for n in range(before + 1, before + 5)
    ]
    steps = np.diff(scores)[np.array(has_room[1:])]  # a node without room is never scored in earnest
    assert trend is not Trend.RISES or (steps >= 0).all()
    assert trend is not Trend.FALLS or (steps <= 0).all()


@pytest.mark.parametrize("plugin", EVERY, ids=lambda p: p.name)
def test_a_score_depends_on_no_other_node(view, plugin) -> None:
    texts = ["n1 gpu=8 cpu=4", "n2 gpu=2", "n3", "n4 gpu=8 cpu=8"]
    for wants in (needs("gpu=1 cpu=1"), needs("cpu=1 mem=2"), needs()):
        together = plugin.score(wants, view(*texts))
        alone = [plugin.score(wants, view(text)) for text in texts]
        if together is None:
            assert alone == [None] * len(texts)
        else:
            assert together.tolist() == [float(score[0]) for score in alone]


def test_kai_scores_are_decades() -> None:
    pack, spread = (node_scores.Density(devices=True, pack=pack) for pack in (True, False))
    assert (pack.weight * 100, spread.weight * 100, node_scores.NodeKind().weight * 100) == (9, 1, 10)
    assert pack.score(needs("cpu=1"), None) is None  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nodeplacement is binpack or spread, not 'tight'"):
        node_scores.build(gpu="tight")


def test_the_smallest_part_of_a_device_is_one() -> None:
    table = NodeTable()
    table.upsert(Node("n", {GPU: 1}))
    wants = Needs(request=((GPU, 1),))
    assert node_scores.NodeKind().score(wants, TableView(table)) is None
    assert node_scores.NodeKind().score(Needs(request=((GPU, 0),)), TableView(table)) is not None
    spread = node_scores.Density(devices=True, pack=False)
    assert spread.score(wants, TableView(table)).tolist() == [100.0]
    pack = node_scores.Density(devices=True, pack=True)
    assert pack.score(wants, TableView(table))[0] > 0


def test_kai_packs_by_what_is_free_or_being_vacated(view) -> None:
    nodes = view("n1 gpu=8 cpu=10", "n2 gpu=4 cpu=10", "n3 cpu=10")
    use(nodes, 0, GPU, 7000)
    nodes._table.planes[0, RELEASING, nodes._table.column(GPU)] = 5000
    devices, cpus = (node_scores.Density(devices=devices, pack=True) for devices in (True, False))
    first, second, third = devices.score(needs("gpu=1"), nodes).tolist()
    assert second > first > third == 0  # 4 and 6 free; no devices at all
    spread = node_scores.Density(devices=True, pack=False)
    assert spread.score(needs("gpu=1"), nodes).tolist() == [75.0, 100.0, 0.0]
    assert len(set(cpus.score(needs("cpu=1"), nodes).tolist())) == 1
    assert node_scores.NodeKind().score(needs("cpu=1"), nodes).tolist() == [0.0, 0.0, 100.0]
    assert node_scores.NodeKind().score(needs("gpu=1"), nodes) is None


def test_whatever_is_asked_of_a_device_is_spread_by_devices(view) -> None:
    asks = Needs(request=((GPU, 1),))
    assert Spread().score(asks, view("n1 gpu=2")).tolist() == [pytest.approx(100 * (1 - 1 / 2000))]

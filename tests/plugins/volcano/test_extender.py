"""Responses of the extender as the engine uses them; the client is tested elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from cluster_dsl import needs, node

from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.plugins.volcano import extender
from windlass.spi.extender import NodeVerdict
from windlass.spi.objects import Dialect, Needs

BOTH = {
    "extender.urlPrefix": "http://judge",
    "extender.predicateVerb": "predicate",
    "extender.prioritizeVerb": "prioritize",
}
WANTS = needs("cpu=1", dialect=Dialect.VOLCANO)


class Judge:
    """Knows what it thinks."""

    def __init__(self, **opinions: NodeVerdict) -> None:
        self._opinions = opinions

    def has_news(self) -> bool:
        return True

    def verdicts(self, needs: Needs, nodes: Sequence[str]) -> Mapping[str, NodeVerdict]:
        return self._opinions


@pytest.fixture
def nodes() -> TableView:
    table = NodeTable()
    for name in ("n1", "n2", "n3"):
        table.upsert(node(name))
    return TableView(table)


def test_nobody_to_ask_is_no_opinion(nodes: TableView) -> None:
    (plugin,) = extender.build(BOTH)
    assert not plugin.changed(0.0)
    assert plugin.filter(WANTS, nodes) is None
    assert plugin.blockers(WANTS, nodes) == []
    assert not plugin.has_preference(0, WANTS, nodes)
    assert plugin.relative(0, WANTS, nodes, np.ones(3, dtype=bool)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("verb", "has_preference"), [("extender.prioritizeVerb", True), ("extender.predicateVerb", False)]
)
def test_only_a_verb_that_is_named_is_used(nodes: TableView, verb: str, has_preference: bool) -> None:
    (plugin,) = extender.build({"extender.urlPrefix": "http://judge", verb: "verb"})
    plugin.take_node_extender(Judge(n1=NodeVerdict("no", 5.0)))
    assert plugin.has_preference(0, WANTS, nodes) is has_preference
    assert (plugin.filter(WANTS, nodes) is None) is has_preference


def test_nodes_are_open_once_it_has_nothing_against_them(nodes: TableView) -> None:
    (plugin,) = extender.build(BOTH)
    plugin.take_node_extender(Judge(n1=NodeVerdict("too old"), n2=NodeVerdict()))
    assert plugin.filter(WANTS, nodes).tolist() == [False, True, False]
    assert {blocker.detail: blocker.blocked.tolist() for blocker in plugin.blockers(WANTS, nodes)} == {
        "too old": [True, False, False],
        extender.UNANSWERED: [False, False, True],
    }
    assert plugin.filter(needs("cpu=1"), nodes) is None


def test_points_beyond_the_range_count_as_its_ends(nodes: TableView) -> None:
    (plugin,) = extender.build(BOTH)
    plugin.take_node_extender(
        Judge(n1=NodeVerdict("", 150.0), n2=NodeVerdict("", -5.0), n3=NodeVerdict("", 40.0))
    )
    assert plugin.relative(0, WANTS, nodes, np.ones(3, dtype=bool)).tolist() == [100, 0, 40]

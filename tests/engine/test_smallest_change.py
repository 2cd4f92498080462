"""``engine.smallest_change``: what is proposed, and how it is put; that it is true hold the properties."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster

from windlass.api.reasons import Change, ChangeKind


def change(c: Cluster, name: str, kind: ChangeKind) -> Change:
    c.cycle()
    (found,) = [change for change in c.explain(name).changes if change.kind is kind]
    return found


def test_of_cordoned_nodes_those_with_most_room_are_named() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2 cordoned", "n2 gpu=4 cordoned", "n3 gpu=4 cordoned")
    found = change(c.gang("g", 2, "gpu=2"), "g", ChangeKind.UNCORDON)
    assert (found.target, found.size) == ("n2", 1 / 3)
    assert found.sentence == "Uncordon n2: windlass node uncordon n2."


def test_a_limit_is_raised_by_what_tasks_of_all_kinds_lack() -> None:
    c = Cluster().queues("default limit.gpu=4").nodes("n1 gpu=16").gang("old", 1, "gpu=1")
    c.cycle()
    c.gang("g", 2, "gpu=1", min=4).add_tasks("g", 2, "gpu=3", role="big")
    found = change(c, "g", ChangeKind.QUEUE_LIMIT)
    assert (found.target, found.current, found.wanted, found.size) == ("default", "4", "9", 5 / 4)


@pytest.mark.parametrize(
    ("pods", "nodes", "sentence"),
    [(2, "2", "With 1 node more like n1, empty, it would start."), (3, "3", "With 2 nodes more like n1")],
)
def test_nodes_that_would_have_to_be_added(pods: int, nodes: str, sentence: str) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2")
    found = change(c.gang("g", pods, "gpu=2"), "g", ChangeKind.ADD_NODES)
    assert (found.current, found.wanted) == ("1", nodes)
    assert found.sentence.startswith(sentence)


@pytest.mark.parametrize(("least", "proposed"), [(3, ["2"]), (4, [])])
def test_a_minimum_above_that_of_its_roles_is_not_lowered(least: int, proposed: list[str]) -> None:
    """It would free the gang of the minima of its roles only below their sum."""
    c = Cluster().queues("default").nodes("n1 gpu=2")
    c.gang("g", 4, "gpu=1", min=least, roles={"": 3})
    c.cycle()
    found = [change.wanted for change in c.explain("g").changes if change.kind is ChangeKind.MIN_MEMBER]
    assert found == proposed

"""``engine.diagnosis.smallest_change``: what is proposed, and how it is put; that it is true hold the properties."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster

from windlass.api.reasons import Reason, SuggestedChange, SuggestedChangeKind
from windlass.engine.config import EngineConfig
from windlass.spi.objects import TaskState


def change(c: Cluster, name: str, kind: SuggestedChangeKind) -> SuggestedChange:
    c.cycle()
    (found,) = [change for change in c.explain(name).changes if change.kind is kind]
    return found


def test_of_cordoned_nodes_those_with_most_room_are_named() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2 cordoned", "n2 gpu=4 cordoned", "n3 gpu=4 cordoned")
    found = change(c.gang("g", 2, "gpu=2"), "g", SuggestedChangeKind.UNCORDON)
    assert (found.target, found.size) == ("n2", 1 / 3)
    assert found.sentence == "Uncordon n2: windlass node uncordon n2."


def test_of_nodes_cordoned_as_kubernetes_does_it_the_taint_is_no_second_obstacle() -> None:
    taint = "taint=node.kubernetes.io/unschedulable=:NoSchedule"
    c = Cluster().queues("default").nodes(f"n1 gpu=2 cordoned {taint}", f"n2 gpu=4 cordoned {taint}")
    found = change(c.gang("g", 1, "gpu=2"), "g", SuggestedChangeKind.UNCORDON)
    assert found.sentence == "Uncordon n2: windlass node uncordon n2."


def test_whose_queue_takes_no_work_is_told_of_no_other_change() -> None:
    c = Cluster().queues("default", "team parent=gone").nodes("n1 gpu=3").gang("old", 1, "gpu=1")
    c.cycle()
    c.gang("g", 3, "gpu=1", queue="team").cycle()
    explanation = c.explain("g")
    assert explanation.changes == ()
    (remedy,) = explanation.remedies
    assert remedy.startswith("Create it: windlass queue create gone")


def test_a_limit_is_raised_by_what_tasks_of_all_kinds_lack() -> None:
    c = Cluster().queues("default limit.gpu=4").nodes("n1 gpu=16").gang("old", 1, "gpu=1")
    c.cycle()
    c.gang("g", 2, "gpu=1", min=4).add_tasks("g", 2, "gpu=3", role="big")
    found = change(c, "g", SuggestedChangeKind.QUEUE_LIMIT)
    assert (found.target, found.current, found.wanted, found.size) == ("default", "4", "9", 5 / 4)


@pytest.mark.parametrize(
    ("pods", "nodes", "sentence"),
    [(2, "2", "With 1 node more like n1, empty, it would start."), (3, "3", "With 2 nodes more like n1")],
)
def test_nodes_that_would_have_to_be_added(pods: int, nodes: str, sentence: str) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2")
    found = change(c.gang("g", pods, "gpu=2"), "g", SuggestedChangeKind.ADD_NODES)
    assert (found.current, found.wanted) == ("1", nodes)
    assert found.sentence.startswith(sentence)


@pytest.mark.parametrize(("least", "proposed"), [(3, ["2"]), (4, [])])
def test_a_minimum_above_that_of_its_roles_is_not_lowered(least: int, proposed: list[str]) -> None:
    """It would free the gang of the minima of its roles only below their sum."""
    c = Cluster().queues("default").nodes("n1 gpu=2")
    c.gang("g", 4, "gpu=1", min=least, roles={"": 3})
    c.cycle()
    found = [
        change.wanted for change in c.explain("g").changes if change.kind is SuggestedChangeKind.MIN_MEMBER
    ]
    assert found == proposed


@pytest.mark.parametrize(
    ("nodes", "parts", "wanted"),
    [
        (["n1 gpu=2"], "a:2=2 b:2=3", "2"),
        (["n1 gpu=2"], "a:1=1 b:2=2 c:2=2", "3"),
        (["n1 gpu=2"], "a:1=1 b:2/0>a=2", "2"),
        (["n1 gpu=3", "n2 gpu=1"], "top:0=0 a:3>top=3 b:2>top=2", "3"),
    ],
)
def test_nodes_for_a_gang_of_parts(nodes: list[str], parts: str, wanted: str) -> None:
    """With as many more it starts, with one fewer it does not."""
    c = Cluster().queues("default").nodes(*nodes).parted("g", parts)
    found = change(c, "g", SuggestedChangeKind.ADD_NODES)
    assert found.wanted == wanted
    name = found.target
    spec = next(text for text in nodes if text.startswith(name)).removeprefix(name)
    for number in range(int(wanted) - int(found.current)):
        assert c.placed("g") == 0
        c.nodes(f"more{number}{spec}")
        c.cycle()
    assert c.placed("g") > 0


def test_nodes_uncordoned_for_a_gang_of_parts() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2", "n2 gpu=2 cordoned").parted("g", "a:2=2 b:2=2")
    assert change(c, "g", SuggestedChangeKind.UNCORDON).target == "n2"
    c.nodes("n2 gpu=2")
    c.cycle()
    assert c.placed("g") == 4


@pytest.mark.parametrize("needed", [1, 2])
def test_nothing_is_said_where_some_parts_would_do(needed: int) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=1").parted("g", "a:2=2 b:3=3", needed=needed)
    c.cycle()
    kinds = {change.kind for change in c.explain("g").changes}
    assert (SuggestedChangeKind.ADD_NODES in kinds) is (needed == 2)


def test_who_fits_as_he_is_is_told_of_no_change_that_would_not_help() -> None:
    """The room is kept for who comes first: to ask for less of it, or with fewer members, changes nothing."""
    c = Cluster(EngineConfig(backfill="easy")).queues("default").nodes("n1 gpu=8")
    for name, pods, asked, seconds in (("runs", 1, "gpu=4", 600.0), ("first", 1, "gpu=8", 600.0)):
        c.gang(name, pods, asked).change_group(name, run_estimate=seconds)
        for bind in c.cycle().binds:
            c.change_task(bind.task.removeprefix("ns/"), state=TaskState.RUNNING, started=c.now)
    c.gang("g", 2, "gpu=2").change_group("g", run_estimate=900.0)
    c.cycle()
    explanation = c.explain("g")
    assert explanation.code is Reason.BEHIND_IN_QUEUE
    assert explanation.changes == ()

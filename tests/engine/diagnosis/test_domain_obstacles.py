"""Verdicts about topology domains with nodes that are cordoned, not ready, tainted or unlabelled."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster, needs
from msgspec.structs import replace as altered

from windlass.spi.objects import HostPort, TaskState
from windlass.spi.topology import Level, TopologyNeed


def rack(*levels: str, tiers: bool = False) -> TopologyNeed:
    names = levels or ("rack",)
    return TopologyNeed(
        "net", tuple(Level(name, "tier" if tiers else "") for name in names), len(names) - 1, nested=not tiers
    )


def gang(nodes: list[str], members: int, request: str, need: TopologyNeed) -> Cluster:
    c = Cluster().queues("default").nodes(*nodes)
    c.gang("g", members, request)
    c.change_group("g", topology=need)
    c.cycle()
    return c


STATES = [
    ("cordoned", "NodeUnschedulable", "n2 is cordoned", "windlass node uncordon n2"),
    ("notready", "NodeNotReady", "n2 is not ready", "kubectl describe node n2"),
]


@pytest.mark.parametrize("tiers", [False, True])
@pytest.mark.parametrize(("state", "code", "text", "remedy"), STATES)
def test_node_that_may_return_is_named(state: str, code: str, text: str, remedy: str, tiers: bool) -> None:
    c = gang(["n1 gpu=4 rack=a", f"n2 gpu=4 rack=a {state}"], 2, "gpu=4", rack(tiers=tiers))
    explanation = c.explain("g")
    assert (str(explanation.code), explanation.waiting_helps) == (code, "maybe")
    assert text in explanation.message
    assert "even if" not in explanation.message
    assert any(remedy in each for each in explanation.remedies)
    c.nodes("n2 gpu=4 rack=a").cycle()
    assert c.placed("g") == 2


def test_each_domain_tells_its_own_obstacle() -> None:
    taint = "taint=team=x:NoSchedule"
    nodes = ["a1 gpu=4 rack=a", "a2 gpu=4 rack=a cordoned", "b1 gpu=4 rack=b", "b2 gpu=4 rack=b notready"]
    c = gang([*nodes, "c1 gpu=4 rack=c", f"c2 gpu=4 rack=c {taint}"], 2, "gpu=4", rack())
    message = c.explain("g").message
    for text in ("a2 is cordoned", "b2 is not ready", "c2 is tainted (team=x:NoSchedule)"):
        assert text in message


@pytest.mark.parametrize("state", ["cordoned", "notready"])
def test_gang_beyond_its_domains_with_all_nodes_never_starts(state: str) -> None:
    c = gang(["n1 gpu=4 rack=a", f"n2 gpu=4 rack=a {state}", "n3 gpu=8 rack=b"], 3, "gpu=4", rack())
    explanation = c.explain("g")
    assert (str(explanation.code), explanation.waiting_helps) == ("ExceedsEveryDomain", "no")
    assert "would hold 2" in explanation.message
    assert "n2 is" in explanation.message


def test_member_that_runs_keeps_its_place_and_counts_once() -> None:
    c = gang(["n1 cpu=64 rack=a", "n2 cpu=64 rack=a", "n3 cpu=128 rack=b notready"], 2, "cpu=40", rack())
    c.nodes("n2 cpu=64 rack=a notready")
    name = next(task for task in ("g-0", "g-1") if c.node_of(task) == "n2")
    again = altered(c.tasks[f"ns/{name}"], uid="again", node="", state=TaskState.PENDING)
    c.remove_task(name)
    c.task(again)
    c.cycle()
    explanation = c.explain("g")
    assert str(explanation.code) == "NodeNotReady"
    assert "a holds 0 (n2 is not ready)" in explanation.message
    assert not any("at most" in remedy for remedy in explanation.remedies)


@pytest.mark.parametrize(
    ("nodes", "levels", "text"),
    [
        (["n1 rack=a", "n2 rack=b"], ("zone", "rack"), "2 nodes lack the label zone"),
        (["n1 room=r rack=a", "n2 room=r rack=b"], ("zone", "room", "rack"), "2 nodes lack the label zone"),
        (["n1 zone=z rack=a", "n2 zone=z"], ("zone", "room", "rack"), "1 node lacks the label room"),
        (["n1 zone=z", "n2 zone=z"], ("zone", "rack"), "2 nodes lack the label rack"),
    ],
)
def test_label_that_nodes_lack_is_named(nodes: list[str], levels: tuple[str, ...], text: str) -> None:
    explanation = gang(nodes, 1, "cpu=1", rack(*levels)).explain("g")
    assert text in explanation.message
    label = text.rpartition(" ")[2]
    assert any(f"kubectl label node NODE {label}=VALUE" in remedy for remedy in explanation.remedies)


def test_nodes_outside_the_only_domain_are_told() -> None:
    nodes = ["n1 cpu=4 zone=z rack=a", "n2 cpu=4 rack=a", "n3 cpu=4 rack=a"]
    explanation = gang(nodes, 2, "cpu=4", rack("zone", "rack")).explain("g")
    assert "would hold 1" in explanation.message
    assert "2 nodes lack the label zone." in explanation.message


def test_remedies_name_the_nodes_of_each_state() -> None:
    nodes = ["a1 gpu=4 rack=a", "a2 gpu=4 rack=a cordoned", "b1 gpu=4 rack=b", "b2 gpu=4 rack=b notready"]
    remedies = gang(nodes, 2, "gpu=4", rack()).explain("g").remedies
    assert "Uncordon nodes: windlass node uncordon a2." in remedies
    assert "See why nodes are not ready: kubectl describe node b2." in remedies


def test_members_with_one_host_port_count_once_per_node_of_a_domain() -> None:
    c = Cluster().queues("default").nodes("n1 rack=a", "n2 rack=b")
    c.gang("g", 2, needs("cpu=1", host_ports=(HostPort("TCP", 80),)))
    c.change_group("g", topology=rack())
    c.cycle()
    explanation = c.explain("g")
    assert (str(explanation.code), explanation.waiting_helps) == ("ExceedsEveryDomain", "no")
    assert "would hold 1" in explanation.message

"""Explanations: the code, the words, the figures and the remedies, case by case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from cluster_dsl import GPU, Cluster, needs, node

from windlass.api.reasons import Blocker, Explanation, NearMiss, Reason
from windlass.engine.deltas import QueueUpserted
from windlass.engine.diagnosis import messages
from windlass.engine.queueing import queue_position
from windlass.spi.objects import (
    Device,
    Dialect,
    Expression,
    HostPort,
    Needs,
    Node,
    NodeTerm,
    PodTerm,
    Queue,
    SpreadTerm,
    TaskState,
)

Build = Callable[[Cluster], object]


@dataclass
class Case:
    about: str
    nodes: list[str]
    build: Build
    code: Reason
    says: list[str]
    blockers: list[Blocker] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=lambda: ["default"])


def gang(n: int, request: str | Needs, **options) -> Build:
    return lambda c: c.gang("g", n, request, **options)


def busy_then(n: int, request: str, where: str, what: str) -> Build:
    def build(c: Cluster) -> None:
        c.running("busy", where, what)
        c.gang("g", n, request)

    return build


HOST = PodTerm((Expression("app", "In", ("x",)),), "kubernetes.io/hostname")
CASES = [
    Case(
        "a queue that is missing",
        ["n1"],
        gang(1, "cpu=1", queue="nope"),
        Reason.QUEUE_NOT_FOUND,
        ["Queue nope does not exist."],
        [Blocker(Reason.QUEUE_NOT_FOUND, detail="nope")],
        ["Create it: windlass queue create nope, or use one that exists: default."],
    ),
    Case(
        "a queue that is missing, before anybody made pods",
        ["n1"],
        lambda c: c.gang("g", 0, min=4, queue="nope"),
        Reason.QUEUE_NOT_FOUND,
        ["Queue nope does not exist."],
        [Blocker(Reason.QUEUE_NOT_FOUND, detail="nope")],
        ["Create it: windlass queue create nope, or use one that exists: default."],
    ),
    Case(
        "a queue whose parent is missing",
        ["n1"],
        gang(1, "cpu=1", queue="q"),
        Reason.QUEUE_NOT_FOUND,
        ["Queue top, above queue q, does not exist."],
        queues=["q parent=top"],
    ),
    Case(
        "a queue that is closed",
        ["n1"],
        gang(1, "cpu=1", queue="q"),
        Reason.QUEUE_CLOSED,
        ["Queue q is closed and takes no new work."],
        remedies=["Open the queue: windlass queue set q state=Open."],
        queues=["q closed"],
    ),
    Case(
        "a queue above that is closing",
        ["n1"],
        gang(1, "cpu=1", queue="q"),
        Reason.QUEUE_CLOSED,
        ["Queue top is closing and takes no new work."],
        queues=["q parent=top", "top closing"],
    ),
    Case(
        "a queue that is no leaf",
        ["n1"],
        gang(1, "cpu=1", queue="top"),
        Reason.QUEUE_NOT_LEAF,
        ["Queue top has queues below it; work goes into one of those."],
        remedies=["Use a queue below it: a, b."],
        queues=["top", "a parent=top", "b parent=top"],
    ),
    Case(
        "more than the queue may ever hold",
        ["n1 gpu=8"],
        gang(3, "gpu=2", queue="q"),
        Reason.EXCEEDS_QUEUE_LIMIT,
        ["It needs 6 nvidia.com/gpu at once, and queue q may never hold more than 4."],
        [Blocker(Reason.EXCEEDS_QUEUE_LIMIT, 0, GPU, "6", "4", "limit 4 of queue q")],
        queues=["q limit.gpu=4"],
    ),
    Case(
        "the queue's limit is used up",
        ["n1 gpu=8"],
        lambda c: c.running("busy", "n1", "gpu=3", queue="q").gang("g", 2, "gpu=1", queue="q"),
        Reason.WAITING_FOR_QUOTA,
        ["It needs 2 nvidia.com/gpu, and queue q has 1 left (limit 4 of queue q)."],
        [Blocker(Reason.WAITING_FOR_QUOTA, 0, GPU, "2", "1", "limit 4 of queue q")],
        [
            "Wait for work of queue q to end, or raise the limit: "
            "windlass queue set q capability.nvidia.com/gpu=5"
        ],
        queues=["q limit.gpu=4"],
    ),
    Case(
        "one pod larger than any node",
        ["n1 gpu=8", "n2 gpu=4"],
        gang(1, "gpu=9"),
        Reason.EXCEEDS_EVERY_NODE,
        ["One pod needs 9 nvidia.com/gpu; the most that one matching node has is 8 nvidia.com/gpu."],
        [
            Blocker(Reason.EXCEEDS_EVERY_NODE, 2, GPU, "9", "8", "the most that one node has"),
            Blocker(Reason.INSUFFICIENT_RESOURCES, 2, GPU, "9", "8"),
        ],
        ["Ask for at most 8 nvidia.com/gpu per pod.", "Add a node that is large enough."],
    ),
    Case(
        "each amount somewhere, nowhere together",
        ["n1 gpu=8 cpu=4", "n2 gpu=1 cpu=64"],
        gang(1, "gpu=4 cpu=32"),
        Reason.EXCEEDS_EVERY_NODE,
        ["no node has all of it together"],
        [
            Blocker(Reason.EXCEEDS_EVERY_NODE, 2, detail="no node has all of it together"),
            Blocker(Reason.INSUFFICIENT_RESOURCES, 1, "cpu", "32", "4"),
            Blocker(Reason.INSUFFICIENT_RESOURCES, 1, GPU, "4", "1"),
        ],
    ),
    Case(
        "a gang larger than the cluster",
        ["n1 gpu=8", "n2 gpu=8"],
        gang(20, "gpu=1"),
        Reason.EXCEEDS_CLUSTER,
        ["20 pods of 1 nvidia.com/gpu must run together; the 2 matching nodes would hold 16 even if empty."],
        [
            Blocker(
                Reason.EXCEEDS_CLUSTER,
                2,
                "tasks",
                "20",
                "16",
                "what the matching nodes would hold if they were empty",
            )
        ],
        ["Ask for at most 16 pods at once, or add nodes."],
    ),
    Case(
        "no node matches, each for its own reason",
        ["n1 zone=b", "n2 cordoned", "n3 zone=a taint=dedicated=ml:NoSchedule", "n4 zone=a notready"],
        gang(1, needs("cpu=1", node_selector={"zone": "a"})),
        Reason.NODE_NOT_READY,
        [
            "None of 4 nodes may take it: 2 do not match the node selector (zone=a), 1 has a taint that "
            "is not tolerated (dedicated=ml:NoSchedule), 1 is cordoned, 1 is not ready."
        ],
        [
            Blocker(Reason.NODE_NOT_READY, 4, "tasks", "1", "0", "what the nodes hold now"),
            Blocker(Reason.NODE_SELECTOR_MISMATCH, 2, detail="zone=a"),
            Blocker(Reason.NODE_NOT_READY, 1),
            Blocker(Reason.NODE_UNSCHEDULABLE, 1),
            Blocker(Reason.TAINT_NOT_TOLERATED, 1, detail="dedicated=ml:NoSchedule"),
        ],
        ["See why nodes are not ready: windlass node ls, kubectl describe node NODE."],
    ),
    Case(
        "no node would match, were it ready",
        ["n1 zone=b", "n2 notready", "n3 zone=b notready"],
        gang(1, needs("cpu=1", node_selector={"zone": "a"})),
        Reason.NO_MATCHING_NODE,
        ["None of 3 nodes may take it: 3 do not match the node selector (zone=a), 2 are not ready."],
    ),
    Case(
        "all nodes are cordoned, as Kubernetes says it",
        [f"n{n} gpu=8 cordoned taint=node.kubernetes.io/unschedulable=:NoSchedule" for n in (1, 2)],
        gang(2, "gpu=8"),
        Reason.NODE_UNSCHEDULABLE,
        ["None of 2 nodes may take it: 2 are cordoned."],
        [
            Blocker(Reason.NODE_UNSCHEDULABLE, 2, "tasks", "2", "0", "what the nodes hold now"),
            Blocker(Reason.NODE_UNSCHEDULABLE, 2),
        ],
        ["Uncordon nodes: windlass node ls, windlass node uncordon NODE."],
    ),
    Case(
        "a gang for which one node too many is away for a while",
        [
            "n1 gpu=8",
            "n2 gpu=8 notready taint=node.kubernetes.io/unreachable=:NoSchedule",
            "n3 gpu=8 notready cordoned",
        ],
        gang(2, "gpu=8"),
        Reason.NODE_NOT_READY,
        ["It needs 2 pods of 8 nvidia.com/gpu; 1 would fit now. Of 3 nodes, 2 are not ready, 1 is cordoned."],
    ),
    Case(
        "a taint of Kubernetes that nothing else says",
        ["n1 gpu=8 taint=node.kubernetes.io/unschedulable=:NoSchedule", "n2 gpu=4 cordoned"],
        gang(1, "gpu=8"),
        Reason.NO_MATCHING_NODE,
        ["1 has a taint that is not tolerated (node.kubernetes.io/unschedulable:NoSchedule)"],
    ),
    Case(
        "required affinity that no node satisfies",
        ["n1 zone=a"],
        gang(
            1,
            needs(
                "cpu=1",
                node_terms=(
                    NodeTerm(labels=(Expression("zone", "In", ("b", "c")), Expression("ssd", "Exists"))),
                    NodeTerm(labels=(Expression("cores", "Gt", ("4",)),)),
                ),
            ),
        ),
        Reason.NO_MATCHING_NODE,
        ["1 does not match the required node affinity (zone in (b, c) and ssd or cores > 4)"],
    ),
    Case("no nodes at all", [], gang(1, "cpu=1"), Reason.NO_MATCHING_NODE, ["The cluster has no nodes."]),
    Case(
        "room that is in use",
        ["n1 gpu=4", "n2 gpu=4 cordoned"],
        busy_then(2, "gpu=2", "n1", "gpu=2"),
        Reason.INSUFFICIENT_RESOURCES,
        ["It needs 2 pods of 2 nvidia.com/gpu; 1 would fit now. Of 2 nodes, 1 is cordoned."],
        [
            Blocker(Reason.INSUFFICIENT_RESOURCES, 2, "tasks", "2", "1", "what the nodes hold now"),
            Blocker(
                Reason.INSUFFICIENT_RESOURCES,
                1,
                GPU,
                "4",
                "2",
                "what the matching nodes have available in all",
            ),
            Blocker(Reason.NODE_UNSCHEDULABLE, 1),
        ],
        ["With minAvailable (minMember) 1 it could start now."],
    ),
    Case(
        "devices free, but scattered",
        ["n1 gpu=4", "n2 gpu=4"],
        lambda c: c.running("a", "n1", "gpu=2").running("b", "n2", "gpu=2").gang("g", 1, "gpu=4"),
        Reason.DEVICES_FRAGMENTED,
        ["2 lack nvidia.com/gpu (4 needed, at most 2 free)"],
    ),
    Case(
        "as many pods as the node may hold",
        ["n1 pods=1"],
        busy_then(1, "cpu=1", "n1", "cpu=1"),
        Reason.INSUFFICIENT_RESOURCES,
        ["1 is at the limit of pods"],
        [
            Blocker(Reason.INSUFFICIENT_RESOURCES, 1, "tasks", "1", "0", "what the nodes hold now"),
            Blocker(Reason.TOO_MANY_PODS, 1, "pods", "1", "0"),
        ],
    ),
    Case(
        "a host port in use",
        ["n1"],
        lambda c: [
            c.gang("busy", 1, needs("cpu=1", host_ports=(HostPort("TCP", 80),))),
            c.cycle(),
            c.gang("g", 1, needs("cpu=2", host_ports=(HostPort("TCP", 80),))),
        ],
        Reason.HOST_PORT_TAKEN,
        ["1 has the host port in use (80/TCP)"],
    ),
    Case(
        "anti-affinity to what runs",
        ["n1"],
        lambda c: [
            c.gang("busy", 1, needs("cpu=1", labels={"app": "x"})),
            c.cycle(),
            c.gang("g", 1, needs("cpu=2", anti_affinity=(HOST,))),
        ],
        Reason.POD_ANTI_AFFINITY_CONFLICT,
        ["1 is excluded by pod anti-affinity (anti-affinity to app=x per kubernetes.io/hostname)"],
    ),
    Case(
        "affinity to what does not run",
        ["n1"],
        gang(1, needs("cpu=2", affinity=(HOST,))),
        Reason.POD_AFFINITY_MISMATCH,
        ["1 is outside the pod affinity's domain (affinity to app=x per kubernetes.io/hostname)"],
    ),
    Case(
        "members that do not exist yet",
        ["n1"],
        lambda c: c.gang("g", 2, "cpu=1", min=4),
        Reason.WAITING_FOR_MEMBERS,
        ["It has 2 of the 4 pods that it needs."],
        [Blocker(Reason.WAITING_FOR_MEMBERS, 0, "tasks", "4", "2")],
        ["Create the missing pods, or lower minAvailable (minMember) to 2."],
    ),
    Case(
        "no members at all",
        ["n1"],
        lambda c: c.gang("g", 0, min=4),
        Reason.WAITING_FOR_MEMBERS,
        ["It has 0 of the 4 pods that it needs."],
        remedies=["Create the 4 pods: the creator of the group has not done so."],
    ),
    Case(
        "a role that lacks members",
        ["n1"],
        lambda c: c.gang("g", 2, "cpu=1", min=2, roles={"m": 1, "w": 1}, role="w"),
        Reason.WAITING_FOR_MEMBERS,
        ["It has 0 of the 1 pods of role m that it needs."],
        [Blocker(Reason.WAITING_FOR_MEMBERS, 0, "m", "1", "0")],
    ),
    Case(
        "members behind a scheduling gate",
        ["n1"],
        lambda c: c.gang("g", 1, "cpu=1", min=2).add_tasks("g", 1, "cpu=1", gated=True),
        Reason.SCHEDULING_GATED,
        ["It has 1 of the 2 pods that it needs; 1 more is held back by a scheduling gate."],
        remedies=["Remove the scheduling gates (spec.schedulingGates) from the pods."],
    ),
    Case(
        "only gated extras",
        ["n1"],
        lambda c: [c.gang("g", 1, "cpu=1", min=1), c.cycle(), c.add_tasks("g", 2, "cpu=1", gated=True)],
        Reason.SCHEDULING_GATED,
        ["2 pods are held back by a scheduling gate."],
    ),
    Case(
        "on hold",
        ["n1"],
        gang(1, "cpu=1", held=True),
        Reason.ON_HOLD,
        ["It is on hold."],
        remedies=["Release it."],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
def test_case(case: Case) -> None:
    c = Cluster().queues(*case.queues).nodes(*case.nodes)
    case.build(c)
    c.cycle()
    explanation = c.explain("g")
    assert explanation.code == case.code, explanation.message
    for text in case.says:
        assert text in explanation.message
    if case.blockers:
        assert list(explanation.blockers) == case.blockers
    for remedy in case.remedies:
        assert remedy in explanation.remedies
    assert explanation.nodes_considered == len(case.nodes)
    told = c.status["ns/g"].explanation
    assert told is not None
    assert told.code == case.code
    # What is told fits on the wire and comes back.
    assert Explanation.from_dict(explanation.as_dict()).code == case.code


def test_all_obstacles_are_named_the_most_severe_first() -> None:
    c = Cluster().queues("q limit.gpu=2").nodes("n1 gpu=8 zone=a", "n2 zone=b")
    c.gang("g", 3, needs("gpu=9", node_selector={"zone": "a"}), queue="q", held=True)
    c.cycle()
    explanation = c.explain("g")
    codes = list(dict.fromkeys(b.code for b in explanation.blockers))
    assert codes == [
        Reason.EXCEEDS_EVERY_NODE,
        Reason.INSUFFICIENT_RESOURCES,
        Reason.NODE_SELECTOR_MISMATCH,
        Reason.EXCEEDS_QUEUE_LIMIT,
        Reason.ON_HOLD,
    ]
    assert explanation.code is Reason.EXCEEDS_EVERY_NODE
    assert explanation.message.count(".") >= 3


def test_a_node_whose_pods_hold_more_than_it_has_lacks_what_they_hold_too_much() -> None:
    """Six of its eight cards are gone, and seven are held: two are free once seven are given back, not once two are."""
    c = Cluster().queues("default").nodes("n1 gpu=8", "n2 gpu=4")
    c.running("a", "n1", "gpu=7").running("b", "n2", "gpu=4")
    c.nodes("n1 gpu=2")
    c.overcommitted = True
    c.gang("g", 1, "gpu=2")
    c.cycle()
    found = c.explain("g")
    assert found.nearest == NearMiss("n2", "2 nvidia.com/gpu")
    told = next(b for b in found.blockers if b.resource == "nvidia.com/gpu" and b.nodes == 2)
    assert (told.needed, told.available) == ("2", "0")
    assert "-" not in found.message
    c.nodes("n2 gpu=4 cordoned")
    c.cycle()
    assert c.explain("g").nearest == NearMiss("n1", "7 nvidia.com/gpu")


def test_the_nearest_miss_is_the_node_that_lacks_least() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=8 cpu=8", "n2 gpu=8", "n3 gpu=8 cordoned")
    c.running("a", "n1", "gpu=4 cpu=7").running("b", "n2", "gpu=5")
    c.gang("g", 1, "gpu=8 cpu=2")
    c.cycle()
    assert c.explain("g").nearest == NearMiss("n2", "5 nvidia.com/gpu")
    c.finish("b")
    c.gang("h", 1, "gpu=8 cpu=2", priority=1)
    c.cycle()  # takes n2
    assert c.placed("h") + c.placed("g") == 1


def test_holders_are_those_who_have_what_is_short_where_it_would_do() -> None:
    c = Cluster().queues("default", "other").nodes("n1 gpu=4 zone=a", "n2 gpu=4 zone=b")
    c.running("small", "n1", "gpu=1").running("large", "n1", "gpu=3", queue="other")
    c.running("elsewhere", "n2", "gpu=4").running("cpu", "n1", "cpu=1")
    c.gang("g", 1, needs("gpu=2", node_selector={"zone": "a"}))
    c.cycle()
    assert c.explain("g").holders == ("ns/large", "ns/small")


def test_holders_of_a_queue_limit_are_in_that_queue() -> None:
    c = Cluster().queues("top limit.gpu=4", "a parent=top", "b parent=top", "z").nodes("n1 gpu=8")
    c.running("x", "n1", "gpu=1", queue="a").running("y", "n1", "gpu=3", queue="b").running(
        "z", "n1", "gpu=1", queue="z"
    )
    c.gang("g", 1, "gpu=1", queue="a")
    c.cycle()
    assert c.explain("g").holders == ("ns/y", "ns/x")
    c.remove("y")
    c.running("w", "n1", "gpu=2", queue="b").running("v", "n1", "gpu=1", queue="b")
    c.cycle()
    assert c.explain("g").holders == ("ns/w", "ns/v", "ns/x")


def test_position_and_who_is_ahead() -> None:
    c = Cluster().queues("default", "other").nodes("n1 gpu=1")
    c.running("busy", "n1", "gpu=1")
    c.gang("a", 1, "gpu=1").gang("b", 1, "gpu=1").gang("urgent", 1, "gpu=1", priority=9)
    c.gang("held", 1, "gpu=1", held=True).gang("c", 1, "gpu=1").gang("away", 1, "gpu=1", queue="other")
    c.cycle()
    seen = {
        name: (c.explain(name).position, c.explain(name).ahead) for name in ("urgent", "a", "b", "c", "away")
    }
    assert seen["urgent"] == (1, ())
    assert seen["a"] == (2, ("ns/urgent",))
    assert seen["b"] == (3, ("ns/urgent", "ns/a"))
    assert seen["c"] == (4, ("ns/urgent", "ns/a", "ns/b")), "nobody waits for who is held until it is mended"
    assert c.explain("held").position == 0
    assert seen["away"] == (1, ())


def test_the_order_of_a_long_queue_is_not_made_anew_with_every_change() -> None:
    """It was, and with thousands of jobs the control plane did little else while it told them why they wait."""
    c = Cluster().queues("default").nodes("n1 gpu=1")
    c.running("busy", "n1", "gpu=1")
    for number in range(queue_position.MAX_EXACT + 10):
        c.gang(f"g{number}", 1, "gpu=1")
    c.cycle()
    last = f"g{queue_position.MAX_EXACT + 9}"
    assert c.explain(last).position == queue_position.MAX_EXACT + 10
    c.remove("busy")
    assert [bind.task for bind in c.cycle(0.01).binds] == ["ns/g0-0"]
    then = c.explain(last)
    assert (then.position, then.ahead[0]) == (queue_position.MAX_EXACT + 10, "ns/g1"), (
        "as it was; who started is not ahead"
    )
    c.gang("late", 1, "gpu=1")
    c.cycle(0.01)
    assert c.explain("late").position == queue_position.MAX_EXACT + 10, (
        "who is not in the order yet makes it anew"
    )
    assert c.explain(last).position == queue_position.MAX_EXACT + 9
    c.remove("g1")
    c.cycle(queue_position.MAX_KEEP_SECONDS)
    assert c.explain(last).position == queue_position.MAX_EXACT + 8, "and time does"


def test_what_can_never_run_has_no_position_and_takes_none() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=1")
    c.running("busy", "n1", "gpu=1")
    c.gang("huge", 1, "gpu=2", priority=9).gang("a", 1, "gpu=1").gang("wide", 5, "gpu=1").gang(
        "b", 1, "gpu=1"
    )
    c.cycle()
    seen = {name: (c.explain(name).position, c.explain(name).ahead) for name in ("huge", "a", "wide", "b")}
    assert seen == {"huge": (0, ()), "a": (1, ()), "wide": (0, ()), "b": (2, ("ns/a",))}
    c.nodes("n2 gpu=2")  # now the first can, and takes it
    assert [bind.task for bind in c.cycle().binds] == ["ns/huge-0"]


def test_a_gang_without_pods_is_judged_by_its_least_resources() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4 cpu=8", "n2 gpu=4 cpu=8")
    c.gang("g", 0, min=100_000)
    c.change_group("g", min_resources=dict(needs("gpu=100000 cpu=4").request))
    c.cycle()
    said = c.explain("g")
    assert said.code is Reason.EXCEEDS_CLUSTER
    assert "Together its pods need at least 100000 nvidia.com/gpu (all nodes have 8)." in said.message
    assert "It has 0 of the 100000 pods" in said.message
    assert "Ask for less at once (lower minAvailable (minMember)), or add nodes." in said.remedies
    c.nodes("n3 gpu=8 cpu=8").cycle()
    assert "(all nodes have 16)." in c.explain("g").message
    c.remove_node("n3")
    c.remove_node("n1")
    c.cycle()
    assert "(all nodes have 4)." in c.explain("g").message
    c.change_group("g", min_resources=dict(needs("gpu=4 cpu=4").request))
    c.cycle()
    assert c.explain("g").code is Reason.WAITING_FOR_MEMBERS


def mixed(c: Cluster, least: int, roles: dict[str, int]) -> None:
    c.gang("g", 0, min=least, roles=roles).add_tasks("g", 1, "gpu=1", role="m").add_tasks(
        "g", 4, "gpu=4", role="w"
    )
    c.cycle()


def test_a_gang_of_several_classes_that_all_nodes_together_never_hold_is_told_so() -> None:
    """Each pod fits an empty node, so no class alone says it: 1 + 4 × 4 of 16."""
    c = Cluster().queues("default").nodes("n1 gpu=8", "n2 gpu=8")
    mixed(c, 5, {})
    said = c.explain("g")
    assert (said.code, said.waiting_helps, said.position) == (Reason.EXCEEDS_CLUSTER, "no", 0)
    assert said.message.startswith("Together its pods need at least 17 nvidia.com/gpu (all nodes have 16).")
    assert Blocker(Reason.EXCEEDS_CLUSTER, 0, GPU, "17", "16") in said.blockers
    assert "Ask for less at once (lower minAvailable (minMember)), or add nodes." in said.remedies
    c.nodes("n3 gpu=1").cycle()
    assert c.code("g") == ""


@pytest.mark.parametrize(
    ("least", "roles", "needed"),
    [(4, {}, "13"), (3, {"w": 3}, "12"), (4, {"w": 3}, "13"), (4, {"m": 1, "w": 3}, "13")],
    ids=["the cheapest four", "three of a role", "and whoever is cheapest", "both roles"],
)
def test_the_least_that_a_gang_of_several_classes_needs_is_told(least, roles, needed) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=8", "n2 gpu=1")
    mixed(c, least, roles)
    assert f"need at least {needed} nvidia.com/gpu (all nodes have 9)." in c.explain("g").message


def test_what_a_gang_of_several_classes_holds_already_counts() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=8", "n2 gpu=1")
    mixed(c, 3, {})
    c.add_tasks("g", 1, "gpu=2", role="y").change_group("g", min_member=5)  # three of them hold 9 of 9
    c.cycle()
    assert "need at least 15 nvidia.com/gpu (all nodes have 9)." in c.explain("g").message


def test_of_several_classes_each_is_judged_and_named_by_its_role() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=1 cpu=4")
    c.gang("g", 0, min=2).add_tasks("g", 1, "gpu=2", role="w").add_tasks("g", 1, "cpu=8", role="m")
    c.cycle()
    message = c.explain("g").message
    assert "Role m: one pod needs 8 cpu; the most that one matching node has is 4 cpu." in message
    assert "Role w: one pod needs 2 nvidia.com/gpu; the most that one matching node has is 1" in message


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ("amd.com/gpus", "No node has any amd.com/gpus: did you mean amd.com/gpu?"),
        ("rdma/hca", "No node has any rdma/hca: correct the name, or add a node that has it."),
    ],
)
def test_a_resource_that_no_node_knows_is_named(asked: str, remedy: str) -> None:
    c = Cluster().queues("default").nodes(Node("n1", {"cpu": 8000, "pods": 10, "amd.com/gpu": 8000}, {}))
    c.gang("g", 1, Needs(request=((asked, 1000),)))
    c.cycle()
    assert c.explain("g").remedies == (remedy,)


def test_who_must_be_spread_is_told_what_keeps_the_next_away() -> None:
    spread = SpreadTerm("zone", 1, True, (Expression("app", "In", ("a",)),), min_domains=3)
    c = Cluster().queues("default").nodes("n1 gpu=4 zone=a", "n2 gpu=4 zone=b")
    c.gang("g", 3, needs("gpu=1", labels={"app": "a"}, node_selector={"zone": "a"}, spread=(spread,)))
    c.cycle()
    said = c.explain("g")
    assert said.message.endswith("would hold 1 even if empty, because of spread constraint per zone.")
    assert not c.where("g")


def test_classes_that_fit_alone_but_not_together() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2 cpu=4", "n2 cpu=2")
    c.gang("g", 0, min=2).add_tasks("g", 1, "gpu=1 cpu=3", role="w").add_tasks("g", 1, "cpu=3", role="m")
    c.cycle()
    explanation = c.explain("g")
    assert explanation.code is Reason.EXCEEDS_CLUSTER
    assert "Only 1 of the 2 pods that must start together fit on the nodes even if" in explanation.message
    assert (
        Blocker(Reason.EXCEEDS_CLUSTER, 0, "tasks", "2", "1", "placed together on empty nodes")
        in explanation.blockers
    )
    c.cycle()  # asking changes nothing
    assert c.placed("g") == 0


def test_of_a_part_that_comes_as_a_whole_nothing_counts_that_does_not_start() -> None:
    """Its first pod would fit, its second would not then: the part starts none."""
    c = Cluster().queues("default").nodes("n1 gpu=2 cpu=4")
    c.parted("g", "a:2=2", "gpu=1 cpu=3", needed=0)
    c.change_task("g-a-1", needs=needs("cpu=3"))
    c.cycle()
    explanation = c.explain("g")
    assert (
        Blocker(Reason.INSUFFICIENT_RESOURCES, 0, "tasks", "2", "0", "placed together")
        in explanation.blockers
    )
    assert "Only 0 of the 2 pods" in explanation.message


def test_a_part_that_could_be_added_is_judged_by_its_own_pods() -> None:
    """No part is needed; the one that could come has two pods, of which an empty cluster holds one."""
    c = Cluster().queues("default").nodes("n1 gpu=1")
    c.parted("g", "a:2=2", needed=0)
    c.cycle()
    explanation = c.explain("g")
    assert explanation.code is Reason.EXCEEDS_CLUSTER
    (blocker,) = (b for b in explanation.blockers if b.code is Reason.EXCEEDS_CLUSTER)
    assert (blocker.needed, blocker.available) == ("2", "1")


def test_a_gang_whose_members_partly_run_counts_them_when_it_asks_what_an_empty_cluster_holds() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=4").gang("g", 6, "gpu=1")
    c.cycle()
    c.change_group("g", min_member=9)
    c.add_tasks("g", 3, "gpu=1")
    c.cycle()
    assert c.code("g") == "ExceedsCluster"
    assert "9 pods of 1 nvidia.com/gpu must run together" in c.explain("g").message


# ---------------------------------------------------------------------- staying true


def test_the_reason_is_told_anew_when_the_nodes_change_so_that_it_becomes_another() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=4").running("busy", "n1", "gpu=4")
    c.gang("g", 8, "gpu=1").gang("g2", 8, "gpu=1")
    c.cycle()
    assert c.status["ns/g"].explanation.code is Reason.INSUFFICIENT_RESOURCES
    c.remove_node("n2")
    groups = {status.group for status in c.cycle().groups}
    assert {"ns/g", "ns/g2"} <= groups
    assert {c.status[f"ns/{g}"].explanation.code for g in ("g", "g2")} == {Reason.EXCEEDS_CLUSTER}
    c.nodes("n2 gpu=4")
    c.cycle()
    assert c.status["ns/g2"].explanation.code is Reason.INSUFFICIENT_RESOURCES


def test_the_reason_is_told_anew_when_the_limit_of_a_queue_above_becomes_too_low() -> None:
    c = Cluster().queues("top", "a parent=top", "b").nodes("n1 gpu=4").running("busy", "n1", "gpu=4")
    c.gang("g", 1, "gpu=2", queue="a").gang("h", 1, "gpu=2", queue="a", priority=-1)
    c.gang("beside", 1, "gpu=2", queue="b")
    c.cycle()
    assert c.status["ns/g"].explanation.code is Reason.INSUFFICIENT_RESOURCES
    assert c.explain("h").position == 2
    c.queues("top limit.gpu=1")
    assert {status.group for status in c.cycle().groups} == {"ns/g", "ns/h"}
    assert {c.status[f"ns/{g}"].explanation.code for g in "gh"} == {Reason.EXCEEDS_QUEUE_LIMIT}
    assert (c.explain("g").position, c.explain("h").position) == (0, 0)
    c.queues("top limit.gpu=2")
    c.cycle()
    assert c.status["ns/g"].explanation.code is Reason.INSUFFICIENT_RESOURCES
    assert c.explain("h").position == 2


def test_a_reason_that_comes_beside_the_first_is_told_too() -> None:
    """More nodes would have helped; now they would not."""
    c = Cluster().queues("default").nodes("n1 gpu=4").gang("g", 4, "gpu=4")
    c.cycle()
    assert {b.code for b in c.status["ns/g"].explanation.blockers} == {Reason.EXCEEDS_CLUSTER}
    c.queues("default limit.gpu=4")
    assert {status.group for status in c.cycle().groups} == {"ns/g"}
    told = c.status["ns/g"].explanation
    assert told.code is Reason.EXCEEDS_CLUSTER
    assert {b.code for b in told.blockers} == {Reason.EXCEEDS_CLUSTER, Reason.EXCEEDS_QUEUE_LIMIT}
    assert not c.cycle().groups


def test_a_gang_without_all_members_is_told_anew_too() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").gang("g", 1, "gpu=8", min=2)
    c.cycle()
    assert c.status["ns/g"].explanation.code is Reason.EXCEEDS_EVERY_NODE
    c.nodes("n2 gpu=8")
    c.cycle()
    assert c.status["ns/g"].explanation.code is Reason.WAITING_FOR_MEMBERS


def test_many_reviews_are_spread_over_cycles() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=8")
    for i in range(100):  # each its own bucket: another amount of memory
        c.gang(f"g{i}", 1, f"gpu=8 mem={i + 1}")
    c.running("busy", "n2", "gpu=1")
    c.settle(quiet=1)
    c.remove_node("n2")
    decision = c.cycle()
    assert decision.wake_at == c.now
    cycles = 1
    while decision.wake_at is not None:
        decision = c.cycle()
        cycles += 1
    assert cycles > 1
    codes = {
        status.explanation.code for key, status in c.status.items() if key != "ns/busy" and status.explanation
    }
    assert codes == {Reason.EXCEEDS_EVERY_NODE}


def test_what_runs_on_an_unhealthy_device_is_explained_by_the_healthy_ones() -> None:
    devices = [Device(i, GPU, healthy=i != 0) for i in range(2)]
    c = Cluster().queues("default").nodes(node("n1 gpu=2", devices))
    c.gang("g", 1, "gpu=2")
    c.cycle()
    assert c.code("g") == "ExceedsEveryNode"
    assert "at most 1" in " ".join(c.explain("g").remedies)


def test_a_finished_group_is_not_explained() -> None:
    c = Cluster().queues("default").nodes("n1").gang("g", 2)
    c.cycle()
    c.finish("g", TaskState.FAILED)
    c.cycle()
    assert c.code("g") == ""


def test_who_holds_the_last_pod_of_a_node_is_named() -> None:
    c = Cluster().queues("default").nodes("n1 pods=1").running("x", "n1", "cpu=1").gang("g", 1, "cpu=1")
    c.cycle()
    assert c.explain("g").holders == ("ns/x",)


@pytest.mark.parametrize(("nodes", "told"), [(5, "1 on n4)"), (6, "1 on n4 and 1 more node)"), (8, "3 more")])
def test_room_on_many_nodes_is_not_listed_in_full(nodes: int, told: str) -> None:
    sentence = messages.nominations([(f"n{at}", 1) for at in range(nodes)], present=True)
    assert f"Capacity is nominated for {nodes} pods (1 on n0, " in sentence
    assert told in sentence
    assert "n5" not in sentence


def test_each_role_is_judged_by_what_is_free_now() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=5").running("x", "n1", "gpu=5")
    c.gang("g", 1, "gpu=2", min=2, roles={"a": 1, "b": 1}, role="a").add_tasks("g", 1, "gpu=3", role="b")
    c.cycle()
    assert c.explain("g").message.startswith("Role a: ")
    c.remove("x")
    c.running("y", "n1", "gpu=3")
    c.cycle()
    assert c.explain("g").message.startswith("Role b: ")


def test_what_helps_a_group_of_kai_is_said_of_kais_objects() -> None:
    c = Cluster().nodes("n1 gpu=8")
    c.engine.apply([QueueUpserted(Queue("kai/team", capability={GPU: 2000}, dialect=Dialect.KAI))])
    c.gang("much", 4, "gpu=1", queue="kai/team").gang("nowhere", 1, "gpu=1", queue="kai/none")
    for name in ("much", "nowhere"):
        c.change_group(name, dialect=Dialect.KAI)
    c.cycle()
    limit = "raise the limit: kubectl edit queues.scheduling.run.ai team   (spec.resources.gpu.limit: 4)"
    assert any(limit in remedy for remedy in c.explain("much").remedies)
    made = "Create it: a Queue none of scheduling.run.ai/v2, or use one that exists: kai/team."
    assert made in c.explain("nowhere").remedies

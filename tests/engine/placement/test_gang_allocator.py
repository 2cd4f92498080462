"""The action ``allocate``, in scenarios on small clusters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from cluster_dsl import GPU, Cluster, needs, node

from windlass.api.reasons import Reason
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.plugins.defaults import default_plugins
from windlass.spi.nodes import NodeView
from windlass.spi.objects import Expression, HostPort, PodTerm, SpreadTerm, TaskState
from windlass.spi.plugins import QueueView, Rejection, StepView


@dataclass
class Scenario:
    """``gangs``: name, tasks, request, options. ``placed``: name → node → tasks."""

    about: str
    nodes: list[str]
    gangs: list[tuple[str, int, str, dict]]
    placed: dict[str, dict[str, int]]
    queues: list[str] = field(default_factory=lambda: ["default"])


SCENARIOS = [
    Scenario(
        "a gang that fits starts whole",
        ["n1 gpu=2", "n2 gpu=2"],
        [("a", 4, "gpu=1", {})],
        {"a": {"n1": 2, "n2": 2}},
    ),
    Scenario(
        "a gang that does not fit holds nothing",
        ["n1 gpu=2", "n2 gpu=1"],
        [("a", 4, "gpu=1", {})],
        {"a": {}},
    ),
    Scenario(
        "a gang that does not fit does not block the one behind it",
        ["n1 gpu=2"],
        [("a", 3, "gpu=1", {}), ("b", 2, "gpu=1", {})],
        {"a": {}, "b": {"n1": 2}},
    ),
    Scenario(
        "an elastic gang starts with its minimum and grows as far as there is room",
        ["n1 gpu=3"],
        [("a", 5, "gpu=1", {"min": 2})],
        {"a": {"n1": 3}},
    ),
    Scenario(
        "a gang below its minimum goes before one that only wants to grow",
        ["n1 gpu=4"],
        [("old", 4, "gpu=1", {"min": 1}), ("new", 3, "gpu=1", {})],
        {"old": {"n1": 1}, "new": {"n1": 3}},
    ),
    Scenario(
        "elastic gangs of equal rank grow in the order of their age",
        ["n1 gpu=4"],
        [("a", 3, "gpu=1", {"min": 1}), ("b", 3, "gpu=1", {"min": 1})],
        {"a": {"n1": 3}, "b": {"n1": 1}},
    ),
    Scenario(
        "higher priority goes first",
        ["n1 gpu=1"],
        [("a", 1, "gpu=1", {}), ("b", 1, "gpu=1", {"priority": 1})],
        {"a": {}, "b": {"n1": 1}},
    ),
    Scenario(
        "among equals the older goes first",
        ["n1 gpu=1"],
        [("b", 1, "gpu=1", {}), ("a", 1, "gpu=1", {})],
        {"b": {"n1": 1}, "a": {}},
    ),
    Scenario(
        "the fuller node is filled first",
        ["n1 gpu=8", "n2 gpu=8"],
        [("a", 1, "gpu=2", {}), ("b", 1, "gpu=1", {}), ("c", 5, "gpu=1", {})],
        {"a": {"n1": 1}, "b": {"n1": 1}, "c": {"n1": 5}},
    ),
    Scenario(
        "work without devices keeps off nodes with idle ones",
        ["n1 gpu=8", "n2"],
        [("a", 3, "cpu=1", {})],
        {"a": {"n2": 3}},
    ),
    Scenario(
        "pods that ask for nothing are spread",
        ["n1", "n2", "n3"],
        [("a", 6, "", {})],
        {"a": {"n1": 2, "n2": 2, "n3": 2}},
    ),
    Scenario(
        "the limit on pods counts pods that ask for nothing",
        ["n1 pods=2", "n2 pods=1"],
        [("a", 5, "", {"min": 3})],
        {"a": {"n1": 2, "n2": 1}},
    ),
    Scenario(
        "a queue's limit holds for the gang as a whole",
        ["n1 gpu=8"],
        [("a", 3, "gpu=1", {"queue": "q"}), ("b", 2, "gpu=1", {"queue": "q"})],
        {"a": {"n1": 3}, "b": {}},
        ["q limit.gpu=4"],
    ),
    Scenario(
        "a limit further up holds too",
        ["n1 gpu=8"],
        [
            ("a", 3, "gpu=1", {"queue": "x"}),
            ("b", 2, "gpu=1", {"queue": "y"}),
            ("c", 1, "gpu=1", {"queue": "y"}),
        ],
        {"a": {"n1": 3}, "b": {}, "c": {"n1": 1}},
        ["top limit.gpu=4", "x parent=top", "y parent=top"],
    ),
    Scenario(
        "a limit on something that is not asked for does not matter",
        ["n1 gpu=8"],
        [("a", 2, "gpu=1", {"queue": "q"})],
        {"a": {"n1": 2}},
        ["q limit.npu=0"],
    ),
    Scenario(
        "an elastic gang grows up to its queue's limit",
        ["n1 gpu=8"],
        [("a", 6, "gpu=1", {"min": 2, "queue": "q"})],
        {"a": {"n1": 5}},
        ["q limit.gpu=5"],
    ),
    Scenario(
        "the queue of higher priority is served first",
        ["n1 gpu=2"],
        [("a", 2, "gpu=1", {"queue": "low"}), ("b", 2, "gpu=1", {"queue": "high"})],
        {"a": {}, "b": {"n1": 2}},
        ["low", "high priority=5"],
    ),
    Scenario(
        "queues of equal weight take turns",
        ["n1 gpu=4"],
        [(f"{q}{i}", 1, "gpu=1", {"queue": q}) for q in "ab" for i in range(4)],
        {"a0": {"n1": 1}, "a1": {"n1": 1}, "b0": {"n1": 1}, "b1": {"n1": 1}, "a2": {}, "b2": {}},
        ["a", "b"],
    ),
    Scenario(
        "weights decide how the turns are shared",
        ["n1 gpu=4 cpu=400 mem=900"],
        [(f"{q}{i}", 1, "gpu=1", {"queue": q}) for q in "ab" for i in range(4)],
        {"a0": {"n1": 1}, "a1": {"n1": 1}, "a2": {"n1": 1}, "a3": {}, "b0": {"n1": 1}, "b1": {}},
        ["a weight=3", "b"],
    ),
    Scenario(
        "what is deserved decides before weight",
        ["n1 gpu=4"],
        [(f"{q}{i}", 1, "gpu=1", {"queue": q}) for q in "ab" for i in range(4)],
        {"a0": {"n1": 1}, "a1": {}, "b0": {"n1": 1}, "b1": {"n1": 1}, "b2": {"n1": 1}, "b3": {}},
        ["a deserved.gpu=1", "b deserved.gpu=3"],
    ),
    Scenario(
        "shares are compared where the paths part",
        ["n1 gpu=4"],
        [(name, 2, "gpu=1", {"queue": name[0], "min": 1}) for name in ("a1", "b1", "c1")],
        {"a1": {"n1": 1}, "b1": {"n1": 1}, "c1": {"n1": 2}},
        ["top", "a parent=top", "b parent=top", "c"],
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.about)
def test_scenario(scenario: Scenario) -> None:
    c = Cluster().queues(*scenario.queues).nodes(*scenario.nodes)
    for name, n, request, options in scenario.gangs:
        c.gang(name, n, request, **options)
    c.settle()
    assert {name: c.where(name) for name in scenario.placed} == scenario.placed


# ---------------------------------------------------------------------- roles


def with_roles(c: Cluster, minimum: int, minima: dict[str, int], have: dict[str, tuple[int, str]]) -> None:
    c.gang("g", 0, min=minimum, roles=minima)
    for role, (n, request) in have.items():
        c.add_tasks("g", n, request, role=role)


def count(c: Cluster, role: str) -> int:
    return sum(1 for e in c.engine.state.groups["ns/g"] if e.row >= 0 and e.task.role == role)


def test_roles_get_their_minima_before_anything_else() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4")
    with_roles(c, 3, {"m": 1, "w": 2}, {"m": (3, "gpu=1"), "w": (3, "gpu=1")})
    c.cycle()
    assert (count(c, "m"), count(c, "w")) == (2, 2)  # 1 + 2, then one more in task order


def test_a_gang_waits_whole_while_one_role_does_not_fit() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=8 cpu=2")
    with_roles(c, 3, {"m": 1, "w": 2}, {"m": (1, "cpu=4"), "w": (2, "gpu=1")})
    c.cycle()
    assert c.placed("g") == 0
    c.nodes("n2 cpu=4")
    c.cycle()
    assert c.where("g") == {"n1": 2, "n2": 1}


def test_a_role_beyond_its_minimum_fills_up_for_another() -> None:
    """minMember 4 of roles 1 + 2: the fourth may be of either role; here only workers fit."""
    c = Cluster().queues("default").nodes("n1 gpu=8 cpu=4")
    with_roles(c, 4, {"m": 1, "w": 2}, {"m": (3, "cpu=3"), "w": (4, "gpu=1")})
    c.cycle()
    assert (count(c, "m"), count(c, "w")) == (1, 4)


def test_when_task_order_does_not_fit_the_scarcest_class_goes_first() -> None:
    """Task order places a small task on the only node that could take the big one."""
    c = Cluster().queues("default").nodes("big gpu=2 cpu=8", "small cpu=8")
    c.gang("g", 0, min=2)
    c.add_tasks("g", 1, needs("cpu=6", node_selector={}), role="a")
    c.add_tasks("g", 1, "gpu=2 cpu=6", role="b")
    c.running("x", "small", "cpu=1")  # packing would prefer the fuller node; without devices it is anyway
    c.cycle()
    assert c.placed("g") == 2


def test_what_depends_on_other_pods_of_the_gang_is_placed_after_them() -> None:
    near = PodTerm((Expression("app", "In", ("x",)),), "zone")
    c = Cluster().queues("default").nodes("n1 zone=a", "n2 zone=b")
    c.gang("g", 0, min=3).add_tasks("g", 2, needs("cpu=1", affinity=(near,)), role="a")
    c.add_tasks("g", 1, needs("cpu=1", labels={"app": "x"}), role="b")
    c.cycle()
    assert c.where("g") == {"n1": 3}


def test_tasks_of_a_class_that_fails_are_passed_over() -> None:
    c = Cluster().queues("q limit.gpu=2").nodes("n1 gpu=8")
    c.gang("g", 0, min=2, queue="q")
    c.add_tasks("g", 1, "gpu=4", role="a")
    c.add_tasks("g", 2, "gpu=1", role="b")
    c.cycle()
    assert sorted(e.key for e in c.engine.state.groups["ns/g"] if e.row >= 0) == ["ns/g-b-0", "ns/g-b-1"]
    assert c.code("g") == "ExceedsQueueLimit"


def test_of_a_refused_run_as_many_as_admitted_are_taken() -> None:
    c = Cluster().queues("q limit.gpu=2").nodes("n1 gpu=8 cpu=64")
    c.gang("g", 0, min=3, queue="q")
    c.add_tasks("g", 4, "gpu=1", role="a")
    c.add_tasks("g", 1, "cpu=1", role="b")
    c.cycle()
    assert c.placed("g") == 3


# ---------------------------------------------------------------------- relations between pods


def test_a_gang_with_anti_affinity_takes_a_node_each() -> None:
    term = PodTerm((Expression("app", "In", ("x",)),), "kubernetes.io/hostname")
    wants = needs("gpu=1", anti_affinity=(term,), labels={"app": "x"})
    c = Cluster().queues("default").nodes("n1 gpu=8", "n2 gpu=8")
    c.gang("g", 3, wants)
    c.cycle()
    assert c.placed("g") == 0
    c.nodes("n3 gpu=1")
    c.cycle()
    assert c.where("g") == {"n1": 1, "n2": 1, "n3": 1}


def test_a_gang_with_affinity_to_itself_stays_in_one_zone() -> None:
    term = PodTerm((Expression("app", "In", ("x",)),), "zone")
    wants = needs("gpu=1", affinity=(term,), labels={"app": "x"})
    c = Cluster().queues("default").nodes("n1 gpu=2 zone=a", "n2 gpu=2 zone=b", "n3 gpu=1 zone=a")
    c.gang("g", 3, wants)
    c.cycle()
    assert c.where("g") == {"n1": 2, "n3": 1}


def test_a_host_port_is_given_once_per_node() -> None:
    c = Cluster().queues("default").nodes("n1", "n2")
    c.gang("g", 3, needs("cpu=1", host_ports=(HostPort("TCP", 80),)), min=1)
    c.settle()
    assert c.where("g") == {"n1": 1, "n2": 1}
    c.finish("g")
    c.gang("h", 1, needs("cpu=1", host_ports=(HostPort("TCP", 80),)))
    c.cycle()
    assert c.placed("h") == 1


# ---------------------------------------------------------------------- waking


WAKES = {
    "a task ends": lambda c: c.finish("busy"),
    "a task is removed": lambda c: c.remove("busy"),
    "a node is added": lambda c: c.nodes("n2 gpu=4"),
    "a node grows": lambda c: c.nodes("n1 gpu=8"),
    "a node is uncordoned": lambda c: c.nodes("spare gpu=4"),
    "the gang gets smaller": lambda c: c.change_group("g", min_member=2),
}


@pytest.mark.parametrize("event", WAKES)
def test_what_helps_wakes(event: str) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "spare gpu=4 cordoned")
    c.running("busy", "n1", "gpu=2").gang("g", 4, "gpu=1")
    c.settle()
    assert c.placed("g") == 0
    WAKES[event](c)
    c.settle()
    assert c.placed("g") == (4 if "smaller" not in event else 2)


QUEUE_WAKES = {
    "its limit is raised": lambda c: c.queues("q parent=top limit.gpu=4"),
    "work of the queue ends": lambda c: c.finish("busy"),
    "the limit is lifted": lambda c: c.queues("q parent=top"),
}


@pytest.mark.parametrize("event", QUEUE_WAKES)
def test_what_helps_a_group_that_waits_for_quota_wakes_it(event: str) -> None:
    c = Cluster().queues("top", "q parent=top limit.gpu=3").nodes("n1 gpu=8")
    c.running("busy", "n1", "gpu=2", queue="q").gang("g", 2, "gpu=1", queue="q")
    c.settle()
    assert (c.placed("g"), c.code("g")) == (0, "WaitingForQuota")
    QUEUE_WAKES[event](c)
    c.settle()
    assert c.placed("g") == 2


def test_work_that_ends_in_a_sibling_helps_when_the_parent_is_full() -> None:
    c = Cluster().queues("top limit.gpu=2", "a parent=top", "b parent=top").nodes("n1 gpu=8")
    c.running("busy", "n1", "gpu=2", queue="a").gang("g", 1, "gpu=1", queue="b")
    c.settle()
    assert c.code("g") == "WaitingForQuota"
    c.finish("busy")
    c.settle()
    assert c.placed("g") == 1


@pytest.mark.parametrize("state", ["missing", "closed", "not-leaf", "parent-closed"])
def test_a_queue_that_opens_wakes_its_groups(state: str) -> None:
    before = {"missing": [], "closed": ["q closed"], "not-leaf": ["q", "child parent=q"]}
    before["parent-closed"] = ["q parent=top", "top closing"]
    code = {"missing": "QueueNotFound", "not-leaf": "QueueNotLeaf"}.get(state, "QueueClosed")
    c = Cluster().nodes("n1").queues(*before[state]).gang("g", 1, queue="q")
    c.settle()
    assert (c.placed("g"), c.code("g")) == (0, code)
    if state == "not-leaf":
        c.remove_queue("child")
    c.queues("top", "q")
    c.settle()
    assert c.placed("g") == 1


def test_parked_groups_are_one_bucket_and_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=8 cpu=64")
    for i in range(300):
        c.gang(f"g{i}", 1, "gpu=9")
    c.cycle()
    assert len(c.engine.scheduling_queue.pending_classes) == 1
    tried = []
    advance = GangAllocator.allocate_group
    monkeypatch.setattr(GangAllocator, "allocate_group", lambda *a: tried.append(a[2].key) or advance(*a))
    c.running("x", "n1", "gpu=1")
    c.finish("x")
    c.cycle()
    assert tried == []  # room for one GPU came and went: nothing of nine was tried
    c.nodes("n2 gpu=9")
    c.cycle()
    assert tried == ["ns/g0", "ns/g1"]  # the first got it, the second was refused for all the rest
    assert c.placed("g0") == 1


# ---------------------------------------------------------------------- third-party refusals


class AtNight:
    """Refuses everything until told otherwise; names no queue."""

    name = "night"
    open = False

    def admits(self, step: StepView, path: list[QueueView], nodes: NodeView) -> Rejection | None:
        return None if self.open else Rejection(Reason.ON_HOLD, detail=f"{step.tasks} tasks only at night")


def test_a_refusal_that_names_nothing_is_tried_again_when_anything_happens() -> None:
    gate = AtNight()
    c = Cluster(plugins=[*default_plugins(), gate]).queues("default").nodes("n1 gpu=8").gang("g", 2, "gpu=1")
    c.settle()
    assert c.explain("g").code == "OnHold"
    assert "2 tasks only at night" in c.explain("g").message
    gate.open = True
    c.settle()
    assert c.placed("g") == 0
    c.nodes("n2")
    c.settle()
    assert c.placed("g") == 2


def test_devices_of_a_gang_are_distinct_and_lowest_first() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4 npu=2")
    c.gang("g", 2, "gpu=2 npu=1")
    c.cycle()
    assert [c.devices_of(f"g-{i}") for i in range(2)] == [[0, 0, 1], [1, 2, 3]]
    entry = c.engine.state.tasks["ns/g-0"]
    assert {share.resource for share in entry.devices} == {GPU, "huawei.com/npu"}
    assert entry.state is TaskState.BOUND


def test_what_depends_on_others_of_its_gang_is_placed_last_where_no_other_order_does() -> None:
    """In task order and with the scarcest first, those who want to be near others come before them."""
    near = needs(
        "gpu=2",
        affinity=(PodTerm((Expression("app", "In", ("leader",)),), "kubernetes.io/hostname"),),
    )
    c = Cluster().queues("default").nodes("n1 gpu=4 cpu=8", "n2 cpu=8")
    c.gang("g", 1, "cpu=1", min=3, role="a")
    c.add_tasks("g", 1, near, role="b")
    c.add_tasks("g", 1, needs("gpu=1 cpu=2", labels={"app": "leader"}), role="c")
    c.cycle()
    assert c.placed("g") == 3
    assert c.node_of("g-b-0") == c.node_of("g-c-0") == "n1"


@dataclass
class Never:
    name: str = "never"

    def admits(self, step: StepView, path: list[QueueView], nodes: NodeView) -> Rejection | None:
        return Rejection(Reason.MISCONFIGURED, permanent=True)


def test_a_refusal_for_good_is_not_asked_again_whatever_happens() -> None:
    c = Cluster(plugins=[*default_plugins(), Never()]).queues("default").nodes("n1 gpu=1")
    c.gang("g", 1, "gpu=1")
    c.cycle()
    pending_class = c.engine.state.groups["ns/g"].pending_class
    assert pending_class is not None
    assert pending_class.parked
    assert not pending_class.wake_conditions.anything
    assert c.code("g") == "Misconfigured"


def test_a_node_with_many_resources_that_nobody_knew() -> None:
    """What waits already is compared with it all the same."""
    c = Cluster().queues("default").nodes("n1 gpu=1").gang("g", 2, "gpu=2")
    c.cycle()
    n2 = node("n2 gpu=4")
    c.nodes(replace(n2, allocatable={**n2.allocatable, **{f"example.com/r{i}": i for i in range(20)}}))
    c.cycle()
    assert c.where("g") == {"n2": 2}


class Asked:
    """Admits everything, and notes what it is asked."""

    name = "asked"

    def __init__(self) -> None:
        self.steps: list[StepView] = []

    def admits(self, step: StepView, path: list[QueueView], nodes: NodeView) -> Rejection | None:
        self.steps.append(step)
        return None


def test_policies_are_told_how_many_tasks_a_step_would_place() -> None:
    for pods, tasks in ((1, 1), (3, 3)):
        asked = Asked()
        c = Cluster(plugins=[*default_plugins(), asked]).queues("default").nodes("n1 gpu=4")
        c.gang("g", pods, "gpu=1").cycle()
        assert {(step.tasks, step.request[GPU]) for step in asked.steps} == {(tasks, tasks * 1000)}


def test_a_gang_of_one_class_waits_for_room_for_all_of_it() -> None:
    """Nothing less wakes it; a gang that something besides room hinders looks at every improvement."""
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=4")
    c.gang("plain", 9, "gpu=1")
    term = PodTerm((Expression("app", "In", ("x",)),), "kubernetes.io/hostname")
    c.gang("apart", 3, needs("gpu=1", labels={"app": "x"}, anti_affinity=(term,)))
    c.cycle()
    waits = {
        name: c.engine.state.groups[f"ns/{name}"].pending_class.wake_conditions for name in ("plain", "apart")
    }
    assert list(waits["plain"].capacity.values()) == [9]
    assert (waits["plain"].any_capacity, waits["plain"].domains) == (set(), set())
    assert waits["apart"].capacity == {}
    assert waits["apart"].any_capacity == waits["apart"].domains != set()


@pytest.mark.parametrize("order", [("n2", "n1", "n3"), ("n3", "n2", "n1")])
def test_of_nodes_that_wishes_rank_alike_the_first_by_name_is_taken(order: tuple[str, ...]) -> None:
    wish = SpreadTerm("kubernetes.io/hostname", 1, False, (Expression("app", "In", ("x",)),))
    c = Cluster().queues("default").nodes(*(f"{name} gpu=4" for name in order))
    c.gang("g", 1, needs("gpu=1", spread=(wish,), labels={"app": "x"}))
    c.cycle()
    assert c.where("g") == {"n1": 1}

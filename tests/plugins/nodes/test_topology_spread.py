"""Topology spread: hard constraints against the rules, soft ones by kube-scheduler's formula."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import Cluster, needs, node
from msgspec.structs import replace as altered

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.state.statement import Outbox, Statement
from windlass.plugins.nodes.spread_label_filter import SpreadLabels
from windlass.plugins.nodes.topology_spread import HOST, SoftTopologySpread, TopologySpread
from windlass.spi.objects import Expression, Needs, PodTerm, SpreadTerm, TaskState, Toleration

APP = (Expression("app", "In", ("x",)),)
NODES = ("n1 zone=a", "n2 zone=a", "n3 zone=b", "n4")


def wants(*terms: SpreadTerm, **rest) -> Needs:
    rest.setdefault("labels", {"app": "x"})
    return needs("cpu=1", spread=terms, **rest)


def hard(key: str = "zone", skew: int = 1, **rest) -> SpreadTerm:
    return SpreadTerm(key, skew, True, APP, **rest)


def soft(key: str = "zone", skew: int = 1) -> SpreadTerm:
    return SpreadTerm(key, skew, False, APP)


class Scene:
    def __init__(self, *texts: str) -> None:
        self.table = NodeTable()
        for text in texts or NODES:
            self.table.upsert(node(text))
        self.plugin = TopologySpread()
        self.view = TableView(self.table)
        self.plugin.attach(self.view)
        self.placed: dict[int, dict[int, int]] = {}
        self.needs: list[Needs] = []

    def learn(self, what: Needs) -> int:
        number = len(self.placed)
        self.needs.append(what)
        self.placed[number] = {}
        self.plugin.learn(number, what, self.placed.items())
        return number

    def add(self, number: int, name: str, count: int = 1) -> None:
        row = self.table.rows[name]
        self.plugin.add(number, row, count)
        left = self.placed[number].get(row, 0) + count
        self.placed[number][row] = left
        if not left:
            del self.placed[number][row]

    def open(self, number: int) -> str:
        verdict = self.plugin.verdict(number, self.view)
        assert verdict is not None
        labelled = SpreadLabels().filter(self.needs[number], self.view)
        if labelled is not None:
            verdict = verdict & labelled
        return " ".join(name for name, good in zip(self.view.names(), verdict, strict=True) if good)


def test_a_domain_with_too_many_more_than_the_emptiest_is_closed() -> None:
    s = Scene()
    x = s.learn(wants(hard()))
    assert s.plugin.constrains(x)
    assert s.open(x) == "n1 n2 n3"
    s.add(x, "n1")
    assert s.open(x) == "n3"
    s.add(x, "n3")
    assert s.open(x) == "n1 n2 n3"
    s.add(x, "n1", -1)
    assert s.open(x) == "n1 n2"


def test_the_skew_may_be_larger() -> None:
    s = Scene()
    x = s.learn(wants(hard(skew=2)))
    s.add(x, "n1", 2)
    assert s.open(x) == "n3"
    s.add(x, "n3")
    assert s.open(x) == "n1 n2 n3"


def test_a_pod_that_does_not_match_its_own_selector_is_not_counted() -> None:
    s = Scene()
    other = s.learn(wants(hard(), labels={"app": "y"}))
    x = s.learn(needs("cpu=1", labels={"app": "x"}))
    s.add(x, "n1")
    assert s.open(other) == "n1 n2 n3"
    s.add(x, "n2")
    assert s.open(other) == "n3"
    assert not s.plugin.constrains(x)


def test_pods_of_other_namespaces_do_not_count() -> None:
    s = Scene()
    x = s.learn(wants(hard()))
    stranger = s.learn(Needs(labels=(("app", "x"),), namespace="other"))
    s.add(stranger, "n1", 5)
    assert s.open(x) == "n1 n2 n3"


def test_too_few_domains_make_the_emptiest_count_as_empty() -> None:
    s = Scene()
    x = s.learn(wants(hard(min_domains=3)))
    s.add(x, "n1")
    s.add(x, "n3")
    assert s.open(x) == ""


def test_nodes_that_the_pod_cannot_use_are_no_domains() -> None:
    s = Scene("n1 zone=a disk=ssd", "n2 zone=b", "n3 zone=c disk=ssd")
    picky = {"node_selector": {"disk": "ssd"}}
    honors = s.learn(wants(hard(), **picky))
    ignores = s.learn(wants(hard(honor_affinity=False), **picky))
    for number in (honors, ignores):
        s.add(number, "n1")
        s.add(number, "n3")
    assert s.open(ignores) == "n2"
    s.add(honors, "n2", 9)  # not eligible: does not count for pods that honor the selector
    assert s.open(honors) == "n1 n2 n3"


def test_taints_are_looked_at_where_the_constraint_says_so() -> None:
    s = Scene("n1 zone=a", "n2 zone=b taint=t=1:NoSchedule")
    plain = s.learn(wants(hard()))
    honors = s.learn(wants(hard(honor_taints=True)))
    calm = s.learn(wants(hard(honor_taints=True), tolerations=(Toleration("t", "Exists"),)))
    s.add(plain, "n1")
    assert s.open(plain) == s.open(calm) == "n2"
    assert "n1" in s.open(honors)


def test_a_node_without_one_of_the_keys_is_out() -> None:
    s = Scene("n1 zone=a rack=1", "n2 zone=a", "n3 zone=b rack=2")
    x = s.learn(wants(hard(), hard("rack")))
    assert s.open(x) == "n1 n3"


def test_domains_follow_the_nodes() -> None:
    s = Scene()
    x = s.learn(wants(hard()))
    s.add(x, "n1")
    s.add(x, "n3")
    assert s.open(x) == "n1 n2 n3"
    s.table.upsert(node("n5 zone=c"))
    assert s.open(x) == "n5"
    s.table.upsert(node("n5 zone=a"))
    assert s.open(x) == "n1 n2 n3 n5"
    s.table.upsert(node("n3 zone=a"))
    s.plugin.relabelled(s.placed.items())
    assert s.open(x) == "n1 n2 n3 n5"
    s.add(x, "n1")
    assert s.open(x) == "n1 n2 n3 n5"


def test_what_a_placement_touches() -> None:
    s = Scene()
    x = s.learn(wants(hard(skew=2)))
    s.open(x)
    codes = s.view.label("zone")
    s.add(x, "n1")
    assert s.plugin.touched(x, 0) == []
    s.add(x, "n1")
    assert s.plugin.touched(x, 0) == [("zone", codes[0])]
    s.add(x, "n3")
    assert s.plugin.touched(x, 2) is None  # the emptiest has one now: all are open again


def test_a_late_constraint_counts_what_is_there() -> None:
    s = Scene()
    old = s.learn(needs("cpu=1", labels={"app": "x"}))
    s.add(old, "n1", 2)
    x = s.learn(wants(hard()))
    assert s.open(x) == "n3"
    assert set(s.plugin.listens_to(x)) == {old, x}


def test_forgotten_classes_leave_nothing() -> None:
    s = Scene()
    x = s.learn(wants(hard(), soft("rack")))
    other = s.learn(needs("cpu=1", labels={"app": "x"}))
    s.plugin.forget(x)
    s.plugin.forget(x)
    assert (s.plugin._spread_counts, s.plugin._members[other].counted_in) == ({}, {})
    s.plugin.forget(other)
    assert (s.plugin._members, s.plugin._numbers, s.plugin._member_index._by_hook) == ({}, {}, {})
    assert s.plugin._counts_index._by_hook == {}


def test_a_forgotten_constraint_takes_nothing_from_the_others() -> None:
    s = Scene()
    x = s.learn(needs("cpu=1", labels={"app": "x"}))
    by_zone, by_host = s.learn(wants(hard())), s.learn(wants(hard(HOST)))
    s.add(x, "n1")
    s.plugin.forget(by_zone)
    s.plugin.relabelled(s.placed.items())
    assert s.open(by_host) == "n2 n3 n4"


def test_findings_say_what_the_verdict_does() -> None:
    s = Scene()
    x = s.learn(wants(hard()))
    s.add(x, "n1")
    (blocker,) = s.plugin.blockers(wants(hard()), s.view)
    assert blocker.detail == "spread of app=x per zone, at most 1 apart"
    assert blocker.blocked.tolist() == [True, True, False, False]
    (blocker,) = SpreadLabels().blockers(wants(hard()), s.view)
    assert blocker.detail == "no label zone"
    assert blocker.blocked.tolist() == [False, False, False, True]


def test_soft_constraints_prefer_the_emptier_domain() -> None:
    s = Scene("n1 zone=a", "n2 zone=b", "n3 zone=c", "n4")
    x = s.learn(wants(soft(skew=2)))
    s.add(x, "n1", 3)
    s.add(x, "n2", 1)
    wishes = SoftTopologySpread(s.plugin)
    assert wishes.weight == 2.0  # kube-scheduler's
    assert wishes.has_preference(x, wants(soft()), s.view)
    everyone = np.ones(4, dtype=bool)
    weight = np.log(3 + 2)
    raw = [round(3 * weight + 1), round(weight + 1), round(0 * weight + 1)]
    expected = [100 * (max(raw) + min(raw) - points) // max(raw) for points in raw]
    assert wishes.relative(x, wants(soft()), s.view, everyone).tolist() == [*expected, 0]


def test_a_soft_constraint_counts_the_whole_domain_or_per_host_the_node() -> None:
    s = Scene("n1 zone=a", "n2 zone=a", "n3 zone=b")
    by_zone, by_host = s.learn(wants(soft())), s.learn(wants(soft(HOST)))
    s.add(by_zone, "n1", 4)
    everyone = np.ones(3, dtype=bool)
    zones = SoftTopologySpread(s.plugin).relative(by_zone, wants(soft()), s.view, everyone).tolist()
    hosts = SoftTopologySpread(s.plugin).relative(by_host, wants(soft(HOST)), s.view, everyone).tolist()
    assert (zones, hosts) == ([0, 0, 100], [0, 100, 100])


@pytest.mark.parametrize("kind", [hard, soft])
def test_a_gang_is_spread_over_the_zones(kind) -> None:
    c = Cluster().queues("default")
    c.nodes("n1 zone=a", "n2 zone=b", "n3 zone=c")
    c.gang("g", 6, wants(kind()))
    c.cycle()
    assert c.where("g") == {"n1": 2, "n2": 2, "n3": 2}


def three_zones(what: Needs, state: TaskState) -> Cluster:
    """One pod in each of the zones a, b and c; that in a is in the given state."""
    c = Cluster().queues("default").nodes("n1 zone=a cpu=3", "n2 zone=b cpu=9", "n3 zone=c cpu=9")
    c.gang("g", 3, what)
    c.cycle()
    (there,) = [task for task in c.tasks.values() if task.node == "n1"]
    c.task(altered(there, state=state))
    return c


@pytest.mark.parametrize("kind", [hard, soft])
@pytest.mark.parametrize("state", [TaskState.RELEASING, TaskState.STUCK])
def test_a_terminating_pod_does_not_count(kind, state) -> None:
    c = three_zones(wants(kind()), state)
    c.gang("next", 1, wants(kind()))
    c.cycle()
    assert c.where("next") == {"n1": 1}


def test_the_skew_is_kept_once_a_terminating_pod_is_gone() -> None:
    c = three_zones(wants(hard()), TaskState.RELEASING)
    (leaving,) = [key for key, task in c.tasks.items() if task.state is TaskState.RELEASING]
    c.gang("next", 1, wants(hard()))
    c.cycle()
    c.remove_task(leaving.removeprefix("ns/"))
    c.cycle()
    assert c.where("g") | c.where("next") == {"n1": 1, "n2": 1, "n3": 1}


@pytest.mark.parametrize("reported", [True, False])
def test_pod_waiting_for_spread_is_retried_when_another_begins_to_terminate(reported: bool) -> None:
    """The node has enough capacity before and after; only the counts change."""
    c = Cluster().queues("default").nodes("n1 zone=a cpu=1", "n2 zone=a cpu=9", "n3 zone=b cpu=1")
    c.gang("old", 1, wants(hard(), node_selector={"kubernetes.io/hostname": "n1"}))
    c.cycle()
    c.gang("next", 1, needs("cpu=2", spread=(hard(),), labels={"app": "x"}))
    c.cycle()
    assert c.placed("next") == 0
    assert c.cycle().binds == ()
    if reported:
        c.change_task("old-0", state=TaskState.RELEASING)
    else:
        statement = Statement(c.engine.state.ledger)
        statement.evict(c.engine.state.tasks["ns/old-0"], "preempt")
        statement.commit(Outbox.empty())
    c.cycle()
    assert c.where("next") == {"n2": 1}


def test_whom_a_pod_keeps_away_it_keeps_away_until_it_is_gone() -> None:
    apart = needs("cpu=1", anti_affinity=(PodTerm(APP, "zone"),), labels={"app": "x"})
    c = three_zones(apart, TaskState.RELEASING)
    c.gang("next", 1, apart)
    assert c.cycle().binds == ()
    assert c.engine.state.tasks["ns/next-0"].nominated_row == c.engine.state.table.rows["n1"]


@pytest.mark.parametrize(("key", "nodes"), [("rack", 3), ("zone", 2)])
def test_nodes_without_the_label_are_told(key: str, nodes: int) -> None:
    """No waiting helps on them: without the label a node is no domain."""
    c = Cluster().queues("default").nodes("n1 zone=a cpu=1", "n2 cpu=8", "n3 cpu=8")
    c.gang("g", 2, wants(hard(key)))
    c.cycle()
    explanation = c.explain("g")
    (blocker,) = (b for b in explanation.blockers if b.detail == f"no label {key}")
    assert (blocker.code, blocker.nodes) == (Reason.TOPOLOGY_SPREAD_CONFLICT, nodes)
    nowhere = key == "rack"
    assert (explanation.code is Reason.NO_MATCHING_NODE) == nowhere
    assert (explanation.waiting_helps == "no") == nowhere or explanation.code is Reason.EXCEEDS_CLUSTER
    label = "Label nodes (kubectl label node NODE rack=VALUE), or spread by a label that nodes carry."
    assert (explanation.remedies == (label,)) == nowhere


def test_a_label_that_comes_opens_the_node() -> None:
    c = Cluster().queues("default").nodes("n1 cpu=8", "n2 cpu=8").gang("g", 2, wants(hard()))
    c.cycle()
    assert c.where("g") == {}
    c.nodes("n1 zone=a cpu=8")
    c.cycle()
    assert c.where("g") == {"n1": 2}


def test_a_late_constraint_does_not_count_what_terminates() -> None:
    c = three_zones(needs("cpu=3", labels={"app": "x"}), TaskState.RELEASING)
    assert c.where("g") == {"n1": 1, "n2": 2}
    c.nodes("n1 zone=a cpu=9")
    c.gang("late", 1, wants(hard()))
    c.cycle()
    assert c.where("late") == {"n1": 1}, "not only zone c is empty"


def test_what_does_not_spread_waits_and_says_so() -> None:
    c = Cluster().queues("default").nodes("n1 zone=a cpu=8", "n2 zone=b cpu=1")
    c.gang("g", 4, wants(hard()))
    c.cycle()
    assert c.placed("g") == 0
    for name in ("one", "two", "three", "four"):
        c.gang(name, 1, wants(hard()))
        c.cycle()
    assert [c.where(name) for name in ("one", "two", "three", "four")].count({"n1": 1}) == 2
    assert c.where("four") == {}
    blockers = {blocker.code: blocker for blocker in c.explain("four").blockers}
    assert blockers["TopologySpreadConflict"].nodes == 1
    assert blockers["TopologySpreadConflict"].detail == "spread of app=x per zone, at most 1 apart"
    assert blockers["InsufficientResources"].nodes >= 1

"""Explanations are true: against a naive evaluator that looks at one node and one pod at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from cluster_dsl import GPU, NAMESPACE, Cluster
from engine_fuzz import PLAIN, RELATED, Op, Player, ops, start
from example_counts import examples
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from windlass.engine.groups.entries import GroupEntry
from windlass.spi.objects import Expression, Needs, Node, PodTerm, Task, TaskState
from windlass.spi.quantities import from_units

SETTINGS = settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
HOLDING = (
    TaskState.ASSUMED,
    TaskState.BOUND,
    TaskState.RUNNING,
    TaskState.RELEASING,
    TaskState.STUCK,
)
Found = Counter[tuple[str, str, str]]


def at_rest(history: list[Op], classes: tuple[Needs, ...]) -> Cluster:
    cluster = start(Cluster())
    Player(cluster, classes).play(history)
    cluster.confirm()
    cluster.cycle()
    cluster.now += 10_000
    cluster.settle(quiet=0)
    return cluster


# ---------------------------------------------------------------------- the naive evaluator


def matches(expression: Expression, labels: dict[str, str]) -> bool:
    value = labels.get(expression.key)
    return {
        "In": value in expression.values,
        "NotIn": value not in expression.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression.operator]


def selects(term: PodTerm, pod: Needs) -> bool:
    labels = dict(pod.labels)
    return term.selector is not None and all(matches(e, labels) for e in term.selector)


def same_domain(term: PodTerm, one: Node, other: Node) -> bool:
    key = term.topology_key
    return key in one.labels and one.labels[key] == other.labels.get(key)


def text(expression: Expression) -> str:
    return f"{expression.key}={expression.values[0]}"


def leaves(task: Task) -> bool:
    return task.state is TaskState.RELEASING


def amounts(tasks: Iterable[Task]) -> Counter[str]:
    """Return the requests of tasks in sum, including pod slots."""
    found: Counter[str] = Counter()
    for task in tasks:
        for resource, units in (*task.needs.request, ("pods", 1)):
            found[resource] += units
    return found


def affinity_text(term: PodTerm) -> str:
    return f"{', '.join(text(e) for e in term.selector or ())} per {term.topology_key}"


class Naive:
    """Obstacles of one node for one pod, straight from the rules.

    A pod nominated to capacity of terminating pods counts for related pods. It reserves
    from the free capacity what the terminating pods do not return.
    """

    def __init__(self, cluster: Cluster) -> None:
        state = cluster.engine.state
        names = state.table.names
        self.nodes = cluster.node_specs
        self.placed: list[tuple[Task, Node | None, str]] = [
            (entry.task, self.nodes.get(names[entry.row]), names[entry.row])
            for entry in state.tasks.values()
            if entry.state in HOLDING
        ]
        self.kept: list[tuple[Task, Node | None, str]] = [
            (entry.task, self.nodes.get(names[entry.nominated_row]), names[entry.nominated_row])
            for entry in state.tasks.values()
            if entry.nominated_row >= 0
        ]

    def free(self, node: Node) -> dict[str, int]:
        left = dict(node.allocatable)
        if node.devices:
            held = {i for task, _, where in self.placed if where == node.name for i in task.devices}
            lost = sum(1 for d in node.devices if not d.healthy and d.index not in held)
            left[GPU] = min(left[GPU], 1000 * len(node.devices)) - 1000 * lost
        for task, _, where in self.placed:
            if where == node.name:
                for resource, units in (*task.needs.request, ("pods", 1)):
                    left[resource] = left.get(resource, 0) - units
        back = amounts(task for task, _, where in self.placed if where == node.name and leaves(task))
        kept = amounts(task for task, _, where in self.kept if where == node.name)
        for resource, units in kept.items():
            left[resource] = left.get(resource, 0) - max(0, units - back[resource])
        return left

    def obstacles(self, needs: Needs, node: Node) -> list[tuple[str, str, str]]:
        found = []
        if not node.ready:
            found.append(("NodeNotReady", "", ""))
        if node.unschedulable:
            found.append(("NodeUnschedulable", "", ""))
        for key, value in needs.node_selector:
            if node.labels.get(key) != value:
                found.append(("NodeSelectorMismatch", "", f"{key}={value}"))
        if needs.node_terms is not None:
            good = any(all(matches(e, dict(node.labels)) for e in t.labels) for t in needs.node_terms)
            if not good:
                found.append(("NodeAffinityMismatch", "", "zone!=a"))
        found += [
            ("TaintNotTolerated", "", f"{taint.key}={taint.value}:{taint.effect}")
            for taint in node.taints
            if not any(t.key == taint.key for t in needs.tolerations)
        ]
        left = self.free(node)
        for resource, units in (*needs.request, ("pods", 1)):
            if left.get(resource, 0) < units:
                code = "TooManyPods" if resource == "pods" else "InsufficientResources"
                found.append((code, resource, ""))
        found += self.ports(needs, node) + self.relations(needs, node)
        return found + self.spread(needs, node) + self.volumes(needs, node)

    def ports(self, needs: Needs, node: Node) -> list[tuple[str, str, str]]:
        there = [task for task, _, where in (*self.placed, *self.kept) if where == node.name]
        taken = {p for task in there for p in task.needs.host_ports}
        found = []
        for port in needs.host_ports:
            rivals = [t for t in taken if (t.protocol, t.number) == (port.protocol, port.number)]
            if any(not t.address or not port.address or t.address == port.address for t in rivals):
                where = f" on {port.address}" if port.address else ""
                found.append(("HostPortTaken", "", f"{port.number}/{port.protocol}{where}"))
        return found

    def relations(self, needs: Needs, node: Node) -> list[tuple[str, str, str]]:
        found = []
        known = [(task.needs, there) for task, there, _ in (*self.placed, *self.kept) if there is not None]
        for term in needs.anti_affinity:
            if any(selects(term, pod) and same_domain(term, node, there) for pod, there in known):
                detail = f"anti-affinity to {affinity_text(term)}"
                found.append(("PodAntiAffinityConflict", "", detail))
        theirs = {
            term
            for pod, there in known
            for term in pod.anti_affinity
            if selects(term, needs) and same_domain(term, node, there)
        }
        for term in theirs:
            detail = f"a pod there has anti-affinity to {affinity_text(term)}"
            found.append(("PodAntiAffinityConflict", "", detail))
        for term in needs.affinity:
            if any(selects(term, pod) and same_domain(term, node, there) for pod, there in known):
                continue
            anyone = any(selects(term, pod) and term.topology_key in there.labels for pod, there in known)
            first = not anyone and selects(term, needs)
            if not (first and term.topology_key in node.labels):
                found.append(("PodAffinityMismatch", "", f"affinity to {affinity_text(term)}"))
        return found

    def spread(self, needs: Needs, node: Node) -> list[tuple[str, str, str]]:
        found = []
        keys = [term.topology_key for term in needs.spread if term.hard]
        eligible = [n for n in self.nodes.values() if all(key in n.labels for key in keys)]
        for term in needs.spread:
            key = term.topology_key
            counts = {n.labels[key]: 0 for n in eligible if key in n.labels}
            for task, there, _ in (*self.placed, *self.kept):
                if there in eligible and selects(PodTerm(term.selector, key), task.needs):
                    counts[there.labels[key]] += 1
            own = selects(PodTerm(term.selector, key), needs)
            here = node.labels.get(key)
            least = min(counts.values(), default=0)
            if term.hard and here is None:
                found.append(("TopologySpreadConflict", "", f"no label {key}"))
            elif term.hard and counts.get(here, 0) + own - least > term.max_skew:
                selector = ", ".join(text(e) for e in term.selector or ())
                detail = f"spread of {selector} per {key}, at most {term.max_skew} apart"
                found.append(("TopologySpreadConflict", "", detail))
        return found

    def volumes(self, needs: Needs, node: Node) -> list[tuple[str, str, str]]:
        found = []
        used = {volume.claim for task, _, _ in (*self.placed, *self.kept) for volume in task.needs.volumes}
        for volume in needs.volumes:
            if volume.exclusive and volume.claim in used:
                detail = f"claim {volume.claim} is for one pod alone, and one uses it"
                found.append(("VolumeClaimUnavailable", "", detail))
            if volume.terms is not None and not any(
                all(matches(e, dict(node.labels)) for e in term.labels) for term in volume.terms
            ):
                detail = f"the volume of claim {volume.claim} is reached from zone=a only"
                found.append(("VolumeUnavailable", "", detail))
        return found


def counted(cluster: Cluster, needs: Needs) -> Found:
    naive = Naive(cluster)
    return Counter(o for node in cluster.node_specs.values() for o in naive.obstacles(needs, node))


ABOUT_DOMAINS = ("ExceedsEveryDomain", "TopologyPlacementFailed")
"""Blockers that speak of domains and count the nodes in them."""


def told(cluster: Cluster, key: str) -> tuple[Found, bool]:
    explanation = cluster.engine.explain(key, cluster.now)
    assert explanation is not None
    if explanation.code == "WaitingForVictims":
        return Counter(), False  # of it the next property speaks
    if any(blocker.detail == "placed together" for blocker in explanation.blockers):
        return Counter(), False  # the explanation is about one more pod in addition
    summary = ("the most that", "what the", "no node has")
    on_nodes = [b for b in explanation.blockers if b.nodes and str(b.code) not in ABOUT_DOMAINS]
    found = Counter(
        {
            (str(b.code), b.resource, b.detail): b.nodes
            for b in on_nodes
            if b.code != "NoMatchingNode" and not b.detail.startswith(summary)
        }
    )
    return found, bool(on_nodes)


def waiting(cluster: Cluster) -> list[GroupEntry]:
    """Groups of one class that wait for nodes."""
    groups = cluster.engine.state.groups.values()
    return [g for g in groups if g.pending_class is not None and len(g.pending_classes) == 1]


# ---------------------------------------------------------------------- the properties


@SETTINGS
@given(ops(min_size=8))
def test_blockers_equal_those_of_a_naive_evaluator(history: list[Op]) -> None:
    cluster = at_rest(history, PLAIN + RELATED)
    for group in waiting(cluster):
        (cls,) = group.pending_classes
        found, about_nodes = told(cluster, group.key)
        if about_nodes:
            assert found == counted(cluster, cls.needs), group.key


@SETTINGS
@given(ops(min_size=8))
def test_group_nominated_to_terminating_capacity_is_told_so_and_gets_it(history: list[Op]) -> None:
    """No other group is told so. The nominated capacity is available once all victims
    are gone, and not before."""
    cluster = at_rest(history, PLAIN + RELATED)
    naive = Naive(cluster)
    promised: dict[str, Counter[str]] = {}
    for task, _, where in naive.kept:
        promised.setdefault(task.group, Counter())[where] += 1
    for key in cluster.engine.state.groups:
        explanation = cluster.engine.explain(key, cluster.now)
        waits = explanation is not None and explanation.code == "WaitingForVictims"
        assert waits == (key in promised), key
        if waits:
            assert explanation is not None
            assert {b.detail: int(b.needed) for b in explanation.blockers} == promised[key]
            leaving = {where for task, _, where in naive.placed if leaves(task)}
            assert leaving, key
            assert ("other pods there are still terminating" in explanation.message) == bool(
                leaving & promised[key].keys()
            )
    for node in cluster.node_specs.values():
        staying = amounts(t for t, _, where in naive.placed if where == node.name and not leaves(t))
        kept = amounts(task for task, _, where in naive.kept if where == node.name)
        assert all(staying[r] + units <= node.allocatable.get(r, 0) for r, units in kept.items() if units)


@SETTINGS
@given(ops(min_size=8))
def test_the_amounts_told_are_the_right_ones(history: list[Op]) -> None:
    cluster = at_rest(history, PLAIN)
    naive = Naive(cluster)
    for group in waiting(cluster):
        (cls,) = group.pending_classes
        explanation = cluster.engine.explain(group.key, cluster.now)
        assert explanation is not None
        for blocker in explanation.blockers:
            if blocker.code == "InsufficientResources" and blocker.nodes and not blocker.detail:
                need = dict(cls.needs.request)[blocker.resource]
                free = [max(0, naive.free(n).get(blocker.resource, 0)) for n in cluster.node_specs.values()]
                short = [units for units in free if units < need]
                assert blocker.needed == from_units(blocker.resource, need)
                assert blocker.available == from_units(blocker.resource, max(short))


@SETTINGS
@given(ops(min_size=8))
def test_never_means_never_and_the_nodes_do_not_take_what_waits(history: list[Op]) -> None:
    """``waiting_helps: no`` because of nodes: with everything else gone it still does not start."""
    cluster = at_rest(history, PLAIN)
    hopeless = []
    for group in waiting(cluster):
        explanation = cluster.engine.explain(group.key, cluster.now)
        assert explanation is not None
        if explanation.code in ("ExceedsEveryNode", "ExceedsCluster", "NoMatchingNode"):
            assert explanation.waiting_helps == "no"
            hopeless.append((group.key, group.active))
    for key in list(cluster.groups):
        if key not in {k for k, _ in hopeless}:
            cluster.remove(key.removeprefix(f"{NAMESPACE}/"))
    for key, active in hopeless:
        others = [k for k, _ in hopeless if k != key]
        for other in others:
            cluster.change_group(other.removeprefix(f"{NAMESPACE}/"), held=True)
        cluster.cycle()
        assert cluster.engine.state.groups[key].active == active
        for other in others:
            cluster.change_group(other.removeprefix(f"{NAMESPACE}/"), held=False)


@SETTINGS
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 12),
)
def test_the_smaller_gang_that_is_proposed_starts_and_one_more_does_not(
    nodes: list[tuple[int, int]], gpus: int, extra: int, busy: int
) -> None:
    cluster = Cluster().queues("default")
    for i, (have, cpus) in enumerate(nodes):
        cluster.nodes(f"n{i} gpu={have} cpu={cpus}")
    ever = sum(min(have // gpus, cpus) for have, cpus in nodes)
    cluster.gang("busy", busy, "gpu=1", min=0)
    cluster.cycle()
    left = [(have - cluster.where("busy").get(f"n{i}", 0), cpus) for i, (have, cpus) in enumerate(nodes)]
    fitting = sum(min(have // gpus, cpus) for have, cpus in left)
    size = min(ever, fitting + extra)
    assume(fitting and size > fitting)
    cluster.gang("g", size, f"gpu={gpus} cpu=1")
    cluster.cycle()
    assert f"With minAvailable (minMember) {fitting} it could start now." in cluster.explain("g").remedies
    cluster.change_group("g", min_member=fitting + 1)
    assert cluster.cycle().binds == ()
    cluster.change_group("g", min_member=fitting)
    assert len(cluster.cycle().binds) == fitting


@SETTINGS
@given(ops(min_size=8))
def test_positions_count_the_waiting_groups_of_a_queue(history: list[Op]) -> None:
    cluster = at_rest(history, PLAIN)
    for queue in cluster.engine.state.queues:
        places = {}
        for key in queue.groups:
            explanation = cluster.engine.explain(key, cluster.now)
            group = queue.groups[key]
            waits = not group.has_lost_members() and group.group is not None and not group.group.held
            if waits and explanation is not None and explanation.facts.tier > 1:
                places[key] = explanation.position
            elif explanation is not None:
                assert explanation.position == 0
        assert sorted(places.values()) == list(range(1, len(places) + 1))
        order = cluster.engine.state.group_order
        groups = cluster.engine.state.groups
        assert sorted(places, key=places.__getitem__) == sorted(places, key=lambda k: order(groups[k]))


@SETTINGS
@given(ops(min_size=8))
def test_whoever_is_named_as_holder_holds_what_is_short(history: list[Op]) -> None:
    cluster = at_rest(history, PLAIN)
    for group in waiting(cluster):
        explanation = cluster.engine.explain(group.key, cluster.now)
        assert explanation is not None
        short = {b.resource for b in explanation.blockers if b.resource}
        for holder in explanation.holders:
            assert holder != group.key
            held = {
                resource
                for entry in cluster.engine.state.groups[holder]
                if entry.row >= 0
                for resource in ("pods", *dict(entry.task.needs.request))
            }
            assert held & short


def test_the_reference_knows_the_rules_it_is_used_for() -> None:
    """The naive evaluator itself, on a case worked out by hand."""
    cluster = Cluster().queues("default").nodes("n1 gpu=2 zone=b cordoned", "n2 gpu=1 cpu=1 zone=a")
    cluster.running("x", "n2", "gpu=1 cpu=1")
    cluster.gang("g", 1, replace(PLAIN[4], request=(("nvidia.com/gpu", 2000),)))
    cluster.cycle()
    expected = {
        ("NodeUnschedulable", "", ""): 1,
        ("NodeSelectorMismatch", "", "zone=a"): 1,
        ("InsufficientResources", "nvidia.com/gpu", ""): 1,
    }
    assert counted(cluster, cluster.tasks["ns/g-0"].needs) == expected
    assert told(cluster, "ns/g")[0] == expected

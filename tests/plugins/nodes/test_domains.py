"""Pod affinity and host ports: against the rules, straight, and with every count undone again."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import needs, node
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.plugins.nodes.host_ports import HostPorts
from windlass.plugins.nodes.pod_affinity import PodAffinity
from windlass.spi.objects import Expression, HostPort, Needs, PodTerm

NODES = ("n1 zone=a", "n2 zone=a", "n3 zone=b", "n4")
HOST = "kubernetes.io/hostname"


def term(app: str, key: str, **rest) -> PodTerm:
    return PodTerm((Expression("app", "In", (app,)),), key, **rest)


class Harness:
    """A plugin attached to four nodes; classes by name, placed by hand."""

    def __init__(self, plugin: PodAffinity | HostPorts) -> None:
        self.table = NodeTable()
        for text in NODES:
            self.table.upsert(node(text))
        self.plugin = plugin
        self.nodes = TableView(self.table)
        plugin.attach(self.nodes)
        self.needs: dict[int, Needs] = {}
        self.placed: dict[int, dict[int, int]] = {}

    def learn(self, wants: Needs) -> int:
        number = len(self.needs)
        self.needs[number] = wants
        self.plugin.learn(number, wants, self.placed.items())
        return number

    def add(self, number: int, row: int, count: int = 1) -> None:
        self.plugin.add(number, row, count)
        rows = self.placed.setdefault(number, {})
        rows[row] = rows.get(row, 0) + count
        if not rows[row]:
            del rows[row]

    def open(self, number: int) -> list[int]:
        """Rows where the class may go; checked against the findings."""
        if not self.plugin.constrains(number):
            return [0, 1, 2, 3]
        verdict = self.plugin.verdict(number, self.nodes)
        if verdict is None:
            verdict = np.ones(4, dtype=bool)
        blocked = np.zeros(4, dtype=bool)
        for blocker in self.plugin.blockers(self.needs[number], self.nodes):
            blocked |= blocker.blocked
        assert (~blocked).tolist() == verdict.tolist()
        return np.flatnonzero(verdict).tolist()


@pytest.fixture
def affinity() -> Harness:
    return Harness(PodAffinity())


def test_anti_affinity_keeps_out_of_domains_with_a_match(affinity: Harness) -> None:
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    by_zone = affinity.learn(needs("cpu=1", anti_affinity=(term("x", "zone"),)))
    by_host = affinity.learn(needs("cpu=1", anti_affinity=(term("x", HOST),)))
    assert affinity.open(by_zone) == [0, 1, 2, 3]
    affinity.add(x, 0)
    assert affinity.open(by_zone) == [2, 3]
    assert affinity.open(by_host) == [1, 2, 3]
    affinity.add(x, 3)  # a node without the key is in no domain
    assert affinity.open(by_zone) == [2, 3]
    affinity.add(x, 0, -1)
    assert affinity.open(by_zone) == [0, 1, 2, 3]


def test_the_others_anti_affinity_counts_too(affinity: Harness) -> None:
    shy = affinity.learn(needs("cpu=1", anti_affinity=(term("x", "zone"),)))
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    assert not affinity.plugin.constrains(x)
    affinity.add(shy, 2)
    assert affinity.plugin.constrains(x)
    assert affinity.open(x) == [0, 1, 3]
    affinity.add(shy, 2, -1)
    assert affinity.open(x) == [0, 1, 2, 3]


def test_affinity_needs_a_match_in_the_domain(affinity: Harness) -> None:
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    near = affinity.learn(needs("cpu=1", affinity=(term("x", "zone"),)))
    assert affinity.open(near) == []
    affinity.add(x, 2)
    assert affinity.open(near) == [2]
    affinity.add(x, 1)
    assert affinity.open(near) == [0, 1, 2]


def test_the_first_of_its_kind_may_go_anywhere_with_the_key(affinity: Harness) -> None:
    herd = affinity.learn(needs("cpu=1", affinity=(term("h", "zone"),), labels={"app": "h"}))
    assert affinity.open(herd) == [0, 1, 2]
    affinity.add(herd, 2)
    assert affinity.open(herd) == [2]


def test_several_affinity_terms_must_be_met_by_the_same_pods(affinity: Harness) -> None:
    both = needs(
        "cpu=1",
        affinity=(term("x", "zone"), PodTerm((Expression("tier", "Exists"),), HOST)),
    )
    wants = affinity.learn(both)
    half = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    whole = affinity.learn(needs("cpu=1", labels={"app": "x", "tier": "1"}))
    affinity.add(half, 0)
    assert affinity.open(wants) == []
    affinity.add(whole, 1)
    assert affinity.open(wants) == [1]


def test_namespaces(affinity: Harness) -> None:
    own = affinity.learn(needs("cpu=1", anti_affinity=(term("x", HOST),)))
    named = affinity.learn(needs("cpu=1", anti_affinity=(term("x", HOST, namespaces=("elsewhere",)),)))
    there = affinity.learn(Needs(labels=(("app", "x"),), namespace="elsewhere"))
    affinity.add(there, 1)
    assert affinity.open(own) == [0, 1, 2, 3]
    assert affinity.open(named) == [0, 2, 3]


def test_no_selector_matches_nothing_and_an_empty_one_everything(affinity: Harness) -> None:
    pod = affinity.learn(needs("cpu=1"))
    affinity.add(pod, 0)
    nothing = affinity.learn(needs("cpu=1", anti_affinity=(PodTerm(None, HOST),)))
    everything = affinity.learn(needs("cpu=1", anti_affinity=(PodTerm((), HOST),)))
    assert affinity.open(nothing) == [0, 1, 2, 3]
    assert affinity.open(everything) == [1, 2, 3]


def test_classes_placed_before_the_term_appeared_count(affinity: Harness) -> None:
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    affinity.add(x, 0, 3)
    late = affinity.learn(needs("cpu=2", anti_affinity=(term("x", "zone"),)))
    assert affinity.open(late) == [2, 3]


def test_forgotten_classes_leave_nothing(affinity: Harness) -> None:
    plugin = affinity.plugin
    assert isinstance(plugin, PodAffinity)
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    shy = affinity.learn(needs("cpu=1", anti_affinity=(term("x", "zone"),), affinity=(term("x", HOST),)))
    plugin.forget(shy)
    plugin.forget(shy)
    assert (plugin._match_counts, plugin._reverse_counts) == ({}, {})
    assert plugin._members[x].counted_in == plugin._members[x].repelled_by == {}
    assert plugin.blockers(affinity.needs[shy], affinity.nodes) == []
    plugin.add(x, 0, 1)


def test_a_node_that_changes_its_zone_takes_its_pods_along(affinity: Harness) -> None:
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    far = affinity.learn(needs("cpu=1", anti_affinity=(term("x", "zone"),)))
    affinity.add(x, 1, 2)
    affinity.table.upsert(node("n2 zone=b"))
    affinity.plugin.relabelled(affinity.placed.items())
    assert affinity.open(far) == [0, 3]


def test_who_may_turn_a_no_into_a_yes(affinity: Harness) -> None:
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    y = affinity.learn(needs("cpu=1", labels={"app": "y"}))
    shy = affinity.learn(needs("cpu=1", anti_affinity=(term("x", HOST),)))
    near = affinity.learn(needs("cpu=1", affinity=(term("y", HOST),)))
    assert set(affinity.plugin.listens_to(shy)) == {x}
    assert set(affinity.plugin.listens_to(near)) == {y}
    assert set(affinity.plugin.listens_to(x)) == {shy}


def test_who_is_told_of_a_placement(affinity: Harness) -> None:
    x = affinity.learn(needs("cpu=1", labels={"app": "x"}))
    y = affinity.learn(needs("cpu=1", labels={"app": "y"}))
    shy = affinity.learn(needs("cpu=1", anti_affinity=(term("x", HOST),)))
    near = affinity.learn(needs("cpu=1", affinity=(term("y", HOST),)))
    heard = {number: set(affinity.plugin.listeners(number)) for number in (x, y, shy, near, 99)}
    assert heard == {x: {shy}, y: {near}, shy: {x}, near: set(), 99: set()}


def test_the_plugin_must_be_attached() -> None:
    plugin = PodAffinity()
    plugin.learn(0, needs("cpu=1", anti_affinity=(term("x", HOST),), labels={"app": "x"}), [])
    with pytest.raises(RuntimeError, match="not attached"):
        plugin.add(0, 0, 1)


CLASSES: list[Needs] = [
    needs("cpu=1", labels={"app": "x"}),
    needs("cpu=1", labels={"app": "x"}, anti_affinity=(term("x", "zone"),)),
    needs("cpu=1", labels={"app": "y"}, anti_affinity=(term("x", HOST), term("y", HOST))),
    needs("cpu=1", labels={"app": "z"}, affinity=(term("x", "zone"),)),
    needs("cpu=1", labels={"app": "z"}, affinity=(term("z", "zone"),)),
]


def naive(wants: Needs, pods: list[tuple[Needs, int]], row: int, table: NodeTable) -> bool:
    """The rules, one node and one pod at a time."""

    def value(at: int, key: str) -> str | None:
        there = table.nodes[at]
        return there.labels.get(key) if there else None

    def together(key: str, other: int) -> bool:
        return value(row, key) is not None and value(row, key) == value(other, key)

    def selects(t: PodTerm, pod: Needs) -> bool:
        return t.selector is not None and dict(pod.labels).get("app") in t.selector[0].values

    for pod, where in pods:
        if any(selects(t, pod) and together(t.topology_key, where) for t in wants.anti_affinity):
            return False
        if any(selects(t, wants) and together(t.topology_key, where) for t in pod.anti_affinity):
            return False
    if not wants.affinity:
        return True
    kin = [(p, w) for p, w in pods if all(selects(t, p) for t in wants.affinity)]
    if not any(value(w, t.topology_key) for _, w in kin for t in wants.affinity):
        return all(selects(t, wants) and value(row, t.topology_key) for t in wants.affinity)
    return all(any(together(t.topology_key, w) for _, w in kin) for t in wants.affinity)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=16))
def test_any_sequence_of_placements_is_judged_as_the_rules_say(moves: list[tuple[int, int, bool]]) -> None:
    harness = Harness(PodAffinity())
    numbers = [harness.learn(wants) for wants in CLASSES]
    pods: list[tuple[Needs, int]] = []
    for which, row, leave in moves:
        if leave and (CLASSES[which], row) in pods:
            pods.remove((CLASSES[which], row))
            harness.add(numbers[which], row, -1)
        else:
            pods.append((CLASSES[which], row))
            harness.add(numbers[which], row)
        for number, wants in zip(numbers, CLASSES, strict=True):
            assert harness.open(number) == [r for r in range(4) if naive(wants, pods, r, harness.table)]


# ---------------------------------------------------------------------- host ports


@pytest.fixture
def ports() -> Harness:
    return Harness(HostPorts())


def asks(*numbers: int, protocol: str = "TCP", address: str = "") -> Needs:
    return needs("cpu=1", host_ports=tuple(HostPort(protocol, n, address) for n in numbers))


def test_a_port_is_taken_per_node_and_protocol(ports: Harness) -> None:
    web, dns, both, none = (
        ports.learn(w) for w in (asks(80), asks(53, protocol="UDP"), asks(80, 443), needs())
    )
    ports.add(web, 1)
    assert ports.open(web) == ports.open(both) == [0, 2, 3]
    assert ports.open(dns) == ports.open(none) == [0, 1, 2, 3]
    ports.add(both, 2)
    assert ports.open(web) == [0, 3]
    ports.add(web, 1, -1)
    ports.add(both, 2, -1)
    assert ports.open(both) == [0, 1, 2, 3]
    assert ports.plugin._taken == {}  # type: ignore[union-attr]
    assert ports.plugin.touched(web, 1) == [("", 1)]  # type: ignore[union-attr]


def test_a_port_of_one_address_is_in_the_way_of_that_address_and_of_all(ports: Harness) -> None:
    one, other, every = (ports.learn(asks(80, address=a)) for a in ("10.0.0.1", "10.0.0.2", ""))
    ports.add(one, 1)
    assert ports.open(one) == ports.open(every) == [0, 2, 3]
    assert ports.open(other) == [0, 1, 2, 3]
    ports.add(every, 2)
    assert ports.open(other) == [0, 1, 3]
    assert set(ports.plugin.listens_to(one)) == {one, every}
    (blocker,) = ports.plugin.blockers(ports.needs[one], ports.nodes)
    assert blocker.detail == "80/TCP on 10.0.0.1"


def test_each_port_is_a_finding_of_its_own(ports: Harness) -> None:
    both = ports.learn(asks(80, 443))
    ports.add(ports.learn(asks(443)), 0)
    found = ports.plugin.blockers(ports.needs[both], ports.nodes)
    assert [(f.code, f.detail, f.blocked.tolist()) for f in found] == [
        (Reason.HOST_PORT_TAKEN, "443/TCP", [True, False, False, False])
    ]


def test_classes_with_a_common_port_listen_to_one_another(ports: Harness) -> None:
    web, both, other = ports.learn(asks(80)), ports.learn(asks(80, 443)), ports.learn(asks(22))
    assert set(ports.plugin.listens_to(web)) == {web, both}
    assert set(ports.plugin.listens_to(other)) == {other}
    assert set(ports.plugin.listens_to(99)) == set()
    ports.plugin.forget(web)
    assert not ports.plugin.constrains(web)
    ports.plugin.relabelled([])

"""The static filters and the fit of amounts; a filter's findings block exactly what the filter refuses."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import GPU, needs

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import USED
from windlass.plugins.nodes.availability import NodeAvailable
from windlass.plugins.nodes.node_affinity import NodeAffinity
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.plugins.nodes.taints import TaintToleration, tolerates
from windlass.spi.objects import Expression, Needs, NodeTerm, Taint, Toleration, WeightedNodeTerm

T = Toleration
TAINT = Taint("k", "v", "NoSchedule")


def blocked(plugin, wants: Needs, nodes) -> list[bool]:
    """Return the mask of the blockers, which must be the inverse of the filter."""
    mask = np.zeros(nodes.size, dtype=bool)
    for finding in plugin.blockers(wants, nodes):
        mask |= finding.blocked
    verdict = plugin.filter(wants, nodes)
    assert mask.tolist() == ([False] * nodes.size if verdict is None else (~verdict).tolist())
    return mask.tolist()


# ---------------------------------------------------------------------- taints


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (T("k", "Equal", "v", "NoSchedule"), True),
        (T("k", "Equal", "v"), True),
        (T("k", "", "v"), True),
        (T("k", "Equal", "w"), False),
        (T("k", "Equal", "v", "NoExecute"), False),
        (T("k", "Exists"), True),
        (T("j", "Exists"), False),
        (T("", "Exists"), True),
        (T("", "Exists", "", "NoExecute"), False),
        (T("", "Equal", "v"), False),
        (T("k", "Nonsense", "v"), False),
    ],
)
def test_tolerates(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_hard_taints_refuse_and_each_is_named(view) -> None:
    nodes = view(
        "n1",
        "n2 taint=a=1:NoSchedule",
        "n3 taint=a=1:NoSchedule taint=b:NoExecute",
        "n4 taint=c:PreferNoSchedule",
    )
    plugin = TaintToleration()
    assert blocked(plugin, needs(), nodes) == [False, True, True, False]
    found = {f.detail: f.blocked.tolist() for f in plugin.blockers(needs(), nodes)}
    assert found == {
        "a=1:NoSchedule": [False, True, True, False],
        "b:NoExecute": [False, False, True, False],
    }
    assert blocked(plugin, needs(tolerations=(T("a", "Exists"),)), nodes) == [False, False, True, False]
    assert plugin.filter(needs(tolerations=(T("", "Exists"),)), nodes) is None


def test_soft_taints_cost_score(view) -> None:
    plugin = TaintToleration()
    nodes = view("n1", "n2 taint=a:PreferNoSchedule", "n3 taint=a:PreferNoSchedule taint=b:PreferNoSchedule")
    assert plugin.score(needs(), nodes).tolist() == [100.0, 0.0, 0.0]
    tolerant = needs(tolerations=(T("a", "Exists"),))
    assert plugin.score(tolerant, nodes).tolist() == [100.0, 100.0, 50.0]
    assert plugin.score(needs(), view("n1")) is None


# ---------------------------------------------------------------------- affinity


def test_the_selector_and_one_of_the_terms_must_hold(view) -> None:
    nodes = view("n1 a=1 b=1", "n2 a=1", "n3 b=1", "n4 a=1 b=2")
    plugin = NodeAffinity()
    assert plugin.filter(needs(), nodes) is None
    assert blocked(plugin, needs(node_selector={"a": "1"}), nodes) == [False, False, True, False]
    either = (
        NodeTerm(labels=(Expression("b", "In", ("2",)),)),
        NodeTerm(labels=(Expression("b", "DoesNotExist"),)),
    )
    assert blocked(plugin, needs(node_terms=either), nodes) == [True, False, True, False]
    assert blocked(plugin, needs(node_selector={"a": "1"}, node_terms=either), nodes) == [
        True,
        False,
        True,
        False,
    ]
    assert blocked(plugin, needs(node_terms=()), nodes) == [True] * 4
    for terms, detail in ((either, "b=2 or !b"), ((), "nothing")):
        assert [f.detail for f in plugin.blockers(needs(node_terms=terms), nodes)] == [detail]


def test_each_entry_of_the_selector_is_a_finding_of_its_own(view) -> None:
    nodes = view("n1 a=1", "n2 b=1")
    found = NodeAffinity().blockers(needs(node_selector={"a": "1", "b": "1"}), nodes)
    assert [(f.code, f.detail, f.blocked.tolist()) for f in found] == [
        (Reason.NODE_SELECTOR_MISMATCH, "a=1", [False, True]),
        (Reason.NODE_SELECTOR_MISMATCH, "b=1", [True, False]),
    ]


def test_preferences_score_by_their_share_of_the_weights(view) -> None:
    nodes = view("n1 a=1 b=1", "n2 a=1", "n3")
    wants = needs(
        preferred_nodes=(
            WeightedNodeTerm(30, NodeTerm(labels=(Expression("a", "Exists"),))),
            WeightedNodeTerm(10, NodeTerm(labels=(Expression("b", "Exists"),))),
        )
    )
    assert NodeAffinity().score(wants, nodes).tolist() == [100.0, 75.0, 0.0]
    assert NodeAffinity().score(needs(), nodes) is None
    slight = WeightedNodeTerm(1, NodeTerm(labels=(Expression("b", "Exists"),)))
    assert NodeAffinity().score(needs(preferred_nodes=(slight,)), nodes).tolist() == [100.0, 0.0, 0.0]


# ---------------------------------------------------------------------- availability


def test_cordoned_and_unready_nodes_take_nothing_new(view) -> None:
    nodes = view("n1", "n2 cordoned", "n3 notready", "n4 cordoned notready")
    plugin = NodeAvailable()
    assert blocked(plugin, needs(), nodes) == [False, True, True, True]
    assert [f.code for f in plugin.blockers(needs(), nodes)] == [
        Reason.NODE_NOT_READY,
        Reason.NODE_UNSCHEDULABLE,
    ]
    daemon = needs(tolerations=(T("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule"),))
    assert blocked(plugin, daemon, nodes) == [False, False, True, True]
    assert plugin.blockers(needs(), view("n1")) == []


# ---------------------------------------------------------------------- amounts


def test_capacity_is_the_scarcest_resource_and_findings_are_where_it_is_zero(view) -> None:
    nodes = view("n1 gpu=8 cpu=4", "n2 gpu=3 cpu=64", "n3 cpu=1", "n4 gpu=8 pods=1")
    nodes._table.planes[3, USED, 0] = 1
    plugin = ResourcesFit()
    wants = needs("gpu=2 cpu=1")
    assert plugin.capacity(wants, nodes).tolist() == [4, 1, 0, 0]
    found = plugin.blockers(wants, nodes)
    assert [(f.code, f.resource, f.needed, f.blocked.tolist()) for f in found] == [
        (Reason.INSUFFICIENT_RESOURCES, GPU, 2000, [False, False, True, False]),
        (Reason.TOO_MANY_PODS, "pods", 1, [False, False, False, True]),
    ]
    assert found[0].available.tolist() == [8000, 3000, 0, 8000]


def test_resources_nobody_has_fit_nowhere_and_over_commitment_is_no_negative_room(view) -> None:
    nodes = view("n1 gpu=1")
    nodes._table.planes[0, USED, nodes._table.column(GPU)] = 5000
    assert ResourcesFit().capacity(needs("gpu=1"), nodes).tolist() == [0]
    assert ResourcesFit().capacity(needs("fpga=1"), nodes).tolist() == [0]
    (found,) = ResourcesFit().blockers(needs("gpu=1"), nodes)
    assert (found.available.tolist(), found.most_available) == ([-4000], 0), (
        "what it lacks is told, and is no room"
    )


def test_a_request_for_several_pods_counts_as_such(view) -> None:
    wants = Needs(request=(("pods", 2), ("cpu", 0)))
    assert ResourcesFit().capacity(wants, view("n1 pods=5")).tolist() == [2]


def test_a_taint_with_the_name_of_a_missing_label_is_told(view) -> None:
    nodes = view("n1 taint=gpu-type=A100:NoSchedule", "n2 gpu-type=T4", "n3 gpu-type=A100")
    (found,) = NodeAffinity().blockers(needs(node_selector={"gpu-type": "A100"}), nodes)
    assert found.blocked.tolist() == [True, True, False]
    assert found.detail == "gpu-type=A100; 1 node has a taint gpu-type, which is not a label"

"""kube-scheduler's summary next to Windlass' messages."""

from __future__ import annotations

import pytest

from windlass.api.reasons import Blocker, Explanation, Reason
from windlass.model.cluster.kube_messages import node_summary, pod_reason, with_summary


def told(*blockers: Blocker, nodes: int = 3) -> Explanation:
    return Explanation(Reason.INSUFFICIENT_RESOURCES, "It waits.", blockers, nodes_considered=nodes)


def test_every_obstacle_with_its_nodes_most_first() -> None:
    explanation = told(
        Blocker(Reason.NODE_UNSCHEDULABLE, 1),
        Blocker(Reason.INSUFFICIENT_RESOURCES, 2, "rdma/roce_v2", "1", "0"),
    )
    assert with_summary(explanation) == (
        "It waits. (0/3 nodes are available: 2 Insufficient rdma/roce_v2, 1 node(s) were unschedulable)"
    )


def test_one_phrase_for_selector_and_affinity() -> None:
    both = told(Blocker(Reason.NODE_SELECTOR_MISMATCH, 1), Blocker(Reason.NODE_AFFINITY_MISMATCH, 2))
    assert (
        node_summary(both)
        == "0/3 nodes are available: 2 node(s) didn't match Pod's node affinity/selector (MatchNodeSelector)"
    )


def test_reason_unrelated_to_nodes_has_no_summary() -> None:
    assert with_summary(told(Blocker(Reason.WAITING_FOR_QUOTA, 0, "cpu", "2", "1"))) == "It waits."
    assert node_summary(told()) == ""


def test_overall_reason_is_not_counted_for_every_node() -> None:
    whole = Blocker(Reason.VOLUME_UNAVAILABLE, 3, "tasks", "1", "0", "what the nodes hold now")
    elsewhere = Blocker(
        Reason.VOLUME_UNAVAILABLE, 2, detail="the volume of claim a/b is reached from zone=a only"
    )
    assert node_summary(told(whole, elsewhere)) == (
        "0/3 nodes are available: 2 node(s) didn't find available persistent volumes to bind"
    )
    full = Blocker(Reason.VOLUME_UNAVAILABLE, 1, "attachable-volumes-csi-x.example.com", "1", "0")
    assert node_summary(told(full)) == "0/3 nodes are available: 1 node(s) exceed max volume count"


CALLS = {
    Reason.EXCEEDS_CLUSTER,
    Reason.EXCEEDS_EVERY_NODE,
    Reason.EXCEEDS_EVERY_DOMAIN,
    Reason.NO_MATCHING_NODE,
    Reason.INSUFFICIENT_RESOURCES,
    Reason.TOPOLOGY_PLACEMENT_FAILED,
    Reason.DEVICES_FRAGMENTED,
    Reason.DISRUPTION_BUDGETS,
}
"""Overall reasons of a group that more nodes would remove."""
OF_GROUPS = list(Reason)[: list(Reason).index(Reason.NODE_SELECTOR_MISMATCH)]
IN_THE_WAY = [
    Reason.EXCEEDS_QUEUE_LIMIT,
    Reason.MISCONFIGURED,
    Reason.NAMESPACE_QUOTA,
    Reason.ON_HOLD,
    Reason.SCHEDULING_GATED,
    Reason.WAITING_FOR_MEMBERS,
    Reason.WAITING_FOR_QUOTA,
    Reason.CLAIM_UNAVAILABLE,
]
"""Reasons that hold a group although there are enough nodes."""


@pytest.mark.parametrize("reason", [*OF_GROUPS, *sorted(set(Reason) - set(OF_GROUPS))])
def test_pod_that_waits_for_something_else_requests_no_nodes(reason: Reason) -> None:
    """Each is named here, so that none becomes a call unseen: a suspended gang, one that is behind another …"""
    called = pod_reason(Explanation(reason, "It waits.", nodes_considered=3)) == "Unschedulable"
    assert called is (reason in CALLS or (reason not in OF_GROUPS and reason not in IN_THE_WAY))


@pytest.mark.parametrize("other", IN_THE_WAY)
def test_pod_that_also_waits_for_something_else_requests_no_nodes(other: Reason) -> None:
    beside = Explanation(Reason.EXCEEDS_CLUSTER, "It waits.", (Blocker(other),), nodes_considered=3)
    assert pod_reason(beside) == "SchedulingGated"
    behind = (Blocker(Reason.BEHIND_IN_QUEUE), Blocker(Reason.WAITING_FOR_SHARE))
    assert pod_reason(Explanation(Reason.EXCEEDS_CLUSTER, "It waits.", behind)) == "Unschedulable"


def test_unavailable_claim_requests_no_nodes() -> None:
    reason = Reason.CLAIM_UNAVAILABLE
    blockers = (Blocker(reason, 3, detail="claim a/b does not exist"), Blocker(Reason.NODE_UNSCHEDULABLE, 1))
    record = Explanation(reason, "It waits.", blockers, nodes_considered=3)
    assert pod_reason(record) == "SchedulingGated"
    assert with_summary(record) == "It waits."


def test_the_three_words_that_guides_search_for() -> None:
    """F39: ``Insufficient``, ``MatchNodeSelector`` and ``PodGroup not ready`` in ``kubectl describe pod``."""
    short = Blocker(Reason.INSUFFICIENT_RESOURCES, 2, "nvidia.com/gpu", "1", "0")
    record = Explanation(Reason.INSUFFICIENT_RESOURCES, "It waits.", (short,), nodes_considered=2)
    assert "2 Insufficient nvidia.com/gpu" in with_summary(record)
    selector = Blocker(Reason.NODE_SELECTOR_MISMATCH, 2, detail="gpu=a")
    record = Explanation(Reason.NO_MATCHING_NODE, "It waits.", (selector,), nodes_considered=2)
    assert "MatchNodeSelector" in with_summary(record)
    gang = Explanation(Reason.WAITING_FOR_MEMBERS, "It has 1 of the 3 pods that it needs.")
    assert with_summary(gang) == "PodGroup not ready: It has 1 of the 3 pods that it needs."

"""kube-scheduler's words beside our own."""

from __future__ import annotations

from windlass.api.reasons import Blocker, Explanation, Reason
from windlass.model.kubewords import node_summary, with_summary


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
        node_summary(both) == "0/3 nodes are available: 2 node(s) didn't match Pod's node affinity/selector"
    )


def test_what_is_not_about_nodes_has_no_summary() -> None:
    assert with_summary(told(Blocker(Reason.WAITING_FOR_QUOTA, 0, "cpu", "2", "1"))) == "It waits."
    assert node_summary(told()) == ""

"""Summary in kube-scheduler's words, for users and tools that search for them.

``0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) were
unschedulable.`` The phrases are those of kube-scheduler's plugins (Kubernetes 1.36).
Unlike there, a node counts under every obstacle it has.
"""

from __future__ import annotations

from windlass.api.reasons import Blocker, Explanation, Reason

_SELECTOR = "MatchNodeSelector"
"""Name of the predicate in older kube-schedulers, which guides tell users to search for."""
_NOT_READY = "PodGroup not ready"
"""Words of Volcano and the coscheduling plugin for a gang below its minimum."""
_PHRASES = {
    Reason.NODE_SELECTOR_MISMATCH: f"node(s) didn't match Pod's node affinity/selector ({_SELECTOR})",
    Reason.NODE_AFFINITY_MISMATCH: f"node(s) didn't match Pod's node affinity/selector ({_SELECTOR})",
    Reason.TAINT_NOT_TOLERATED: "node(s) had untolerated taint(s)",
    Reason.NODE_UNSCHEDULABLE: "node(s) were unschedulable",
    Reason.NODE_NOT_READY: "node(s) were not ready",
    Reason.POD_AFFINITY_MISMATCH: "node(s) didn't match pod affinity rules",
    Reason.POD_ANTI_AFFINITY_CONFLICT: "node(s) didn't match pod anti-affinity rules",
    Reason.HOST_PORT_TAKEN: "node(s) didn't have free ports for the requested pod ports",
    Reason.TOO_MANY_PODS: "Too many pods",
    Reason.VOLUME_UNAVAILABLE: "node(s) didn't find available persistent volumes to bind",
    Reason.TOPOLOGY_SPREAD_CONFLICT: "node(s) didn't match pod topology spread constraints",
    Reason.NO_SUITABLE_DEVICE: "node(s) didn't have devices of the kind",
    Reason.DEVICE_SHARES_TAKEN: "node(s) didn't have enough left of one device",
    Reason.NODE_OVERLOADED: "node(s) were overloaded",
    Reason.NODE_RESERVED: "node(s) were reserved",
    Reason.REFUSED_BY_EXTENDER: "node(s) were refused by the extender",
}


_MORE_NODES_HELP = frozenset(
    (
        Reason.EXCEEDS_CLUSTER,
        Reason.EXCEEDS_EVERY_NODE,
        Reason.EXCEEDS_EVERY_DOMAIN,
        Reason.NO_MATCHING_NODE,
        Reason.INSUFFICIENT_RESOURCES,
        Reason.TOPOLOGY_PLACEMENT_FAILED,
        Reason.DEVICES_FRAGMENTED,
        Reason.NUMA_ALIGNMENT_FAILED,
        Reason.DISRUPTION_BUDGETS,
        *_PHRASES,
    )
)
_NO_NODES_HELP = frozenset(
    (
        Reason.MISCONFIGURED,
        Reason.EXCEEDS_QUEUE_LIMIT,
        Reason.ON_HOLD,
        Reason.EARLIEST_START,
        Reason.SCHEDULING_GATED,
        Reason.WAITING_FOR_MEMBERS,
        Reason.WAITING_FOR_QUOTA,
        Reason.NAMESPACE_QUOTA,
        Reason.CLAIM_UNAVAILABLE,
    )
)
"""Reasons that additional nodes do not remove.

They also decide if the pod waits for nodes as well: in a cluster that has shrunk,
nearly all pods do.
"""


UNSCHEDULABLE, GATED = "Unschedulable", "SchedulingGated"
PLACED = frozenset(
    (Reason.RESERVING_DEVICE, Reason.AWAITING_VOLUME, Reason.AWAITING_DEVICE, Reason.AWAITING_NODE_LOCK)
)
"""Reasons of pods with a selected node that wait to be bound.

These are no scheduling failures.
"""


def pod_reason(explanation: Explanation) -> str:
    """Return the reason of a pod's condition ``PodScheduled=False``.

    Cluster autoscalers read ``Unschedulable`` as a request for nodes. So it is used
    only if more nodes could help and nothing else is in the way. A group that waits for
    its share of the cluster also counts, if the nodes lack capacity: its share grows
    with the cluster.
    """
    if any(blocker.code in _NO_NODES_HELP for blocker in explanation.blockers):
        return GATED
    if explanation.code in _MORE_NODES_HELP:
        return UNSCHEDULABLE
    if explanation.code is Reason.WAITING_FOR_SHARE and node_summary(explanation):
        return UNSCHEDULABLE
    return "SchedulerError" if explanation.code is Reason.BIND_FAILED else GATED


def with_summary(explanation: Explanation) -> str:
    """Return the explanation's message, with kube-scheduler's summary if nodes are insufficient.

    For a gang that lacks members the message begins with the words of gang schedulers.
    """
    summary = node_summary(explanation)
    if explanation.code is Reason.WAITING_FOR_MEMBERS:
        return f"{_NOT_READY}: {explanation.message}"
    return f"{explanation.message} ({summary})" if summary else explanation.message


def node_summary(explanation: Explanation) -> str:
    """Return the summary alone; empty if no node is the cause."""
    if explanation.code is Reason.CLAIM_UNAVAILABLE:
        return ""
    phrases: dict[str, int] = {}
    for blocker in explanation.blockers:
        phrase = _phrase(blocker)
        if blocker.nodes and phrase:
            phrases[phrase] = max(phrases.get(phrase, 0), blocker.nodes)
    if not phrases:
        return ""
    parts = sorted(phrases.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{nodes} {phrase}" for phrase, nodes in parts)
    return f"0/{explanation.nodes_considered} nodes are available: {listed}"


def _phrase(blocker: Blocker) -> str:
    if blocker.resource == "tasks":
        return ""  # the overall reason; the groups it affects are listed separately
    if blocker.code is Reason.VOLUME_UNAVAILABLE and blocker.resource:
        return "node(s) exceed max volume count"
    if blocker.resource and blocker.resource != "pods":
        return f"Insufficient {blocker.resource}"
    return _PHRASES.get(blocker.code, "")

"""The summary that kube-scheduler would give, so that eyes and tools that look for its words find them.

``0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.`` Phrases as in
kube-scheduler's plugins (Kubernetes 1.36). Unlike there, a node counts under every obstacle it has.
"""

from __future__ import annotations

from windlass.api.reasons import Blocker, Explanation, Reason

_PHRASES = {
    Reason.NODE_SELECTOR_MISMATCH: "node(s) didn't match Pod's node affinity/selector",
    Reason.NODE_AFFINITY_MISMATCH: "node(s) didn't match Pod's node affinity/selector",
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
        Reason.SCHEDULING_GATED,
        Reason.WAITING_FOR_MEMBERS,
        Reason.WAITING_FOR_QUOTA,
        Reason.NAMESPACE_QUOTA,
        Reason.CLAIM_UNAVAILABLE,
    )
)
"""Whoever waits for one of these beside nodes would wait on if they came: in a cluster that has shrunk, nearly all wait
for nodes as well."""


UNSCHEDULABLE, GATED = "Unschedulable", "SchedulingGated"
PLACED = frozenset(
    (Reason.RESERVING_DEVICE, Reason.AWAITING_VOLUME, Reason.AWAITING_DEVICE, Reason.AWAITING_NODE_LOCK)
)
"""Who waits for one of these has his node: it is no failure to schedule him."""


def pod_reason(told: Explanation) -> str:
    """The reason of a pod's condition ``PodScheduled=False``. What grows clusters reads ``Unschedulable`` as a call
    for nodes: it stands only where more of them could help, and nothing else is in the way. A share of what there is
    grows with it, so where the nodes lack room as well, more of them help."""
    if any(blocker.code in _NO_NODES_HELP for blocker in told.blockers):
        return GATED
    if told.code in _MORE_NODES_HELP:
        return UNSCHEDULABLE
    if told.code is Reason.WAITING_FOR_SHARE and node_summary(told):
        return UNSCHEDULABLE
    return "SchedulerError" if told.code is Reason.BIND_FAILED else GATED


def with_summary(told: Explanation) -> str:
    """The explanation's sentence, followed by kube-scheduler's summary where nodes are what it lacks."""
    summary = node_summary(told)
    return f"{told.message} ({summary})" if summary else told.message


def node_summary(told: Explanation) -> str:
    """The summary alone; empty when no node is to blame."""
    if told.code is Reason.CLAIM_UNAVAILABLE:
        return ""
    phrases: dict[str, int] = {}
    for blocker in told.blockers:
        phrase = _phrase(blocker)
        if blocker.nodes and phrase:
            phrases[phrase] = max(phrases.get(phrase, 0), blocker.nodes)
    if not phrases:
        return ""
    parts = sorted(phrases.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{nodes} {phrase}" for phrase, nodes in parts)
    return f"0/{told.nodes_considered} nodes are available: {listed}"


def _phrase(blocker: Blocker) -> str:
    if blocker.resource == "tasks":
        return ""  # the reason as a whole: whom it holds on is told apart
    if blocker.code is Reason.VOLUME_UNAVAILABLE and blocker.resource:
        return "node(s) exceed max volume count"
    if blocker.resource and blocker.resource != "pods":
        return f"Insufficient {blocker.resource}"
    return _PHRASES.get(blocker.code, "")

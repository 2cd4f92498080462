"""Conditions and taints of silent nodes, and evictions of their pods.

A node with a heartbeat that was not *observed to change* for 40 s is unreachable: its
Ready condition becomes Unknown. The time of the observation counts, not the time stamp
in the heartbeat. So neither a jump of a clock nor a stopped control plane evicts a pod.
A node that is not ready gets the taints of Kubernetes. While no node is ready, nothing
is evicted: then the control plane itself is probably disconnected.

Members of gangs leave an unreachable node after :data:`DEAD_SECONDS`, not after the
default of 300 s, and without the confirmation of its agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.resources import NODES, PODS
from windlass.api.views import NodeObject, Pod
from windlass.controllers.effects import (
    NOTHING,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    pod_reference,
    reference,
)
from windlass.controllers.nodehealth import taints
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
GRACE_SECONDS = 40.0
MISSING_SECONDS = 40.0
"""Time (seconds) that a node must be missing before its pods count as lost."""
DEAD_SECONDS = 20.0
"""Time (seconds) after which members of gangs are deleted from a node that is unreachable."""
DEAD_GRACE_SECONDS = 5
"""Grace period (seconds) of such a deletion: the node may come back and stop them itself."""
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """Observations about a node.

    ``stale_seconds``: time since a heartbeat was last observed to change.
    ``others_ready``: at least one node is ready.
    """

    stale_seconds: float
    others_ready: bool
    now: float


@dataclass(frozen=True, slots=True)
class PodSnapshot:
    """``node`` None: it does not exist, since ``missing_seconds``."""

    node: NodeObject | None
    missing_seconds: float
    now: float


def reconcile_node(node: Json, observed: NodeSnapshot) -> Effects:
    """Reconcile one node. Pure."""
    metadata = node["metadata"]
    if metadata.get("deletionTimestamp"):
        return NOTHING
    plan = EffectPlan(about=reference(NODES, node))
    stale = observed.stale_seconds >= GRACE_SECONDS
    conditions = (node.get("status") or {}).get("conditions") or []
    if stale:
        renewed = _unknown(conditions, observed.now)
        if renewed != conditions:
            plan.stage(_patch(node, {"status": {"conditions": renewed}}, "status"))
            message = f"Node {metadata['name']} has sent no heartbeat for {GRACE_SECONDS:.0f} s"
            plan.event(EmitEvent(reference(NODES, node), "Normal", "NodeNotReady", message))
        conditions = renewed
    else:
        plan.requeue(GRACE_SECONDS - observed.stale_seconds)
    ready = next((c.get("status", "") for c in conditions if c.get("type") == "Ready"), None)
    present = (node.get("spec") or {}).get("taints") or []
    if ready is None:  # no report yet
        return plan.done()
    wanted = taints.adjust(present, taints.wanted(ready, execute=observed.others_ready), observed.now)
    if wanted != present:
        plan.stage(_patch(node, {"spec": {"taints": wanted}}, None))
    return plan.done()


def _patch(node: Json, change: Json, subresource: str | None) -> Patch:
    return Patch(
        NODES, node["metadata"]["name"], change, subresource=subresource, uid=node["metadata"]["uid"]
    )


def _unknown(conditions: list[Json], now: float) -> list[Json]:
    """Return the conditions with those that the node reports set to Unknown."""
    result = []
    for condition in conditions:
        if condition.get("type") in _REPORTED and condition.get("status") != "Unknown":
            condition = {
                **condition,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": rfc3339(now),
            }
        result.append(condition)
    if not any(condition.get("type") == "Ready" for condition in conditions):
        result.append(
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": rfc3339(now),
                "lastTransitionTime": rfc3339(now),
            }
        )
    return result


def reconcile_pod(pod: Pod, observed: PodSnapshot) -> Effects:
    """Reconcile one bound pod. Pure."""
    if observed.node is None:
        return _of_lost_node(pod, observed)
    if pod.finished:
        return NOTHING
    unreachable = taints.unreachable_since(observed.node.taints, observed.now)
    if unreachable is not None and _is_recreated(pod):
        return _of_dead_node(pod, unreachable, observed)
    if pod.deleting:
        return NOTHING
    due = taints.eviction_due(pod.shape.tolerations, observed.node.taints, observed.now)
    if due is None:
        return NOTHING
    if due > observed.now:
        return Effects(requeue_after=due - observed.now)
    message = f"Marking for deletion Pod {pod.key}: node {observed.node.name} is tainted"
    event = EmitEvent(pod_reference(pod), "Normal", "TaintManagerEviction", message)
    return Effects(stages=((Delete(PODS, pod.name, pod.namespace, pod.uid),),), events=(event,))


def _is_recreated(pod: Pod) -> bool:
    """Return whether the pod is a member of a gang that its job creates again."""
    grouped = names.GROUP_NAME in pod.annotations or names.GROUP_NAME_VOLCANO in pod.annotations
    return grouped and pod.controller is not None and not taints.bears_unreachable(pod.shape.tolerations)


def _of_dead_node(pod: Pod, since: float, observed: PodSnapshot) -> Effects:
    """Delete a member of a gang from a node that does not answer, first with grace, then without.

    The others of the gang wait for it, so the default of 300 s would be lost for all of
    them. No agent is left that could confirm the deletion.
    """
    if pod.deleting:
        if pod.deleted > observed.now:
            return Effects(requeue_after=pod.deleted - observed.now)
        message = f"Deleting Pod {pod.key}: its node {pod.node_name} does not answer and cannot stop it"
        event = EmitEvent(pod_reference(pod), "Warning", "NodeLost", message)
        return Effects(
            stages=((Delete(PODS, pod.name, pod.namespace, pod.uid, grace_seconds=0),),), events=(event,)
        )
    due = since + DEAD_SECONDS
    if due > observed.now:
        return Effects(requeue_after=due - observed.now)
    message = (
        f"Marking for deletion Pod {pod.key}: node {pod.node_name} does not answer, and its gang waits for it"
    )
    event = EmitEvent(pod_reference(pod), "Warning", "NodeLost", message)
    delete = Delete(PODS, pod.name, pod.namespace, pod.uid, grace_seconds=DEAD_GRACE_SECONDS)
    return Effects(
        stages=((_lost(pod),), (delete,)), events=(event,), requeue_after=float(DEAD_GRACE_SECONDS)
    )


def _lost(pod: Pod) -> Patch:
    """Return the write of the reason, so that the restart of the job counts as one by its node."""
    status = {"reason": "NodeLost", "message": f"node {pod.node_name} does not answer or is gone"}
    return Patch(PODS, pod.name, {"status": status}, pod.namespace, subresource="status", uid=pod.uid)


def _of_lost_node(pod: Pod, observed: PodSnapshot) -> Effects:
    """Delete the pod without grace: no agent is left that could stop it."""
    if observed.missing_seconds < MISSING_SECONDS:
        return Effects(requeue_after=MISSING_SECONDS - observed.missing_seconds)
    message = f"Deleting Pod {pod.key}: its node {pod.node_name} does not exist any more"
    event = EmitEvent(pod_reference(pod), "Warning", "NodeLost", message)
    delete = Delete(PODS, pod.name, pod.namespace, pod.uid, grace_seconds=0)
    if pod.finished:
        return Effects(stages=((delete,),), events=(event,))
    return Effects(stages=((_lost(pod),), (delete,)), events=(event,))

"""One look at a node, and one at a pod on a node.

A node whose heartbeat has not been *seen to change* for 40 s is not heard of: its Ready condition becomes
Unknown. Not the heartbeat's time stamp counts but when a change of it was seen, so that neither a
clock that jumps nor a control plane that was down evicts anything. A node that is not ready gets the
taints of Kubernetes. While no node at all is ready, nothing is evicted: then it is more likely the
control plane that is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.api.resources import NODES, PODS
from windlass.api.views import NodeObject, Pod
from windlass.controllers.effects import (
    NOTHING,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    ObjectRef,
    Patch,
    reference,
)
from windlass.controllers.nodehealth import taints
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
GRACE_SECONDS = 40.0
GONE_SECONDS = 40.0
"""How long a node must be missing before its pods are taken for lost."""
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class NodeObserved:
    """``silent_seconds``: since a heartbeat was last seen to change. ``others_ready``: some node is ready."""

    silent_seconds: float
    others_ready: bool
    now: float


@dataclass(frozen=True, slots=True)
class PodObserved:
    """``node`` None: it does not exist, since ``missing_seconds``."""

    node: NodeObject | None
    missing_seconds: float
    now: float


def step_node(node: Json, seen: NodeObserved) -> Effects:
    """Look at a node once. Pure."""
    metadata = node["metadata"]
    if metadata.get("deletionTimestamp"):
        return NOTHING
    plan = EffectPlan(about=reference(NODES, node))
    silent = seen.silent_seconds >= GRACE_SECONDS
    conditions = (node.get("status") or {}).get("conditions") or []
    if silent:
        renewed = _unknown(conditions, seen.now)
        if renewed != conditions:
            plan.stage(_patch(node, {"status": {"conditions": renewed}}, "status"))
            words = f"Node {metadata['name']} has not been heard of for {GRACE_SECONDS:.0f} s"
            plan.event(EmitEvent(reference(NODES, node), "Normal", "NodeNotReady", words))
        conditions = renewed
    else:
        plan.look_again(GRACE_SECONDS - seen.silent_seconds)
    ready = next((c.get("status", "") for c in conditions if c.get("type") == "Ready"), None)
    present = (node.get("spec") or {}).get("taints") or []
    if ready is None:  # nobody has reported yet
        return plan.done()
    wanted = taints.adjust(present, taints.wanted(ready, execute=seen.others_ready), seen.now)
    if wanted != present:
        plan.stage(_patch(node, {"spec": {"taints": wanted}}, None))
    return plan.done()


def _patch(node: Json, change: Json, subresource: str | None) -> Patch:
    return Patch(
        NODES, node["metadata"]["name"], change, subresource=subresource, uid=node["metadata"]["uid"]
    )


def _unknown(conditions: list[Json], now: float) -> list[Json]:
    """What the node reported is not known any more."""
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


def step_pod(pod: Pod, seen: PodObserved) -> Effects:
    """Look at a bound pod once. Pure."""
    if seen.node is None:
        return _of_lost_node(pod, seen)
    if pod.deleting or pod.finished:
        return NOTHING
    due = taints.eviction_due(pod.shape.tolerations, seen.node.taints, seen.now)
    if due is None:
        return NOTHING
    if due > seen.now:
        return Effects(requeue_after=due - seen.now)
    words = f"Marking for deletion Pod {pod.key}: node {seen.node.name} is tainted"
    event = EmitEvent(_about(pod), "Normal", "TaintManagerEviction", words)
    return Effects(stages=((Delete(PODS, pod.name, pod.namespace, pod.uid),),), events=(event,))


def _of_lost_node(pod: Pod, seen: PodObserved) -> Effects:
    """Nobody is left who could end the pod, so it is deleted without grace."""
    if seen.missing_seconds < GONE_SECONDS:
        return Effects(requeue_after=GONE_SECONDS - seen.missing_seconds)
    words = f"Deleting Pod {pod.key}: its node {pod.node_name} does not exist any more"
    event = EmitEvent(_about(pod), "Warning", "NodeLost", words)
    delete = Delete(PODS, pod.name, pod.namespace, pod.uid, grace_seconds=0)
    return Effects(stages=((delete,),), events=(event,))


def _about(pod: Pod) -> ObjectRef:
    return ObjectRef(PODS.api_version, PODS.kind, pod.namespace, pod.name, pod.uid, pod.resource_version)

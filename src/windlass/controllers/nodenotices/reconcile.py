"""Evictions from nodes with a notice, and pods that are created again after them.

From a spot machine that ends soon all pods are evicted, from a slow node those of high
priority. Nothing new is placed on such a node. Disruption budgets are not asked: the
machine ends anyway, and a slow node serves a high priority badly. A pod of a controller
is recreated by it. A bare pod is created again here, with its age in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.priorities import HIGH_PRIORITY
from windlass.api.resources import NODES, POD_GROUPS, PODS
from windlass.api.views import Pod
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    pod_reference,
    reference,
)
from windlass.controllers.nodenotices.notices import NodeNotice, NoticeKind, adjusted
from windlass.kits.timestamps import rfc3339
from windlass.model.records import displacement
from windlass.model.records.displacement import EvictedFor

Json = dict[str, Any]
_OF_NODES = ("DaemonSet", "Node")
_PLACEMENT = (
    names.DEVICES,
    names.DEVICE_SHARES,
    names.DEVICE_SLICES,
    names.NUMA_PLACEMENT,
    names.EXPLANATION,
    names.REQUEUED,
    names.VISIBLE_DEVICES,
)
"""Annotations of a pod that its placement wrote."""


def reconcile_node(node: Json, notice: NodeNotice) -> Effects:
    """Adjust the taints of a node. Pure."""
    present = (node.get("spec") or {}).get("taints") or []
    wanted = adjusted(present, notice)
    if wanted == present:
        return NOTHING
    plan = EffectPlan(about=reference(NODES, node))
    metadata = node["metadata"]
    plan.stage(Patch(NODES, metadata["name"], {"spec": {"taints": wanted or None}}, uid=metadata["uid"]))
    if notice.kind is not None:
        message = f"Node {metadata['name']} takes no new pods: {notice.detail}"
        plan.event(EmitEvent(reference(NODES, node), "Warning", str(notice.kind), message))
    return plan.done()


def must_leave(pod: Pod, notice: NodeNotice) -> bool:
    """Return whether a bound pod leaves its node because of the notice."""
    if notice.kind is None or pod.finished or pod.node_name != notice.name:
        return False
    if pod.controller is not None and pod.controller.kind in _OF_NODES:
        return False
    if any(owner.kind in _OF_NODES for owner in pod.owners):
        return False
    return notice.kind is NoticeKind.SPOT or (pod.priority or 0) >= HIGH_PRIORITY


def evict(pod: Pod, group: Json | None, notice: NodeNotice, now: float) -> Effects:
    """Evict a pod from its node. ``group``: its PodGroup, if it has one. Pure."""
    assert notice.kind is not None
    reason = f"node {notice.name}: {notice.detail}"
    plan = EffectPlan(about=pod_reference(pod))
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": str(notice.kind),
        "message": reason,
        "lastTransitionTime": rfc3339(now),
    }
    conditions = {"status": {"conditions": [condition]}}
    marks: list[Patch] = [
        Patch(PODS, pod.name, conditions, pod.namespace, subresource="status", uid=pod.uid),
    ]
    if pod.controller is None:
        mark = {"metadata": {"annotations": {names.REQUEUED: str(notice.kind)}}}
        marks.append(Patch(PODS, pod.name, mark, pod.namespace, uid=pod.uid))
    if group is not None:
        record = _record(group["metadata"].get("annotations") or {}, pod.name, notice, now)
        since = queued_since(group)
        patch = {"metadata": {"annotations": {names.EVICTED_FOR: record, names.QUEUED_SINCE: since}}}
        marks.append(Patch(POD_GROUPS, group["metadata"]["name"], patch, pod.namespace))
    plan.stage(*marks)
    plan.stage(Delete(PODS, pod.name, pod.namespace, pod.uid, grace_seconds=_grace(pod, notice, now)))
    plan.event(EmitEvent(pod_reference(pod), "Warning", str(notice.kind), f"Evicted from {reason}"))
    if group is not None:
        plan.event(
            EmitEvent(reference(POD_GROUPS, group), "Warning", str(notice.kind), f"Evicted from {reason}")
        )
    return plan.done()


def _grace(pod: Pod, notice: NodeNotice, now: float) -> int | None:
    """Return the grace period, which ends before the machine does; ``None``: that of the pod."""
    if not notice.deadline:
        return None
    left = max(1, int(notice.deadline - now))
    return None if pod.grace_seconds <= left else left


def _record(before: Mapping[str, str], pod: str, notice: NodeNotice, now: float) -> str:
    known = displacement.evicted_for(before)
    times = 1 if known is None else known.times + 1
    return displacement.encode(
        EvictedFor(
            rfc3339(now), str(notice.kind), "", f"node {notice.name}: {notice.detail}", (pod,), times=times
        )
    )


def queued_since(obj: Json) -> str:
    """Return since when an object counts in the order of its queue (RFC 3339)."""
    metadata = obj["metadata"]
    return (metadata.get("annotations") or {}).get(names.QUEUED_SINCE) or metadata["creationTimestamp"]


def is_recreated(pod: Json) -> bool:
    """Return whether a bare pod is created again after its eviction."""
    metadata = pod["metadata"]
    owned = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
    return not owned and (pod.get("spec") or {}).get("restartPolicy") != "Never"


def successor(pod: Json, now: float) -> Effects:
    """Create a bare pod again that was evicted and is gone. Pure."""
    metadata, spec = pod["metadata"], dict(pod["spec"])
    annotations = dict(metadata.get("annotations") or {})
    kind = annotations.get(names.REQUEUED, "")
    if annotations.get(names.GROUP_NAME) == f"podgroup-{metadata['uid']}":
        del annotations[names.GROUP_NAME]  # its own group is deleted with it
    node = spec.pop("nodeName", "")
    known = displacement.evicted_for(annotations)
    record = EvictedFor(
        rfc3339(now), kind, "", f"it was on node {node}", times=1 if known is None else known.times + 1
    )
    kept = {key: text for key, text in annotations.items() if key not in _PLACEMENT}
    kept |= {names.QUEUED_SINCE: queued_since(pod), names.EVICTED_FOR: displacement.encode(record)}
    made: Json = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata.get("labels") or {},
            "annotations": kept,
        },
        "spec": spec,
    }
    return Effects(stages=((Create(PODS, made),),))

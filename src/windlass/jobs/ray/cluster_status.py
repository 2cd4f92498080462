"""Status of a RayCluster: state, conditions, counts and endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.fields import ray
from windlass.api.fields.ray import HEAD
from windlass.api.quantities import add, from_units
from windlass.jobs.gang import pod_request
from windlass.jobs.members import RolePod
from windlass.jobs.ray.cluster import RayCluster
from windlass.kits.timestamps import rfc3339

Json = Mapping[str, Any]
READY, SUSPENDED, FAILED = "ready", "suspended", "failed"


def render(
    cluster: RayCluster,
    obj: Json,
    pods: Sequence[RolePod],
    addresses: Mapping[str, str],
    service_ip: str,
    now: float,
) -> dict[str, Any]:
    """Return the status. ``addresses``: pod → its IP; ``service_ip``: of the head's Service."""
    before = obj.get("status") or {}
    head = next((pod for pod in pods if pod.role == HEAD and not pod.finished), None)
    dead = next((pod for pod in pods if pod.role == HEAD and pod.failed), None)
    workers = [pod for pod in pods if pod.role != HEAD]
    desired = sum(group.replicas for group in cluster.workers)
    ready_workers = sum(pod.ready for pod in workers)
    all_ready = head is not None and head.ready and ready_workers >= desired
    provisioned = all_ready or _is_true(before, "RayClusterProvisioned")
    state = before.get("state") or ""
    if cluster.suspend:
        state = SUSPENDED if not pods else state
        provisioned = False
    elif all_ready:
        state = READY
    elif state == SUSPENDED:
        state = ""
    status: dict[str, Any] = {
        "desiredWorkerReplicas": desired,
        "minWorkerReplicas": sum(group.minimum for group in cluster.workers),
        "maxWorkerReplicas": _most(obj),
        "availableWorkerReplicas": sum(pod.running for pod in workers),
        "readyWorkerReplicas": ready_workers,
        "observedGeneration": obj["metadata"].get("generation", 1),
        **_desired_resources(cluster),
        "conditions": _conditions(cluster, before, head or dead, workers, provisioned, bool(pods), now),
        "endpoints": _endpoints(cluster),
    }
    if state:
        status["state"] = state
        times = dict(before.get("stateTransitionTimes") or {})
        if state != before.get("state"):
            times[state] = rfc3339(now)
        status["stateTransitionTimes"] = times
    if head is not None:
        status["head"] = {
            "podName": head.name,
            "podIP": addresses.get(head.name, ""),
            "serviceName": ray.head_service_name(cluster.name),
            "serviceIP": service_ip or addresses.get(head.name, ""),
        }
    if {**status, "lastUpdateTime": ""} != {**before, "lastUpdateTime": ""}:
        status["lastUpdateTime"] = rfc3339(now)
    else:
        status["lastUpdateTime"] = before.get("lastUpdateTime")
    return status


def _most(obj: Json) -> int:
    groups = obj["spec"].get("workerGroupSpecs") or ()
    return min(
        2**31 - 1,
        sum(
            int(group["maxReplicas"] if group.get("maxReplicas") is not None else 2**31 - 1)
            * int(group.get("numOfHosts") or 1)
            for group in groups
        ),
    )


def _desired_resources(cluster: RayCluster) -> dict[str, str]:
    total: dict[str, int] = {}
    for group in cluster.groups:
        request = pod_request(group.pod_spec)
        total = add(total, {name: units * group.replicas for name, units in request.items()})
    gpus = sum(units for name, units in total.items() if name.endswith("gpu"))
    tpus = total.get("google.com/tpu", 0)
    return {
        "desiredCPU": from_units("cpu", total.get("cpu", 0)),
        "desiredMemory": from_units("memory", total.get("memory", 0)),
        "desiredGPU": from_units("nvidia.com/gpu", gpus),
        "desiredTPU": from_units("google.com/tpu", tpus),
    }


def _endpoints(cluster: RayCluster) -> dict[str, str]:
    ports = (cluster.head.pod_spec.get("containers") or [{}])[0].get("ports") or ()
    declared = {port["name"]: str(port["containerPort"]) for port in ports if port.get("name")}
    return {**{name: str(number) for name, number in ray.HEAD_PORTS.items()}, **declared}


def _is_true(status: Json, kind: str) -> bool:
    return any(
        one.get("type") == kind and one.get("status") == "True" for one in status.get("conditions") or ()
    )


def _conditions(
    cluster: RayCluster,
    before: Json,
    head: RolePod | None,
    workers: Sequence[RolePod],
    provisioned: bool,
    has_pods: bool,
    now: float,
) -> list[dict[str, Any]]:
    """Return the conditions of KubeRay. One that was never true and has nothing to say is left out."""
    known = {one.get("type"): one for one in before.get("conditions") or ()}
    head_reason, head_message = _head_state(head)
    wanted: dict[str, tuple[bool, str, str]] = {
        "HeadPodReady": (head is not None and head.ready and not head.failed, head_reason, head_message),
        "RayClusterProvisioned": (
            provisioned,
            "AllPodRunningAndReadyFirstTime" if provisioned else "RayClusterPodsProvisioning",
            "All Ray Pods are ready for the first time"
            if provisioned
            else "RayCluster Pods are being provisioned for first time",
        ),
    }
    suspended, suspending = cluster.suspend and not has_pods, cluster.suspend and has_pods
    if suspending or "RayClusterSuspending" in known:
        wanted["RayClusterSuspending"] = (
            suspending,
            "UserRequestedSuspend" if suspending else "NotSuspending",
            "",
        )
    if suspended or "RayClusterSuspended" in known:
        wanted["RayClusterSuspended"] = (
            suspended,
            "UserRequestedSuspend" if suspended else "UserRequestedResume",
            "",
        )
    failed = [pod for pod in (*workers, *((head,) if head else ())) if pod.failed]
    if failed or "ReplicaFailure" in known:
        words = "; ".join(
            f"pod {pod.name} failed" + (f": {cause_of(pod)}" if cause_of(pod) else "") for pod in failed
        )
        wanted["ReplicaFailure"] = (bool(failed), "PodFailed" if failed else "NoFailure", words)
    found = []
    for kind, (true, reason, message) in sorted(wanted.items()):
        value = "True" if true else "False"
        old = known.get(kind) or {}
        since = old.get("lastTransitionTime") if old.get("status") == value else None
        found.append(
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since or rfc3339(now),
            }
        )
    return found


def cause_of(pod: RolePod) -> str:
    """Return why a pod has failed, as far as it is known: its reason, or exit code and last words."""
    if pod.reason:
        return pod.reason
    code = "" if pod.exit_code is None else f"exit code {pod.exit_code}"
    return ": ".join(filter(None, (code, pod.message)))


def _head_state(head: RolePod | None) -> tuple[str, str]:
    if head is None:
        return "HeadPodNotFound", "Head Pod not found"
    if head.failed:
        return "HeadPodFailed", f"head pod {head.name} has failed: {cause_of(head)}".removesuffix(": ")
    if head.ready:
        return "HeadPodRunningAndReady", ""
    return "ContainersNotReady", f"head pod {head.name} is {head.phase or 'Pending'}"

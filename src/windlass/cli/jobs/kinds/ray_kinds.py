"""Ray's kinds for commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.fields import ray
from windlass.api.resources import RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES
from windlass.cli.jobs.kinds.job_kind import JobKind, JobRole, Object
from windlass.cli.jobs.kinds.queue_names import RAY_PLACES, queue_named
from windlass.cli.text import timestamp

_RAY_CLUSTER_PHASES = {"ready": "Running", "suspended": "Suspended", "failed": "Failed"}
_RAY_JOB_PHASES = {
    "Running": "Running",
    "Waiting": "Running",
    "Complete": "Completed",
    "Failed": "Failed",
    "ValidationFailed": "Failed",
    "Retrying": "Restarting",
    "Suspending": "Suspended",
    "Suspended": "Suspended",
}


def _ray_roles(spec: Mapping[str, Any]) -> list[JobRole]:
    """Return head and workers of the spec of a RayCluster."""
    head = (spec.get("headGroupSpec") or {}).get("template") or {}
    roles = [JobRole("head", 1, head)] if head else []
    for group in spec.get("workerGroupSpecs") or ():
        wanted = group.get("replicas") if group.get("replicas") is not None else group.get("minReplicas")
        hosts = int(group.get("numOfHosts") or 1)
        roles.append(
            JobRole(str(group.get("groupName") or ""), int(wanted or 0) * hosts, group.get("template") or {})
        )
    return roles


def _ray_queue(obj: Object) -> str:
    return queue_named(obj["metadata"], RAY_PLACES)


_RAY_CLUSTER = JobKind(
    resource=RAY_CLUSTERS,
    words=("raycluster", "rayclusters", "raycluster.ray.io"),
    phase=lambda obj: _RAY_CLUSTER_PHASES.get((obj.get("status") or {}).get("state") or "", "Pending"),
    roles=lambda obj: _ray_roles(obj.get("spec") or {}),
    queue=_ray_queue,
    ended=lambda obj: 0.0,
    succeeded=lambda obj: 0,
    group=lambda obj: obj["metadata"]["name"],
    selector=lambda name: f"{ray.CLUSTER}={name}",
)
_RAY_JOB = JobKind(
    resource=RAY_JOBS,
    words=("rayjob", "rayjobs", "rayjob.ray.io"),
    phase=lambda obj: _RAY_JOB_PHASES.get(
        (obj.get("status") or {}).get("jobDeploymentStatus") or "", "Pending"
    ),
    roles=lambda obj: _ray_roles((obj.get("spec") or {}).get("rayClusterSpec") or {}),
    queue=_ray_queue,
    ended=lambda obj: timestamp((obj.get("status") or {}).get("endTime")),
    succeeded=lambda obj: int((obj.get("status") or {}).get("succeeded") or 0),
    group=lambda obj: (obj.get("status") or {}).get("rayClusterName") or obj["metadata"]["name"],
    selector=lambda name: f"{ray.ORIGINATED_FROM}={name}",
)


def _ray_service_phase(obj: Object) -> str:
    found = {one["type"]: one for one in (obj.get("status") or {}).get("conditions") or ()}
    ready = found.get("Ready") or {}
    if ready.get("reason") in ("InitializingTimeout", "ValidationFailed"):
        return "Failed"
    if any((found.get(kind) or {}).get("status") == "True" for kind in ("Suspending", "Suspended")):
        return "Suspended"
    return "Running" if ready.get("status") == "True" else "Pending"


def _ray_service_group(obj: Object) -> str:
    """Return the cluster that serves; before the first one, the cluster that is to serve."""
    status = obj.get("status") or {}
    names_of_clusters = (
        (status.get(f"{role}ServiceStatus") or {}).get("rayClusterName") for role in ("active", "pending")
    )
    return next(filter(None, names_of_clusters), obj["metadata"]["name"])


_RAY_SERVICE = JobKind(
    resource=RAY_SERVICES,
    words=("rayservice", "rayservices", "rayservice.ray.io"),
    phase=_ray_service_phase,
    roles=lambda obj: _ray_roles((obj.get("spec") or {}).get("rayClusterConfig") or {}),
    queue=_ray_queue,
    ended=lambda obj: 0.0,
    succeeded=lambda obj: 0,
    group=_ray_service_group,
    selector=lambda name: f"{ray.ORIGINATED_FROM}={name}",
)

RAY_KINDS = (_RAY_CLUSTER, _RAY_JOB, _RAY_SERVICE)

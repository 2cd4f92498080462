"""Pods that a gang needs to start, read from the owner of each kind of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def one(_: Json) -> int:
    """Return 1: the pods start one by one."""
    return 1


def kubeflow(job: Json) -> int:
    """Return ``minAvailable``, or the sum of the replicas of a job of ``kubeflow.org``."""
    spec = job.get("spec") or {}
    stated = _stated(spec)
    return stated if stated is not None else _replicas(spec)


def pytorch(job: Json) -> int:
    """As :func:`kubeflow`, with ``elasticPolicy.minReplicas`` first."""
    least = ((job.get("spec") or {}).get("elasticPolicy") or {}).get("minReplicas")
    return least if isinstance(least, int) else kubeflow(job)


def mpi(job: Json) -> int:
    """As :func:`kubeflow`, without a launcher that starts after the workers."""
    spec = job.get("spec") or {}
    stated = _stated(spec)
    if stated is not None:
        return stated
    delayed = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    return _replicas(spec, without="Launcher" if delayed else "")


def _stated(spec: Json) -> int | None:
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    least = policy.get("minAvailable")
    return least if isinstance(least, int) else None


def _replicas(spec: Json, without: str = "") -> int:
    total = 0
    for name, roles in spec.items():
        if name.endswith("ReplicaSpecs") and isinstance(roles, Mapping):
            for role, body in roles.items():
                if role != without:
                    count = (body or {}).get("replicas")
                    total += count if isinstance(count, int) else 1
    return total or 1


def ray_cluster(cluster: Json) -> int:
    """Return the head and the least workers of a RayCluster."""
    return _ray(cluster.get("spec") or {})


def ray_job(job: Json) -> int:
    """Return the least pods of the cluster of a RayJob; 1 if it uses an existing one."""
    spec = job.get("spec") or {}
    return _ray(spec.get("rayClusterSpec") or {}) if spec.get("rayClusterSpec") else 1


def ray_service(service: Json) -> int:
    """Return the least pods of the cluster of a RayService."""
    spec = service.get("spec") or {}
    return _ray(spec.get("rayClusterConfig") or spec.get("rayClusterSpec") or {})


def _ray(spec: Json) -> int:
    return 1 + sum(ray_workers(group) for group in spec.get("workerGroupSpecs") or ())


def ray_workers(group: Json) -> int:
    """Return the least pods of a worker group."""
    if group.get("suspend"):
        return 0
    least = group.get("minReplicas")
    count = least if isinstance(least, int) else group.get("replicas")
    return (count if isinstance(count, int) else 0) * (group.get("numOfHosts") or 1)


def pod_gang(gang: Json) -> int | None:
    """Return the least pods of the pod groups of Grove's PodGang; ``None`` if it cannot be read."""
    groups = (gang.get("spec") or {}).get("podgroups")
    if groups is None:
        return None
    counts = [group.get("minReplicas") for group in groups]
    return sum(count for count in counts if isinstance(count, int))


def leader_worker_set(owner: Json) -> int:
    """Return the size of one replica; 1 if the workers start after the leader is ready."""
    spec = owner.get("spec") or {}
    if spec.get("startupPolicy") == "LeaderReady":
        return 1
    size = (spec.get("leaderWorkerTemplate") or {}).get("size")
    return size if isinstance(size, int) else 1


def job_set(owner: Json) -> int:
    """Return the pods of all jobs of a JobSet; of the first one if the jobs start in order."""
    spec = owner.get("spec") or {}
    sizes = []
    for part in spec.get("replicatedJobs") or ():
        replicas = part.get("replicas")
        sizes.append(pods_of_job(part) * (replicas if isinstance(replicas, int) else 1))
    return (sizes[0] if starts_in_order(spec) and sizes else sum(sizes)) or 1


def starts_in_order(spec: Json) -> bool:
    """Return whether some jobs of a JobSet wait for others."""
    ordered = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    return ordered or any(part.get("dependsOn") for part in spec.get("replicatedJobs") or ())


def pods_of_job(part: Json) -> int:
    """Return the pods of one Job of a replicated job."""
    spec = (part.get("template") or {}).get("spec") or {}
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    pods = parallelism if isinstance(parallelism, int) else 1
    if isinstance(completions, int):
        pods = min(pods, completions)
    return pods

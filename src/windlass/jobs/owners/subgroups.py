"""Parts of a gang with minima of their own, read from the owner of each kind of the table.

Without them a gang could start with any pods that reach its minimum, such as two workers
without their master.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import jobset, leaderworkerset, ray
from windlass.api.fields.kubeflow import REPLICA_TYPE
from windlass.jobs.owners import minimums

Json = Mapping[str, Any]
PODCLIQUE = "grove.io/podclique"
"""Label of a pod of Grove: the part of its PodGang."""


@dataclass(frozen=True, slots=True)
class OwnerSubgroup:
    """Part of a gang.

    ``labels``: labels of its pods. ``size``: pods that start together.
    ``key``: label with values that divide the part further, into ``count`` parts of ``size`` pods.
    """

    name: str
    labels: Mapping[str, str]
    size: int
    key: str = ""
    count: int = 1

    @property
    def policy(self) -> dict[str, Any]:
        """The item of a PodGroup's ``subGroupPolicy``."""
        policy: dict[str, Any] = {"name": self.name, "subGroupSize": self.size, "minSubGroups": self.count}
        if self.labels:
            policy["labelSelector"] = {"matchLabels": dict(self.labels)}
        if self.key:
            policy["matchLabelKeys"] = [self.key]
        return policy

    @property
    def text(self) -> str:
        return f"{self.name} {self.count} × {self.size}" if self.key else f"{self.name} {self.size}"


Subgroups = tuple[OwnerSubgroup, ...]


def none(_: Json) -> Subgroups:
    """Return nothing: the minimum of the gang counts any of its pods."""
    return ()


def pytorch(job: Json) -> Subgroups:
    """Return master and workers. The workers make up the rest of the gang's minimum."""
    roles = (job.get("spec") or {}).get("pytorchReplicaSpecs") or {}
    if "Master" not in roles or "Worker" not in roles:
        return ()
    masters = (roles["Master"] or {}).get("replicas")
    masters = masters if isinstance(masters, int) else 1
    workers = minimums.pytorch(job) - masters
    parts = (("master", masters), ("worker", workers))
    return tuple(OwnerSubgroup(name, {REPLICA_TYPE: name}, size) for name, size in parts if size > 0)


def ray_cluster(cluster: Json) -> Subgroups:
    """Return the head and the worker groups of a RayCluster."""
    return _ray(cluster.get("spec") or {})


def ray_job(job: Json) -> Subgroups:
    """Return the parts of the cluster of a RayJob; none if it uses an existing one."""
    spec = (job.get("spec") or {}).get("rayClusterSpec")
    return _ray(spec) if spec else ()


def ray_service(service: Json) -> Subgroups:
    """Return the parts of the cluster of a RayService."""
    spec = service.get("spec") or {}
    return _ray(spec.get("rayClusterConfig") or spec.get("rayClusterSpec") or {})


def _ray(spec: Json) -> Subgroups:
    parts = [OwnerSubgroup("head", {ray.NODE_TYPE: ray.HEAD}, 1)]
    for group in spec.get("workerGroupSpecs") or ():
        size, name = minimums.ray_workers(group), str(group.get("groupName") or "")
        if size > 0 and name:
            labels = {ray.NODE_TYPE: ray.WORKER, ray.GROUP: name}
            parts.append(OwnerSubgroup(f"workers-{name}", labels, size))
    return tuple(parts)


def leader_worker_set(owner: Json) -> Subgroups:
    """Return the sub-groups of ``subGroupPolicy``, if the whole replica starts together."""
    template = (owner.get("spec") or {}).get("leaderWorkerTemplate") or {}
    size, part = template.get("size"), (template.get("subGroupPolicy") or {}).get("subGroupSize")
    if minimums.leader_worker_set(owner) == 1 or not isinstance(size, int) or not isinstance(part, int):
        return ()
    count = size // part if part > 0 else 0
    return (OwnerSubgroup("subgroup", {}, part, leaderworkerset.SUBGROUP_INDEX, count),) if count else ()


def job_set(owner: Json) -> Subgroups:
    """Return the jobs of a JobSet, each Job on its own; only the first ones if the jobs start in order."""
    spec = owner.get("spec") or {}
    listed = spec.get("replicatedJobs") or ()
    found = []
    for part in listed[:1] if minimums.starts_in_order(spec) else listed:
        replicas = part.get("replicas")
        count = replicas if isinstance(replicas, int) else 1
        size, name = minimums.pods_of_job(part), str(part.get("name") or "")
        if size > 0 and count > 0 and name:
            labels = {jobset.REPLICATED_JOB_NAME: name}
            found.append(OwnerSubgroup(name, labels, size, jobset.JOB_INDEX, count))
    return tuple(found)


def pod_gang(gang: Json) -> Subgroups:
    """Return the pod groups of Grove's PodGang, with their least pods."""
    return tuple(
        OwnerSubgroup(group["name"], {PODCLIQUE: group["name"]}, group["minReplicas"])
        for group in (gang.get("spec") or {}).get("podgroups") or ()
        if group.get("name") and isinstance(group.get("minReplicas"), int) and group["minReplicas"] > 0
    )

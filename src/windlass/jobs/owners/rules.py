"""Rules of grouping: what is one gang, of which size, for each kind of owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.jobs.owners import minimums, paths, subgroups

Json = Mapping[str, Any]
Parts = Callable[[Json], subgroups.Subgroups]
MIN_MEMBER = names.MIN_MEMBER_PATH
PRIORITY_CLASS = names.PRIORITY_CLASS_PATH
QUEUE = names.QUEUE_PATH
TOPOLOGY_TIER = names.TOPOLOGY_TIER_PATH
DECLARATIONS = (MIN_MEMBER, PRIORITY_CLASS, QUEUE, TOPOLOGY_TIER)
"""Annotations of a CustomResourceDefinition that declare the rule of its kind."""


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """Rule of one kind of owner.

    ``minimum``: pods that the gang needs to start.
    ``label``: pods of the owner with equal values of this label are a gang of their own.
    ``alone``: each pod is a group of its own.
    ``wrapper``: the owner below it decides, or the pod if there is none.
    ``priority``, ``queue``, ``tier``: paths in the owner; empty if the pod decides.
    ``source``: where the minimum comes from, for messages.
    """

    minimum: Callable[[Json], int | None] = minimums.one
    label: str = ""
    alone: bool = False
    wrapper: bool = False
    priority: str = ""
    queue: str = ""
    tier: str = ""
    source: str = "the default of 1"
    subgroups: Parts = subgroups.none
    """Parts of the gang with minima of their own."""
    declared: bool = False
    """True if a CustomResourceDefinition declares it."""


_REPLICAS = "the replicas of its roles"
_WORKERS = "the head and the least workers"
_KUBEFLOW = "kubeflow.org"


def _kubeflow(minimum: Callable[[Json], int | None], source: str, parts: Parts = subgroups.none) -> OwnerRule:
    """Return the rule of a kind of ``kubeflow.org``, with queue and PriorityClass of its policy."""
    policy = ".spec.runPolicy.schedulingPolicy"
    priority, queue = f"{policy}.priorityClass", f"{policy}.queue"
    return OwnerRule(minimum, priority=priority, queue=queue, source=source, subgroups=parts)


_ROLES = "minAvailable or the replicas of its roles"
TABLE: Mapping[tuple[str, str], OwnerRule] = {
    ("apps", "Deployment"): OwnerRule(alone=True),
    ("apps", "ReplicaSet"): OwnerRule(),
    ("apps", "StatefulSet"): OwnerRule(),
    ("batch", "Job"): OwnerRule(),
    ("batch", "CronJob"): OwnerRule(wrapper=True),
    ("argoproj.io", "Workflow"): OwnerRule(wrapper=True),
    ("argoproj.io", "CronWorkflow"): OwnerRule(wrapper=True),
    ("trainer.kubeflow.org", "TrainJob"): OwnerRule(wrapper=True),
    (_KUBEFLOW, "Notebook"): OwnerRule(),
    (_KUBEFLOW, "PyTorchJob"): _kubeflow(
        minimums.pytorch, "minAvailable, minReplicas or the replicas of its roles", subgroups.pytorch
    ),
    (_KUBEFLOW, "MPIJob"): _kubeflow(minimums.mpi, _ROLES),
    **{
        (_KUBEFLOW, kind): _kubeflow(minimums.kubeflow, _ROLES)
        for kind in ("TFJob", "XGBoostJob", "JAXJob", "PaddleJob")
    },
    ("ray.io", "RayCluster"): OwnerRule(
        minimums.ray_cluster, source=_WORKERS, subgroups=subgroups.ray_cluster
    ),
    ("ray.io", "RayJob"): OwnerRule(minimums.ray_job, source=_WORKERS, subgroups=subgroups.ray_job),
    ("ray.io", "RayService"): OwnerRule(
        minimums.ray_service, source=_WORKERS, subgroups=subgroups.ray_service
    ),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): OwnerRule(
        minimums.leader_worker_set,
        label="leaderworkerset.sigs.k8s.io/group-index",
        source="spec.leaderWorkerTemplate.size",
        subgroups=subgroups.leader_worker_set,
    ),
    ("jobset.x-k8s.io", "JobSet"): OwnerRule(
        minimums.job_set, source="the pods of its jobs", subgroups=subgroups.job_set
    ),
    ("serving.knative.dev", "Service"): OwnerRule(label="serving.knative.dev/revision"),
    **{
        ("grove.io", kind): OwnerRule(wrapper=True)
        for kind in ("PodClique", "PodCliqueScalingGroup", "PodCliqueSet", "PodGangSet")
    },
    ("scheduler.grove.io", "PodGang"): OwnerRule(
        minimums.pod_gang,
        priority=".spec.priorityClassName",
        source="minReplicas of its pod groups",
        subgroups=subgroups.pod_gang,
    ),
    ("sparkoperator.k8s.io", "SparkApplication"): OwnerRule(),
}
"""(API group, kind) → rule. A kind that is missing is one group per owner, with minimum 1."""
LOOSE = OwnerRule()


def declared(annotations: Mapping[str, str]) -> OwnerRule | None:
    """Return the rule that a CustomResourceDefinition declares; ``None`` if it declares none.

    Raises :class:`~windlass.jobs.owners.paths.OwnerPathError`.
    """
    problems = faults(annotations)
    if problems:
        name, why = problems[0]
        raise paths.OwnerPathError(f"annotation {name}: {why}")
    if not any(name in annotations for name in DECLARATIONS):
        return None
    least = annotations.get(MIN_MEMBER, "")
    return OwnerRule(
        (lambda owner: paths.total(owner, least)) if least else minimums.one,
        priority=annotations.get(PRIORITY_CLASS, ""),
        queue=annotations.get(QUEUE, ""),
        tier=annotations.get(TOPOLOGY_TIER, ""),
        source=least or LOOSE.source,
        declared=True,
    )


def faults(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the annotations of a rule that cannot be read, each with the reason."""
    found = []
    for name in DECLARATIONS:
        if name in annotations:
            try:
                (paths.check_sum if name == MIN_MEMBER else paths.check)(annotations[name])
            except paths.OwnerPathError as error:
                found.append((name, str(error)))
    return found

"""Kinds of jobs for commands: what each kind calls its phase, its pods and its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import jobset
from windlass.api.fields.batch import JOB_NAME as BATCH_JOB_NAME
from windlass.api.fields.batch import queue_of_job
from windlass.api.fields.kubeflow import (
    FIELDS,
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    KubeflowFields,
    replicas_of,
)
from windlass.api.fields.leaderworkerset import NAME as SET_NAME
from windlass.api.resources import (
    BATCH_JOBS,
    JOB_SETS,
    LEADER_WORKER_SETS,
    MPI_JOBS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli.jobs.kinds.aigc_kind import AIGC_KIND
from windlass.cli.jobs.kinds.job_kind import JobKind, JobRole, Object
from windlass.cli.jobs.kinds.leaderworkerset_kind import LEADER_WORKER_SET_KIND
from windlass.cli.jobs.kinds.queue_names import SET_PLACES, queue_named
from windlass.cli.jobs.kinds.ray_kinds import RAY_KINDS
from windlass.cli.jobs.kinds.workload_kinds import WORKLOAD_KINDS
from windlass.cli.text import timestamp


def _volcano_roles(obj: Object) -> list[JobRole]:
    tasks = (obj.get("spec") or {}).get("tasks") or ()
    return [
        JobRole(str(task.get("name") or ""), int(task.get("replicas", 1)), task.get("template") or {})
        for task in tasks
    ]


_VOLCANO = JobKind(
    resource=VOLCANO_JOBS,
    words=("job", "jobs", "vcjob", "vj", "job.batch.volcano.sh"),
    phase=lambda obj: ((obj.get("status") or {}).get("state") or {}).get("phase") or "Pending",
    roles=_volcano_roles,
    queue=lambda obj: (obj.get("spec") or {}).get("queue") or "",
    ended=lambda obj: timestamp(((obj.get("status") or {}).get("state") or {}).get("lastTransitionTime")),
    succeeded=lambda obj: int((obj.get("status") or {}).get("succeeded") or 0),
    group=lambda obj: f"{obj['metadata']['name']}-{obj['metadata'].get('uid')}",
    selector=lambda name: f"{names.JOB_NAME}={name}",
)
_PHASES = {"Created": "Pending", "Succeeded": "Completed"}


def _kubeflow_phase(obj: Object) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    true = [str(condition.get("type")) for condition in conditions if condition.get("status") == "True"]
    return _PHASES.get(true[-1], true[-1]) if true else "Pending"


def _kubeflow(fields: KubeflowFields) -> JobKind:
    def roles(obj: Object) -> list[JobRole]:
        found = fields.replica_specs(obj.get("spec") or {})
        return [
            JobRole(name.lower(), replicas_of(role), role.get("template") or {})
            for name, role in found.items()
        ]

    def queue(obj: Object) -> str:
        run = (obj.get("spec") or {}).get("runPolicy") or {}
        return (run.get("schedulingPolicy") or {}).get("queue") or ""

    def succeeded(obj: Object) -> int:
        counts = (obj.get("status") or {}).get("replicaStatuses") or {}
        return sum(int(count.get("succeeded") or 0) for count in counts.values())

    return JobKind(
        resource=fields.resource,
        words=(fields.resource.singular, fields.resource.plural, f"{fields.resource.singular}.kubeflow.org"),
        phase=_kubeflow_phase,
        roles=roles,
        queue=queue,
        ended=lambda obj: timestamp((obj.get("status") or {}).get("completionTime")),
        succeeded=succeeded,
        group=lambda obj: obj["metadata"]["name"],
        selector=lambda name: f"{JOB_NAME}={name},{_kind_term(fields)}",
    )


_BATCH_PHASES = {"Complete": "Completed", "Failed": "Failed", "Suspended": "Suspended"}


def _batch_phase(obj: Object) -> str:
    status = obj.get("status") or {}
    for found in status.get("conditions") or ():
        if found.get("status") == "True" and found.get("type") in _BATCH_PHASES:
            return _BATCH_PHASES[found["type"]]
    begun = any(status.get(field) for field in ("ready", "succeeded", "failed"))
    return "Running" if begun else "Pending"


def _batch_roles(obj: Object) -> list[JobRole]:
    spec = obj.get("spec") or {}
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    pods = 1 if parallelism is None else int(parallelism)
    at_once = pods if completions is None else min(pods, int(completions))
    return [JobRole("", at_once, spec.get("template") or {})]


def _batch_ended(obj: Object) -> float:
    status = obj.get("status") or {}
    ends = [
        found.get("lastTransitionTime")
        for found in status.get("conditions") or ()
        if found.get("type") in ("Complete", "Failed") and found.get("status") == "True"
    ]
    return timestamp(ends[0]) if ends else 0.0


_BATCH = JobKind(
    resource=BATCH_JOBS,
    words=("job", "jobs", "job.batch", "jobs.batch"),
    phase=_batch_phase,
    roles=_batch_roles,
    queue=queue_of_job,
    ended=_batch_ended,
    succeeded=lambda obj: int((obj.get("status") or {}).get("succeeded") or 0),
    group=lambda obj: obj["metadata"]["name"],
    selector=lambda name: f"{BATCH_JOB_NAME}={name}",
)


def _true_conditions(obj: Object) -> list[Object]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return [found for found in conditions if found.get("status") == "True"]


_SET_PHASES = {**_BATCH_PHASES, "Completed": "Completed"}


def _set_phase(obj: Object) -> str:
    """Return the phase of a JobSet or a TrainJob."""
    for found in _true_conditions(obj):
        if found.get("type") in _SET_PHASES:
            return _SET_PHASES[found["type"]]
    status = obj.get("status") or {}
    counts = status.get("replicatedJobsStatus") or status.get("jobsStatus") or ()
    begun = any(entry.get(name) for entry in counts for name in ("ready", "succeeded", "failed"))
    return "Running" if begun else "Pending"


def _set_ended(obj: Object) -> float:
    ends = [
        found.get("lastTransitionTime")
        for found in _true_conditions(obj)
        if found.get("type") in ("Complete", "Completed", "Failed")
    ]
    return timestamp(ends[0]) if ends else 0.0


def _set_succeeded(obj: Object) -> int:
    status = obj.get("status") or {}
    counts = status.get("replicatedJobsStatus") or status.get("jobsStatus") or ()
    return sum(int(entry.get("succeeded") or 0) for entry in counts)


def _set_queue(obj: Object) -> str:
    return queue_named(obj["metadata"], SET_PLACES)


def _set_roles(obj: Object) -> list[JobRole]:
    found = []
    for job in (obj.get("spec") or {}).get("replicatedJobs") or ():
        spec = jobset.job_spec(job)
        pods = jobset.replicas_of(job) * jobset.pods_of_job(spec)
        found.append(JobRole(str(job.get("name") or ""), pods, spec.get("template") or {}))
    return found


def _train_roles(obj: Object) -> list[JobRole]:
    trainer = (obj.get("spec") or {}).get("trainer") or {}
    nodes = trainer.get("numNodes")
    container = {"name": "node", "resources": trainer.get("resourcesPerNode") or {}}
    return [JobRole("node", 1 if nodes is None else int(nodes), {"spec": {"containers": [container]}})]


def _set_kind(resource: Resource, roles: Callable[[Object], list[JobRole]]) -> JobKind:
    """Return JobSet or TrainJob. A TrainJob has a JobSet of its own name."""
    return JobKind(
        resource=resource,
        words=(resource.singular, resource.plural, f"{resource.singular}.{resource.group}"),
        phase=_set_phase,
        roles=roles,
        queue=_set_queue,
        ended=_set_ended,
        succeeded=_set_succeeded,
        group=lambda obj: obj["metadata"]["name"],
        selector=lambda name: f"{jobset.JOB_SET_NAME}={name}",
    )


_SETS = (_set_kind(JOB_SETS, _set_roles), _set_kind(TRAIN_JOBS, _train_roles))


def _key(kind: JobKind) -> str:
    """Return the kind, with its group if another one has the name: ``Job.batch``."""
    resource = kind.resource
    return f"{resource.kind}.{resource.group}" if resource is BATCH_JOBS else resource.kind


def _kind_term(fields: KubeflowFields) -> str:
    """Return the label selector that tells pods of this kind from those of another job of the same name."""
    if fields.resource is MPI_JOBS:  # the operator's name differs between its two versions
        return f"{JOB_ROLE} in (launcher,worker)"
    return f"{OPERATOR_NAME}={fields.operator}"


JOB_KINDS: Mapping[str, JobKind] = {
    _key(kind): kind
    for kind in (
        _VOLCANO,
        _BATCH,
        *(_kubeflow(fields) for fields in FIELDS.values()),
        *_SETS,
        *WORKLOAD_KINDS,
        LEADER_WORKER_SET_KIND,
        *RAY_KINDS,
        AIGC_KIND,
    )
}
"""Kind → how commands read it. The first is that of ``windlass run``.

A kind that creates jobs of another kind comes after it.
"""
_BY_GROUP = {(kind.resource.group, kind.resource.kind): key for key, kind in JOB_KINDS.items()}


def kind_of(api_version: str, kind: str) -> str:
    """Return the key of a kind in :data:`JOB_KINDS`; ``""`` if it is not a kind of job."""
    group = api_version.partition("/")[0] if "/" in api_version else ""
    return _BY_GROUP.get((group, kind), "")


def owner_key(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and name of the job that controls a pod or a PodGroup; empty if no job does."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        kind = kind_of(owner.get("apiVersion") or "", owner.get("kind") or "")
        if owner.get("controller") and kind:
            return kind, owner["name"]
        if owner.get("kind") == "Pod" and (name := (obj["metadata"].get("labels") or {}).get(SET_NAME)):
            return LEADER_WORKER_SETS.kind, name  # workers of a leader
    return "", ""

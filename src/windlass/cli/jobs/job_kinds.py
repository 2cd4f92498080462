"""Kinds of jobs for commands: what each kind calls its phase, its pods and its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.kubeflow_fields import FIELDS, JOB_NAME, OPERATOR_NAME, KubeflowFields, replicas_of
from windlass.api.resources import VOLCANO_JOBS, Resource
from windlass.cli.text import timestamp

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobRole:
    """Equal pods of a job."""

    name: str
    replicas: int
    template: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job.

    ``words``: the kind in front of a name on the command line (``vcjob/train``).
    ``phase``: in the words of Volcano: Pending, Running, Completed, Failed and so on.
    ``ended``: end in Unix seconds, 0 if unknown.
    ``group``: name of the PodGroup.
    ``selector``: label selector of the pods.
    """

    resource: Resource
    words: tuple[str, ...]
    phase: Callable[[Object], str]
    roles: Callable[[Object], list[JobRole]]
    queue: Callable[[Object], str]
    ended: Callable[[Object], float]
    succeeded: Callable[[Object], int]
    group: Callable[[Object], str]
    selector: Callable[[str], str]


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
        selector=lambda name: f"{JOB_NAME}={name},{OPERATOR_NAME}={fields.operator}",
    )


JOB_KINDS: Mapping[str, JobKind] = {
    kind.resource.kind: kind for kind in (_VOLCANO, *(_kubeflow(fields) for fields in FIELDS.values()))
}
"""Kind → how commands read it. The first is that of ``windlass run``."""


def owner_key(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and name of the job that controls a pod or a PodGroup; empty if no job does."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        kind = JOB_KINDS.get(owner.get("kind") or "")
        if owner.get("controller") and kind is not None:
            group = str(owner.get("apiVersion") or "").partition("/")[0]
            if group == kind.resource.group:
                return kind.resource.kind, owner["name"]
    return "", ""

"""Status of a ``kubeflow.org/v1`` job: conditions, replica statuses, times.

``Running`` and ``Restarting`` replace each other. The newest condition is the last one,
because the printer column shows that one. Once the job has failed, its conditions do
not change any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api.fields.kubeflow import REPLICA_TYPE
from windlass.jobs.decision import LifecycleState
from windlass.jobs.definition import Json
from windlass.jobs.kubeflow.job import KubeflowJob
from windlass.jobs.kubeflow.pods import job_labels
from windlass.jobs.lifecycle import FINAL, JobPhase
from windlass.jobs.lifecycle_records import read_record
from windlass.jobs.members import RolePod
from windlass.kits.timestamps import rfc3339, stored_time

_ORDER = (
    JobPhase.FAILED,
    JobPhase.SUCCEEDED,
    JobPhase.SUSPENDED,
    JobPhase.RESTARTING,
    JobPhase.RUNNING,
)
VERBS = {
    JobPhase.CREATED: "is created",
    JobPhase.RUNNING: "is running",
    JobPhase.RESTARTING: "is restarting",
    JobPhase.SUSPENDED: "is suspended",
    JobPhase.SUCCEEDED: "successfully completed",
    JobPhase.FAILED: "has failed",
}


def read_state(obj: Json) -> LifecycleState:
    """Return the state that the object's status and annotation hold."""
    status = obj.get("status") or {}
    true = {
        condition.get("type")
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    phase = next((phase for phase in _ORDER if phase in true), JobPhase.CREATED)
    cause, restarts = read_record(obj)
    return LifecycleState(
        phase=phase,
        started=stored_time(status.get("startTime")),
        completed=stored_time(status.get("completionTime")),
        cause=cause,
        restarts=restarts,
    )


def render(
    job: KubeflowJob,
    obj: Json,
    before: LifecycleState,
    after: LifecycleState,
    pods: Sequence[RolePod],
    now: float,
) -> dict[str, Any]:
    """Return the status after a decision. Equal input gives an equal status."""
    status = dict(obj.get("status") or {})
    status["conditions"] = _conditions(job, status.get("conditions") or [], before, after, now)
    if before.phase not in FINAL:
        status["replicaStatuses"] = _replica_statuses(job, after.phase, pods)
    for field, seconds in (("startTime", after.started), ("completionTime", after.completed)):
        if seconds:
            status[field] = rfc3339(seconds)
        else:
            status.pop(field, None)
    if status != (obj.get("status") or {}):
        status["lastReconcileTime"] = rfc3339(now)
    return status


def _conditions(
    job: KubeflowJob, present: Sequence[Json], before: LifecycleState, after: LifecycleState, now: float
) -> list[Json]:
    conditions = list(present)
    if not conditions:
        conditions = [_condition(job, JobPhase.CREATED, "True", "Created", now, after)]
    if before.phase is JobPhase.FAILED or after.phase is before.phase:
        return conditions
    if before.phase is JobPhase.SUSPENDED:
        conditions = _put(conditions, _condition(job, JobPhase.SUSPENDED, "False", "Resumed", now, after))
    if after.phase is JobPhase.CREATED:
        return conditions
    if after.phase in (JobPhase.RUNNING, JobPhase.RESTARTING):
        other = JobPhase.RESTARTING if after.phase is JobPhase.RUNNING else JobPhase.RUNNING
        conditions = [condition for condition in conditions if condition.get("type") != other]
    elif any(condition.get("type") == JobPhase.RUNNING for condition in conditions):
        conditions = _put(
            conditions, _condition(job, JobPhase.RUNNING, "False", str(after.phase), now, after)
        )
    if after.phase in FINAL:
        conditions = [condition for condition in conditions if condition.get("type") != JobPhase.RESTARTING]
    return _put(conditions, _condition(job, after.phase, "True", str(after.phase), now, after))


def _put(conditions: Sequence[Json], new: Json) -> list[Json]:
    """Replace the condition of the same type. The new one is the last."""
    return [*(condition for condition in conditions if condition.get("type") != new["type"]), new]


def _condition(
    job: KubeflowJob, kind: JobPhase, status: str, reason: str, now: float, state: LifecycleState
) -> Json:
    named = f"{job.kind.resource.kind} {job.definition.namespace}/{job.definition.name}"
    verb = "is resumed" if reason == "Resumed" else VERBS[JobPhase(reason)]
    because = f" because {state.message}" if reason == JobPhase.FAILED and state.message else ""
    return {
        "type": str(kind),
        "status": status,
        "reason": f"{job.kind.resource.kind}{reason}",
        "message": f"{named} {verb}{because}.",
        "lastUpdateTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    }


def _replica_statuses(job: KubeflowJob, phase: JobPhase, pods: Sequence[RolePod]) -> dict[str, Any]:
    """Return the counts of pods. When the job succeeds, pods that still run count as succeeded."""
    found = {}
    for role in job.definition.roles:
        own = [pod for pod in pods if pod.role == role.name]
        selector = ",".join(
            f"{name}={value}" for name, value in sorted({**job_labels(job), REPLICA_TYPE: role.key}.items())
        )
        counts = {
            "active": sum(pod.phase == "Running" for pod in own),
            "succeeded": sum(pod.succeeded for pod in own),
            "failed": sum(pod.failed for pod in own),
        }
        if phase is JobPhase.SUCCEEDED:
            counts["succeeded"] += counts["active"]
            counts["active"] = 0
        found[role.name] = {
            **{name: count for name, count in counts.items() if count},
            "selector": selector,
        }
    return found

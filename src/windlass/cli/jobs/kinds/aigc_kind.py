"""AIGCJobs for commands."""

from __future__ import annotations

from windlass.api import aigc_fields as fields
from windlass.api.resources import AIGC_JOBS
from windlass.cli.jobs.kinds.job_kind import JobKind, JobRole, Object
from windlass.cli.text import timestamp

_PHASES = {
    "Running": "Running",
    "Preprocessing": "Running",
    "WaitingForGPU": "Pending",
    "Succeeded": "Completed",
    "Failed": "Failed",
    "Suspended": "Suspended",
    "Retrying": "Restarting",
    "Preempted": "Restarting",
}


def _roles(obj: Object) -> list[JobRole]:
    """Return the workers. The driver is no part of the gang and needs no GPU."""
    spec = obj.get("spec") or {}
    decided = ((obj.get("status") or {}).get("workers") or {}).get("desired") if spec.get("autoscale") else 0
    template = dict(fields.part(spec, "template"))
    if not fields.main_container(spec).get("resources"):
        resources = fields.defaulted(spec)["resources"]
        pod = fields.part(template, "spec")
        first = {**fields.main_container(spec), "resources": resources}
        template["spec"] = {**pod, "containers": [first, *(pod.get("containers") or ())[1:]]}
    return [JobRole("worker", int(decided or fields.worker_count(spec)), template)]


AIGC_KIND = JobKind(
    resource=AIGC_JOBS,
    words=("aigcjob", "aigcjobs", "aigc", "aigcjob.kurator.dev"),
    phase=lambda obj: _PHASES.get((obj.get("status") or {}).get("phase") or "", "Pending"),
    roles=_roles,
    queue=lambda obj: (obj.get("spec") or {}).get("queue") or "",
    ended=lambda obj: timestamp((obj.get("status") or {}).get("completionTime")),
    succeeded=lambda obj: 0,
    group=lambda obj: obj["metadata"]["name"],
    selector=lambda name: f"{fields.JOB_NAME}={name}",
)

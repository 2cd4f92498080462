"""AIGCJobs for commands."""

from __future__ import annotations

from windlass.api.fields import aigc
from windlass.api.fields.stages import normal_stages
from windlass.api.resources import AIGC_JOBS
from windlass.cli.jobs.kinds.job_kind import JobKind, JobRole, Object
from windlass.cli.text import timestamp
from windlass.jobs.aigc.stages import RESERVED_PHASE, stage_template

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
    if spec.get("stages"):
        return _stages(obj)
    decided = ((obj.get("status") or {}).get("workers") or {}).get("desired") if spec.get("autoscale") else 0
    template = dict(aigc.part(spec, "template"))
    if not aigc.main_container(spec).get("resources"):
        resources = aigc.defaulted(spec)["resources"]
        pod = aigc.part(template, "spec")
        first = {**aigc.main_container(spec), "resources": resources}
        template["spec"] = {**pod, "containers": [first, *(pod.get("containers") or ())[1:]]}
    shards = aigc.shards_of(spec)
    return [JobRole("worker", int(decided or aigc.worker_count(spec)) * shards, template, shards)]


def _stages(obj: Object) -> list[JobRole]:
    """Return a role for each stage, with as many workers as it has now; at the end as many as it had."""
    whole = obj.get("status") or {}
    running = whole.get("phase") not in ("Succeeded", "Failed", "Suspended")
    decided = {one.get("name"): one for one in whole.get("stages") or ()}
    found = []
    for stage in normal_stages(obj.get("spec") or {}):
        status = decided.get(stage["name"]) or {}
        count = int(status.get("desired") or 0) if status and running else stage["parallelism"]["min"]
        template = stage_template(stage, on_cpu=bool(status.get("onCPU")))
        reserved = running and status.get("phase") == RESERVED_PHASE
        found.append(JobRole(stage["name"], count, template, reserved=reserved))
    return found


def _succeeded(obj: Object) -> int:
    """Return all pods of a job that has succeeded: workers that are not needed at the end are deleted."""
    done = (obj.get("status") or {}).get("phase") == "Succeeded"
    return sum(role.replicas for role in _roles(obj)) if done else 0


AIGC_KIND = JobKind(
    resource=AIGC_JOBS,
    words=("aigcjob", "aigcjobs", "aigc", "aigcjob.kurator.dev"),
    phase=lambda obj: _PHASES.get((obj.get("status") or {}).get("phase") or "", "Pending"),
    roles=_roles,
    queue=lambda obj: (obj.get("spec") or {}).get("queue") or "",
    ended=lambda obj: timestamp((obj.get("status") or {}).get("completionTime")),
    succeeded=_succeeded,
    group=lambda obj: obj["metadata"]["name"],
    selector=lambda name: f"{aigc.JOB_NAME}={name}",
    drivers=1,
)

"""Ending jobs: the Volcano way, so that what they wrote stays readable."""

from __future__ import annotations

from windlass.api.resources import BATCH_JOBS, COMMANDS, PODS, VOLCANO_JOBS
from windlass.cli.gangs import GANG, batch_job_of
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import Job


def terminate(invocation: Invocation, name: str, namespace: str, reason: str) -> None:
    """Ask the job controller to end a job (``bus.volcano.sh`` Command). Raises ``StatusError``."""
    job = invocation.client.get(VOLCANO_JOBS, name, namespace)
    command = {
        "apiVersion": COMMANDS.api_version,
        "kind": COMMANDS.kind,
        "metadata": {"generateName": f"{name[:40]}-", "namespace": namespace},
        "action": "TerminateJob",
        "target": {
            "apiVersion": VOLCANO_JOBS.api_version,
            "kind": VOLCANO_JOBS.kind,
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
        },
        "reason": "CommandIssued",
        "message": reason,
    }
    invocation.client.create(COMMANDS, command)


def end(invocation: Invocation, job: Job, reason: str) -> str:
    """End one job. A Volcano Job keeps its pods and logs; pods on their own are deleted, and a batch Job that is a gang
    with its pods, since it would make others. What was done."""
    if job.finished:
        return "has ended already"
    if job.kind == "Job":
        terminate(invocation, job.name, job.namespace, reason)
        return "is being ended"
    owner = batch_job_of(job.pods) if job.kind == GANG else None
    if owner is not None:
        invocation.client.delete(
            BATCH_JOBS, owner["name"], job.namespace, propagation="Background", uid=owner["uid"]
        )
        return "is being ended, with its Job"
    for pod in job.pods:
        invocation.client.delete(PODS, pod["metadata"]["name"], job.namespace, uid=pod["metadata"]["uid"])
    return "deleted" if job.kind == "Pod" else f"{len(job.pods)} pods deleted"

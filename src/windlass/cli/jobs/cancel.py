"""Ending jobs: the Volcano way, so that what they wrote stays readable."""

from __future__ import annotations

from windlass.api.resources import BATCH_JOBS, COMMANDS, PODS, VOLCANO_JOBS
from windlass.cli.errors import if_served, remedy_with_target
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job, Object
from windlass.cli.text import plural
from windlass.cli.ungrouped_gangs import controllers_of


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
    with its pods, since it would make others. What was done; who makes pods anew is told as a warning."""
    if job.finished:
        return "has ended already"
    if job.kind == "Job":
        terminate(invocation, job.name, job.namespace, reason)
        return "is being ended"
    makers = controllers_of(job.pods)
    if job.kind != "Pod" and len(makers) == 1 and _is_own_master(invocation, makers[0], job.namespace):
        owner = makers[0]
        invocation.client.delete(
            BATCH_JOBS, owner["name"], job.namespace, propagation="Background", uid=owner["uid"]
        )
        return "is being ended, with its Job" + ("" if owner["name"] == job.name else f" {owner['name']}")
    for pod in job.pods:
        invocation.client.delete(PODS, pod["metadata"]["name"], job.namespace, uid=pod["metadata"]["uid"])
    for owner in makers:
        remedy = remedy_with_target(_ending_of(owner, job.namespace), invocation.surroundings.aim)
        invocation.warn(f"{owner['kind']} {owner['name']} may make such pods anew: {remedy}")
    return "deleted" if job.kind == "Pod" else f"{plural(len(job.pods), 'pod')} deleted"


def _is_own_master(invocation: Invocation, owner: Object, namespace: str) -> bool:
    """Whether it is a batch Job that nobody else would make anew."""
    if (owner.get("apiVersion"), owner.get("kind")) != (BATCH_JOBS.api_version, BATCH_JOBS.kind):
        return False
    found = if_served(lambda: invocation.client.find(BATCH_JOBS, owner["name"], namespace), None)
    if found is None or found["metadata"].get("uid") != owner["uid"]:
        return False
    return not any(one.get("controller") for one in found["metadata"].get("ownerReferences") or ())


def _ending_of(owner: Object, namespace: str) -> str:
    """The command that ends who makes pods; the kind as kubectl takes it whatever else has that name."""
    group, slash, _ = owner.get("apiVersion", "").partition("/")
    if group == VOLCANO_JOBS.group:
        return f"windlass cancel -n {namespace} {owner['name']}"
    word = f"{owner['kind'].lower()}.{group}" if slash else owner["kind"].lower()
    return f"kubectl -n {namespace} delete {word} {owner['name']}"

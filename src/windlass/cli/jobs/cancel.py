"""End of jobs, which keeps the logs of Volcano Jobs, and Ctrl-C while following."""

from __future__ import annotations

import signal

import click

from windlass.api.resources import AIGC_JOBS, BATCH_JOBS, COMMANDS, PODS, VOLCANO_JOBS
from windlass.cli import errors
from windlass.cli.errors import if_served, remedy_with_target
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job, Object
from windlass.cli.text import plural
from windlass.cli.ungrouped_gangs import controllers_of

_SECOND_CTRL_C_SECONDS = 2.0


def command_job(invocation: Invocation, name: str, namespace: str, action: str, message: str) -> None:
    """Request an action on a Volcano Job from its controller (``bus.volcano.sh`` Command).

    Raises ``StatusError``.
    """
    job = invocation.client.get(VOLCANO_JOBS, name, namespace)
    command = {
        "apiVersion": COMMANDS.api_version,
        "kind": COMMANDS.kind,
        "metadata": {"generateName": f"{name[:40]}-", "namespace": namespace},
        "action": action,
        "target": {
            "apiVersion": VOLCANO_JOBS.api_version,
            "kind": VOLCANO_JOBS.kind,
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
        },
        "reason": "CommandIssued",
        "message": message,
    }
    invocation.client.create(COMMANDS, command)


def terminate(invocation: Invocation, name: str, namespace: str, reason: str) -> None:
    """Request the end of a Volcano Job. Raises ``StatusError``."""
    command_job(invocation, name, namespace, "TerminateJob", reason)


def end_job(invocation: Invocation, job: Job, reason: str) -> str:
    """End one job, and return what was done.

    A Volcano Job keeps its pods and logs. Jobs of other kinds are deleted, because their
    APIs have no other end. Single pods are deleted. A batch Job that is
    a gang is deleted with its pods, because it would create new ones. A warning names
    controllers that recreate the pods.
    """
    if job.finished:
        return "has already ended"
    if job.kind == "Job":
        terminate(invocation, job.name, job.namespace, reason)
        return "is being ended"
    if job.definition is not None:
        uid = job.obj["metadata"].get("uid")
        invocation.client.delete(job.resource, job.name, job.namespace, propagation="Background", uid=uid)
        for owner in job.obj["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                remedy = remedy_with_target(
                    _command_to_end(owner, job.namespace), invocation.context.target_flags
                )
                invocation.warn(f"{owner['kind']} {owner['name']} may recreate it; to end that: {remedy}")
        return f"is being deleted, with its {job.resource.kind} and its logs{_kept_rows(invocation, job)}"
    makers = controllers_of(job.pods)
    if job.kind != "Pod" and len(makers) == 1 and _is_uncontrolled_job(invocation, makers[0], job.namespace):
        owner = makers[0]
        invocation.client.delete(
            BATCH_JOBS, owner["name"], job.namespace, propagation="Background", uid=owner["uid"]
        )
        named = "" if owner["name"] == job.name else f" {owner['name']}"
        return f"is being deleted, with its Job{named} and its logs"
    for pod in job.pods:
        invocation.client.delete(PODS, pod["metadata"]["name"], job.namespace, uid=pod["metadata"]["uid"])
    for owner in makers:
        remedy = remedy_with_target(_command_to_end(owner, job.namespace), invocation.context.target_flags)
        invocation.warn(f"{owner['kind']} {owner['name']} may recreate these pods; to end it: {remedy}")
    return "deleted" if job.kind == "Pod" else f"{plural(len(job.pods), 'pod')} deleted"


def _kept_rows(invocation: Invocation, job: Job) -> str:
    """Return where the finished rows of an AIGCJob stay; empty for other jobs.

    In a cluster they are kept only if the outputs are on a claim or in an object store.
    """
    status = job.obj.get("status") or {}
    done, outputs = int((status.get("items") or {}).get("done") or 0), status.get("outputs")
    if job.resource is not AIGC_JOBS or not done or not outputs or invocation.target.remote:
        return ""
    rows = "its finished row is" if done == 1 else f"its {done} finished rows are"
    return f"; {rows} kept next to {outputs} for the next job with these outputs"


def _is_uncontrolled_job(invocation: Invocation, owner: Object, namespace: str) -> bool:
    """Return whether the owner is a batch Job that no other controller would recreate."""
    if (owner.get("apiVersion"), owner.get("kind")) != (BATCH_JOBS.api_version, BATCH_JOBS.kind):
        return False
    job = if_served(lambda: invocation.client.find(BATCH_JOBS, owner["name"], namespace), None)
    if job is None or job["metadata"].get("uid") != owner["uid"]:
        return False
    return not any(reference.get("controller") for reference in job["metadata"].get("ownerReferences") or ())


def _command_to_end(owner: Object, namespace: str) -> str:
    """Return the command that ends the controller of pods.

    The kind is fully qualified, so that kubectl finds it even if other kinds have that
    name.
    """
    group, slash, _ = owner.get("apiVersion", "").partition("/")
    if group == VOLCANO_JOBS.group:
        return f"windlass cancel -n {namespace} {owner['name']}"
    kind = f"{owner['kind'].lower()}.{group}" if slash else owner["kind"].lower()
    return f"kubectl -n {namespace} delete {kind} {owner['name']}"


def detach(invocation: Invocation, job: Job) -> int:
    """Print how to come back and how to end the job; return the status of an interrupt.

    A second Ctrl-C shortly after asks whether to cancel the job.
    """
    name = job.name
    invocation.note(f"\ndetached; {name} keeps running")
    flags, space = invocation.context.target_flags, invocation.namespace_flag(job.namespace)
    logs = f"windlass logs -f {name}" + (f" --namespace {job.namespace}" if space else "")
    look = f"windlass show {name}{space}" if job.kind == AIGC_JOBS.kind else logs
    invocation.note(f"come back: {remedy_with_target(look, flags)}")
    invocation.note(f"end it:    {remedy_with_target(f'windlass cancel {name}{space}', flags)}")
    if not invocation.err.interactive:
        return errors.INTERRUPTED
    invocation.note("(Ctrl-C again: cancel)")
    try:
        invocation.clock.pause(_SECOND_CTRL_C_SECONDS)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if click.confirm(f"\nCancel {name}?", default=False, err=True):
            invocation.note(f"{name} {end_job(invocation, job, 'cancelled by its user')}")
    return errors.INTERRUPTED

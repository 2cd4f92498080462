"""``--resume`` of ``windlass run`` and ``windlass submit``: the next attempt of a job that has ended.

The job is created again under its name, so its program finds the checkpoints of the last
attempt at the same place. The attempt ledger goes over, and its numbers continue.
"""

from __future__ import annotations

import copy
import os
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from windlass.api import annotations as names
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import BATCH_JOBS, VOLCANO_JOBS
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.attempts import ledger_of
from windlass.cli.jobs.job_control import SUSPEND_FIELDS, is_suspended
from windlass.cli.jobs.job_index import fetch, find
from windlass.cli.jobs.jobs import Job, Object
from windlass.cli.jobs.kinds.kind_manifests import build_manifest, resource_of
from windlass.cli.jobs.requests.job_builder import JobRequest, base_name
from windlass.kits.printable import with_article

_POLL_SECONDS = 0.1
_GONE_SECONDS = 60.0
"""Timeout (seconds) of the deletion of the job that has ended."""
_KEPT = (names.CHECKPOINT_PATH, names.CHECKPOINT_HOOK, names.PROGRESS_PATH, names.RENDEZVOUS)
"""Annotations of Windlass that a user writes on a job; the others belong to one run of it."""
_OF_RUN = ("windlass.dev/", "volcano.sh/", "kubectl.kubernetes.io/", "batch.kubernetes.io/")
_SUFFIX = re.compile(r"-[a-z0-9]{5}")
"""End of the names that ``windlass run`` and ``submit`` generate."""
_FREE = frozenset({"command", "name", "resume", "followed", "queue"})
"""Fields of a request that describe no job."""


def create_next_attempt(invocation: Invocation, request: JobRequest) -> dict[str, Any]:
    """Create the next attempt of the job that the request names, and return it.

    Without a command the job is repeated as it was. Raises :class:`WindlassError` if
    there is nothing to resume.
    """
    job = _job_to_resume(invocation, request)
    _check_state(request, job)
    manifest = _repeated(job) if not request.command else _changed(invocation, request, job)
    manifest["metadata"]["annotations"] = _annotations(job, manifest)
    if not manifest["metadata"]["annotations"]:
        del manifest["metadata"]["annotations"]
    path = _checkpoint_path(manifest)
    _check_checkpoint(invocation, request, job, path)
    rehearsal = copy.deepcopy(manifest)
    rehearsal["metadata"]["name"] = f"{job.name[:50].rstrip('-.')}-resumed"
    invocation.client.create(job.resource, rehearsal, field_validation="Strict", dry_run=True)
    invocation.note(_words(job, path))
    _remove(invocation, job)
    created = invocation.client.create(job.resource, manifest, field_validation="Strict")
    return {"apiVersion": job.resource.api_version, "kind": job.resource.kind, **created}


def check_flags(request: JobRequest) -> None:
    """Raise :class:`WindlassError` if flags describe a job and no command is given."""
    if not request.command and (given := _described(request)):
        raise WindlassError(
            "WL-USE-400",
            f"--resume without a command repeats the job as it was: {', '.join(given)} would have no effect",
            evidence="with a command, the flags describe the job, and only its checkpoints and attempts are kept",
            remedies=(f"{request.command_line} --resume {request.resume or 'NAME'} … -- COMMAND",),
        )


def _job_to_resume(invocation: Invocation, request: JobRequest) -> Job:
    name = request.resume or request.name
    if name:
        try:
            return find(invocation, name)
        except WindlassError as error:
            if error.code != "WL-JOB-404":
                raise
            raise _nothing(request, f'there is no job "{name}"', error.evidence, "windlass ps -a") from error
    if not request.command:
        raise WindlassError(
            "WL-USE-400",
            "--resume needs the name of a job, or a command",
            remedies=(f"{request.command_line} --resume NAME", "windlass ps -a"),
        )
    base = base_name(request.command)
    found = [
        job
        for job in fetch(invocation, invocation.home_namespace)
        if job.definition is not None
        and (job.name == base or (job.name.startswith(base) and _SUFFIX.fullmatch(job.name[len(base) :])))
    ]
    if not found:
        words = f'there is no job "{base}" or "{base}-…", as this command names its jobs'
        raise _nothing(request, words, "", "windlass ps -a")
    return max(found, key=lambda job: job.created)


def _described(request: JobRequest) -> list[str]:
    """Return the flags of a job that were given."""
    plain = JobRequest((), time_seconds=0)
    changed = [
        field.name
        for field in fields(request)
        if field.name not in _FREE and getattr(request, field.name) != getattr(plain, field.name)
    ]
    flags = {"environment": "env", "time_seconds": "time"}
    return [f"--{flags.get(name, name).replace('_', '-')}" for name in changed]


def _nothing(request: JobRequest, why: str, evidence: str, *remedies: str) -> WindlassError:
    command = " ".join(request.command) if request.command else "COMMAND"
    first = f"{request.command_line} --name {request.resume or request.name or 'NAME'} -- {command}"
    return WindlassError(
        "WL-JOB-412", f"there is nothing to resume: {why}", evidence=evidence, remedies=(first, *remedies)
    )


def _check_state(request: JobRequest, job: Job) -> None:
    """Raise :class:`WindlassError` unless the job has ended and can be created again."""
    name = job.name
    if job.definition is None or not (job.resource is VOLCANO_JOBS or job.resource in SUSPEND_FIELDS):
        raise _refused(job, f"it is {with_article(job.kind)}, which has no attempts", f"windlass show {name}")
    if is_suspended(job):
        raise _refused(job, "it is suspended, and keeps its attempts", f"windlass resume {name}")
    if not job.finished:
        remedies = (
            f"windlass logs -f {name}",
            f"windlass requeue {name}   (ends its pods and queues it again)",
        )
        raise _refused(job, f"it has not ended: {job.phase}", *remedies)
    if not request.command and job.exit_code == 0:
        again = f"{request.command_line} --resume {name} -- COMMAND   (continues from its checkpoints)"
        raise _refused(job, "it has completed", again)
    if request.command and resource_of(request) is not job.resource:
        word = _word(job).partition(".")[0]
        again = f"{request.command_line} --kind {word} --resume {name} -- {' '.join(request.command)}"
        raise _refused(
            job,
            f"it is {with_article(job.kind)}, and the flags describe {with_article(resource_of(request).kind)}",
            again,
        )


def _refused(job: Job, why: str, *remedies: str) -> WindlassError:
    return WindlassError("WL-JOB-412", f'job "{job.name}" cannot be resumed: {why}', remedies=remedies)


def _repeated(job: Job) -> Object:
    """Return the job as it was, without what the server and its controller added."""
    obj = copy.deepcopy(job.obj)
    metadata = obj["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    spec = obj["spec"]
    if job.resource is BATCH_JOBS and not spec.get("manualSelector"):
        spec.pop("selector", None)
        labels = (spec.get("template") or {}).get("metadata", {}).get("labels") or {}
        for key in [key for key in labels if key in _BATCH_LABELS]:
            del labels[key]
    return {
        "apiVersion": job.resource.api_version,
        "kind": job.resource.kind,
        "metadata": kept,
        "spec": spec,
    }


_BATCH_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels that the server adds to the pod template of a Job."""


def _changed(invocation: Invocation, request: JobRequest, job: Job) -> Object:
    """Return the job that the flags describe, with the checkpoints of the one that has ended."""
    old = job.obj
    request = replace(
        request,
        checkpoint_path=request.checkpoint_path or _noted(old, names.CHECKPOINT_PATH),
        checkpoint_hook=request.checkpoint_hook or _noted(old, names.CHECKPOINT_HOOK),
    )
    embedded = not invocation.target.remote
    return build_manifest(request, job.name, namespace=job.namespace, embedded=embedded, environ=os.environ)


def _annotations(job: Job, manifest: Object) -> dict[str, str]:
    """Return the annotations of the next attempt: those of users, and the ledger."""
    old = job.obj["metadata"].get("annotations") or {}
    given = manifest["metadata"].get("annotations") or {}
    kept = {key: text for key, text in old.items() if key in _KEPT or not key.startswith(_OF_RUN)}
    ledger = {names.JOB_ATTEMPTS: old[names.JOB_ATTEMPTS]} if names.JOB_ATTEMPTS in old else {}
    return {**kept, **given, **ledger}


def _noted(obj: Any, name: str) -> str:
    """Return an annotation of a job or of one of its pod templates."""
    if isinstance(obj, dict):
        text = ((obj.get("metadata") or {}).get("annotations") or {}).get(name)
        found = (_noted(value, name) for key, value in obj.items() if key != "status")
        return str(text) if text else next(filter(None, found), "")
    if isinstance(obj, list):
        return next(filter(None, (_noted(value, name) for value in obj)), "")
    return ""


def _checkpoint_path(manifest: Object) -> str:
    return _noted(manifest, names.CHECKPOINT_PATH)


def _check_checkpoint(invocation: Invocation, request: JobRequest, job: Job, path: str) -> None:
    """Raise :class:`WindlassError` if the checkpoints have a place on this machine, and none is there."""
    landed = any(attempt.saved for attempt in ledger_of(job).attempts)
    if not path or landed or invocation.target.remote or _mounts(job.obj):
        return
    place = Path(os.path.join(_working_directory(job.obj), path))
    if not place.is_absolute() or (place.is_file() or (place.is_dir() and any(place.iterdir()))):
        return
    raise WindlassError(
        "WL-JOB-412",
        f"there is nothing to resume: no checkpoint of {job.name} is at {place}",
        evidence="the job declares this place, and no attempt has saved anything there",
        remedies=(
            f"windlass delete {_word(job)} {job.name}   (and submit it again, from the beginning)",
            f"windlass show {job.name}",
        ),
    )


def _word(job: Job) -> str:
    """Return the kind as ``windlass delete`` takes it; without the part after a dot, as ``--kind`` does."""
    if job.resource is BATCH_JOBS:
        return "job.batch"
    return "vcjob" if job.resource is VOLCANO_JOBS else job.resource.singular


def _mounts(obj: Any) -> bool:
    """Return whether containers have volumes, so that their paths are not those of the machine."""
    if isinstance(obj, dict):
        return bool(obj.get("volumeMounts")) or any(map(_mounts, obj.values()))
    return isinstance(obj, list) and any(map(_mounts, obj))


def _working_directory(obj: Any) -> str:
    if isinstance(obj, dict):
        return str(obj.get("workingDir") or "") or next(
            filter(None, map(_working_directory, obj.values())), ""
        )
    return next(filter(None, map(_working_directory, obj)), "") if isinstance(obj, list) else ""


def _words(job: Job, path: str) -> str:
    ledger = ledger_of(job)
    last = ledger.last
    cause = (last.cause if last is not None else "") or "unknown"
    place = (
        f"checkpoints: {path}" if path else "no checkpoint path is declared, so its program has to know it"
    )
    return f"attempt {ledger.count + 1} of {job.name} (end of the last one: {cause}); {place}"


def _remove(invocation: Invocation, job: Job) -> None:
    """Delete the job that has ended, and wait until it is gone with its pods."""
    uid = job.obj["metadata"].get("uid")
    try:
        invocation.client.delete(job.resource, job.name, job.namespace, propagation="Foreground", uid=uid)
    except StatusError as error:
        if error.code != 404:
            raise
    deadline = invocation.clock.now() + _GONE_SECONDS
    while True:
        left = invocation.client.find(job.resource, job.name, job.namespace)
        if left is None or left["metadata"].get("uid") != uid:
            return
        if invocation.clock.now() >= deadline:
            raise WindlassError(
                "WL-JOB-504",
                f"the pods of {job.name} did not end within {_GONE_SECONDS:g} s",
                evidence="the job is being deleted, and its next attempt was not created",
                remedies=(f"windlass get pods -n {job.namespace}",),
            )
        invocation.clock.pause(_POLL_SECONDS)

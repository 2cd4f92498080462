"""Suspension, restart and size of jobs, by the fields or Commands of each kind."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.fields import leaderworkerset
from windlass.api.fields.kubeflow import FIELDS, WORKER
from windlass.api.resources import (
    AIGC_JOBS,
    BATCH_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOB_SETS,
    LEADER_WORKER_SETS,
    NODES,
    PYTORCH_JOBS,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    REPLICA_SETS,
    STATEFUL_SETS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli.errors import remedy_with_target
from windlass.cli.generation.shards import of_pods
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.aigc_size import refused_size, size_patch, size_result
from windlass.cli.jobs.cancel import command_job
from windlass.cli.jobs.job_index import refresh
from windlass.cli.jobs.jobs import Job, Object
from windlass.cli.text import plural
from windlass.kits.printable import with_article

_POLL_SECONDS = 0.2
_MAX_CONFLICTS = 10
"""Maximum number of attempts to change an object that its controller writes as well."""
_MAX_RETRY = 3
"""Default of ``maxRetry`` of a Volcano Job."""
SUSPEND_FIELDS: Mapping[Resource, tuple[str, ...]] = {
    **dict.fromkeys(FIELDS, ("spec", "runPolicy", "suspend")),
    BATCH_JOBS: ("spec", "suspend"),
    JOB_SETS: ("spec", "suspend"),
    TRAIN_JOBS: ("spec", "suspend"),
    RAY_JOBS: ("spec", "suspend"),
    AIGC_JOBS: ("spec", "policy", "suspend"),
    RAY_CLUSTERS: ("spec", "suspend"),
    RAY_SERVICES: ("spec", "suspend"),
}
"""Field of each kind that suspends a job. Volcano Jobs are suspended by Commands."""
REPLICATED = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, LEADER_WORKER_SETS)
"""Workloads without an end, with a number of replicas."""
_SERVES = "it has no end and waits in no queue as a whole: its size and its template can be changed"


def suspend_job(invocation: Invocation, job: Job) -> str:
    """Suspend one job, and return what was done. Its pods end, and it keeps its name and definition."""
    _check_control(invocation, job, "suspend")
    if is_suspended(job):
        return "is already suspended"
    if job.resource is VOLCANO_JOBS:
        _check_retries(invocation, job, "suspend")
        command_job(invocation, job.name, job.namespace, "AbortJob", "suspended by its user")
    else:
        _set_suspended(invocation, job, True)
    return "is being suspended"


def resume_job(invocation: Invocation, job: Job) -> str:
    """Resume one job, and return what was done."""
    _check_control(invocation, job, "resume")
    if not is_suspended(job):
        return "is not suspended"
    if job.resource is VOLCANO_JOBS:
        command_job(invocation, job.name, job.namespace, "ResumeJob", "resumed by its user")
    else:
        _set_suspended(invocation, job, False)
    return "is being resumed"


def requeue_jobs(invocation: Invocation, jobs: Sequence[Job], timeout: float) -> list[str]:
    """End the pods of jobs and queue the jobs again; return what was done with each.

    A Volcano Job is restarted by its controller. Other kinds are suspended together
    until their pods are gone, at most ``timeout`` seconds, and then resumed.
    """
    for job in jobs:
        _check_control(invocation, job, "requeue")
        if is_suspended(job):
            remedy = _remedy(invocation, job, f"windlass resume {job.name}")
            raise _refusal(job, "requeue", "it is suspended", remedy)
        if job.resource is VOLCANO_JOBS and _has_begun(job):
            _check_retries(invocation, job, "requeue")
    suspended: list[Job] = []
    try:
        for job in filter(_has_begun, jobs):
            if job.resource is VOLCANO_JOBS:
                command_job(invocation, job.name, job.namespace, "RestartJob", "requeued by its user")
            else:
                suspended.append(job)
                _set_suspended(invocation, job, True)
        _wait_for_no_pods(invocation, suspended, timeout)
    finally:
        for job in suspended:
            _set_suspended(invocation, job, False)
    return ["is being requeued" if _has_begun(job) else "is already waiting" for job in jobs]


def _has_begun(job: Job) -> bool:
    """Return whether a pod of the job has a node."""
    return any((pod.get("spec") or {}).get("nodeName") and not _has_ended(pod) for pod in job.pods)


def scale_job(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> str:
    """Set the number of pods of roles, and return what was done. The role ``""`` means the only one."""
    current: Job | None = job
    for _ in range(_MAX_CONFLICTS):
        if current is None:
            break
        _check_control(invocation, current, "scale")
        patch = _scale_patch(invocation, current, counts)
        patch["metadata"] = {"resourceVersion": current.obj["metadata"].get("resourceVersion")}
        try:
            invocation.client.patch(job.resource, job.name, patch, job.namespace)
        except StatusError as error:
            if error.reason != "Conflict":
                raise
            current = refresh(invocation, job)  # its controller wrote the status in between
            continue
        wanted = {**current.obj, "spec": _merged(current.obj, patch)}
        if job.resource is AIGC_JOBS and not wanted["spec"].get("stages"):
            done = size_result(job.name, current.obj, wanted["spec"])
        else:
            done = f"has {_size_text(wanted, job)} now{_limit(wanted, job)}"
        return done + _until_resumed(invocation, current)
    raise _refusal(
        job,
        "scale",
        "it was deleted" if current is None else f"it changed between {_MAX_CONFLICTS} attempts",
        _remedy(invocation, job, f"windlass show {job.name}"),
    )


def _limit(obj: Object, job: Job) -> str:
    """Return why a Job runs fewer pods at once than its parallelism; empty if it does not."""
    if job.resource is not BATCH_JOBS:
        return ""
    completions, parallelism = obj["spec"].get("completions"), int(obj["spec"].get("parallelism", 1))
    if completions is None or parallelism <= int(completions):
        return ""
    return f": spec.completions is {completions}, and no more run at once (spec.parallelism is {parallelism})"


def _until_resumed(invocation: Invocation, job: Job) -> str:
    """Return that a job is suspended, and how it starts again; empty if it is not."""
    if not is_suspended(job):
        return ""
    command = _remedy(invocation, job, f"windlass resume {job.name}")
    return f". It is suspended, and runs with its new size after: {command}"


def _scale_patch(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> Object:
    if job.resource is VOLCANO_JOBS:
        return _volcano_scale(invocation, job, counts)
    if job.resource in FIELDS:
        return _kubeflow_scale(invocation, job, counts)
    if job.resource is BATCH_JOBS:
        return _batch_scale(invocation, job, counts)
    if job.resource in REPLICATED:
        return {"spec": {"replicas": _only_number(invocation, job, counts)}}
    if job.resource is AIGC_JOBS:
        return _aigc_scale(invocation, job, counts)
    if job.resource is TRAIN_JOBS:
        return _train_scale(invocation, job, counts)
    if job.resource is RAY_CLUSTERS:
        return _ray_scale(invocation, job, counts)
    if job.resource is RAY_SERVICES:
        cluster = job.definition.group(job.obj) if job.definition is not None else job.name
        raise _refusal(
            job,
            "scale",
            "the numbers of workers are those of its RayCluster, once that exists",
            _remedy(invocation, job, f"windlass show raycluster/{cluster}"),
        )
    raise _refusal(
        job,
        "scale",
        f"the API of {job.resource.kind} does not allow a change of its size",
        f"windlass delete {job.resource.singular} {job.name}   (and apply it with another size)",
    )


def is_suspended(job: Job) -> bool:
    if job.resource is VOLCANO_JOBS:
        return job.definition is not None and job.definition.phase(job.obj) in ("Aborting", "Aborted")
    found: Any = job.obj
    for name in SUSPEND_FIELDS.get(job.resource, ()):
        found = (found or {}).get(name)
    return found is True


def _set_suspended(invocation: Invocation, job: Job, value: bool) -> None:
    patch: Any = value
    for name in reversed(SUSPEND_FIELDS[job.resource]):
        patch = {name: patch}
    invocation.client.patch(job.resource, job.name, patch, job.namespace)


def _wait_for_no_pods(invocation: Invocation, jobs: Sequence[Job], timeout: float) -> None:
    deadline = invocation.clock.now() + timeout
    left = {job.name: len(job.pods) for job in jobs}
    while True:
        for job in jobs:
            if left[job.name]:
                now = refresh(invocation, job)
                left[job.name] = sum(not _has_ended(pod) for pod in now.pods) if now is not None else 0
        late = [job for job in jobs if left[job.name]]
        if not late:
            return
        if invocation.clock.now() >= deadline:
            first = late[0]
            raise WindlassError(
                "WL-JOB-504",
                f"{plural(left[first.name], 'pod')} of {first.name} did not end within {timeout:g} s",
                evidence="the job stays in its queue; its new pods start when the old ones have ended",
                remedies=(_remedy(invocation, first, f"windlass show {first.name}"),),
            )
        invocation.clock.pause(_POLL_SECONDS)


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _check_control(invocation: Invocation, job: Job, verb: str) -> None:
    """Raise :class:`WindlassError` if the verb has no meaning for this object."""
    if job.resource in REPLICATED:
        if verb != "scale":
            raise _refusal(job, verb, _SERVES, _remedy(invocation, job, _instead(job, verb)))
        return
    if job.resource is DAEMON_SETS:
        why = "it has a pod on each node, and no size of its own"
        instead = (
            f"kubectl rollout restart daemonset {job.name}"
            if verb == "requeue"
            else f"windlass delete daemonset {job.name}"
        )
        raise _refusal(job, verb, why, _remedy(invocation, job, instead))
    if job.definition is None or not (job.resource is VOLCANO_JOBS or job.resource in SUSPEND_FIELDS):
        raise _refusal(
            job,
            verb,
            f"it is {with_article(job.kind)}, and only a job can be changed so",
            _remedy(invocation, job, f"windlass cancel {job.name}"),
        )
    if job.finished and not is_suspended(job):
        raise _refusal(
            job,
            verb,
            f"it has ended ({job.definition.phase(job.obj)})",
            _remedy(invocation, job, f"windlass show {job.name}"),
        )


def _instead(job: Job, verb: str) -> str:
    """Return the command for a workload without an end that comes nearest to a verb of jobs."""
    if verb == "requeue" and job.resource is LEADER_WORKER_SETS:
        return f"kubectl delete pods -l {leaderworkerset.NAME}={job.name}"
    if verb == "requeue" and job.resource is not REPLICA_SETS:
        return f"kubectl rollout restart {job.resource.singular} {job.name}"
    return f"windlass scale {job.name} {0 if verb == 'suspend' else 1}"


def _check_retries(invocation: Invocation, job: Job, verb: str) -> None:
    """Raise :class:`WindlassError` if the next restart would fail a Volcano Job."""
    most = (job.obj.get("spec") or {}).get("maxRetry") or _MAX_RETRY
    retries = (job.obj.get("status") or {}).get("retryCount") or 0
    if retries + 1 >= most:
        raise _refusal(
            job,
            verb,
            f"it was restarted {retries} times, and fails at the next restart because of maxRetry {most}",
            _remedy(invocation, job, f"windlass cancel {job.name}"),
        )


def _refusal(job: Job, verb: str, why: str, *remedies: str) -> WindlassError:
    return WindlassError("WL-JOB-405", f"cannot {verb} {job.name}", evidence=why, remedies=remedies)


def _remedy(invocation: Invocation, job: Job, command: str) -> str:
    words = command.split("   ")
    namespace = invocation.namespace_flag(job.namespace)
    return remedy_with_target(words[0] + namespace, invocation.context.target_flags)


# Sizes.


def _sizes(obj: Object, job: Job) -> dict[str, int]:
    """Return role → number of pods."""
    assert job.definition is not None
    return {role.name: role.replicas for role in job.definition.roles(obj)}


def _size_text(obj: Object, job: Job) -> str:
    """Return the number of pods; of workers of several pods their number, too."""
    assert job.definition is not None
    roles = job.definition.roles(obj)
    if len(roles) == 1 and roles[0].size > 1:
        return of_pods(roles[0].replicas // roles[0].size, roles[0].size)
    return plural(sum(_sizes(obj, job).values()), "pod")


def _merged(obj: Object, patch: Object) -> Object:
    def merge(old: Any, new: Any) -> Any:
        if not isinstance(new, dict) or not isinstance(old, dict):
            return new
        return {**old, **{name: merge(old.get(name), value) for name, value in new.items()}}

    return merge(copy.deepcopy(obj.get("spec") or {}), patch.get("spec") or {})


def _roles(invocation: Invocation, job: Job, counts: Mapping[str, int], known: list[str]) -> dict[str, int]:
    """Return role → count with the names of the object."""
    if "" in counts:
        if len(known) != 1:
            raise _refusal(
                job,
                "scale",
                f"it has {len(known)} roles ({', '.join(known)}), and the number does not say which is meant",
                _remedy(invocation, job, f"windlass scale {job.name} {known[-1]}={counts['']}"),
            )
        return {known[0]: counts[""]}
    by_lower = {name.lower(): name for name in known}
    wrong = [name for name in counts if name.lower() not in by_lower]
    if wrong:
        raise _refusal(
            job,
            "scale",
            f"it has no role {wrong[0]}: its roles are {', '.join(known)}",
            _remedy(invocation, job, f"windlass scale {job.name} {known[-1]}={counts[wrong[0]]}"),
        )
    return {by_lower[name.lower()]: count for name, count in counts.items()}


def _volcano_scale(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> Object:
    """Change replicas of tasks. A task that needs all its pods, and a gang of all pods, stay so."""
    spec = copy.deepcopy(job.obj["spec"])
    tasks: list[Object] = spec["tasks"]
    wanted = _roles(invocation, job, counts, [task["name"] for task in tasks])
    whole = spec.get("minAvailable") == sum(task.get("replicas", 1) for task in tasks)
    for task in tasks:
        if task["name"] in wanted:
            if task.get("minAvailable") == task.get("replicas", 1):
                task["minAvailable"] = wanted[task["name"]]
            task["replicas"] = wanted[task["name"]]
    patch: Object = {"tasks": tasks}
    if whole:
        patch["minAvailable"] = sum(task["replicas"] for task in tasks)
    return {"spec": patch}


def _kubeflow_scale(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> Object:
    fields, spec = FIELDS[job.resource], job.obj["spec"]
    known = list(fields.replica_specs(spec))
    only_workers = {WORKER: counts[""]} if "" in counts and WORKER in known else counts
    wanted = _roles(invocation, job, only_workers, known)
    elastic = job.resource == PYTORCH_JOBS and spec.get("elasticPolicy") is not None
    if not elastic and not is_suspended(job):
        raise _refusal(
            job,
            "scale",
            f"running ranks of {with_article(job.resource.kind)} know its size"
            + (", unless it has spec.elasticPolicy" if job.resource == PYTORCH_JOBS else ""),
            _remedy(invocation, job, f"windlass suspend {job.name}"),
        )
    replicas = {role: {"replicas": count} for role, count in wanted.items()}
    return {"spec": {fields.field: replicas}}


def _ray_scale(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> Object:
    """Change the workers of a RayCluster; the head is one pod."""
    groups: list[Object] = copy.deepcopy(job.obj["spec"].get("workerGroupSpecs") or [])
    if job.obj["spec"].get("enableInTreeAutoscaling"):
        raise _refusal(
            job,
            "scale",
            "Ray's autoscaler decides the numbers of workers between minReplicas and maxReplicas",
            _remedy(invocation, job, f"windlass show raycluster/{job.name}"),
        )
    wanted = _roles(invocation, job, counts, [group["groupName"] for group in groups])
    for group in groups:
        if group["groupName"] in wanted:
            count = wanted[group["groupName"]]
            low, high = group.get("minReplicas") or 0, group.get("maxReplicas")
            if count < low or (high is not None and count > high):
                raise _refusal(
                    job,
                    "scale",
                    f"group {group['groupName']} has minReplicas {low} and maxReplicas {high}",
                    _remedy(invocation, job, f"windlass scale {job.name} {group['groupName']}={low or 1}"),
                )
            group["replicas"] = count
    return {"spec": {"workerGroupSpecs": groups}}


def _train_scale(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> Object:
    if not is_suspended(job):
        raise _refusal(
            job,
            "scale",
            "running ranks of a TrainJob know its size",
            _remedy(invocation, job, f"windlass suspend {job.name}"),
        )
    (nodes,) = _roles(invocation, job, counts, ["node"]).values()
    return {"spec": {"trainer": {"numNodes": nodes}}}


def _aigc_scale(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> Object:
    """Change the number of workers within the bounds of the job and what the nodes hold."""
    (workers,) = _roles(invocation, job, counts, ["worker"]).values()
    refused = refused_size(job.name, job.obj["spec"], workers, _nodes(invocation))
    if refused is not None:
        why, commands = refused
        raise _refusal(job, "scale", why, *(_remedy(invocation, job, command) for command in commands))
    return {"spec": size_patch(job.obj["spec"], workers)}


def _nodes(invocation: Invocation) -> list[Object]:
    """Return the nodes; none if the user may not read them."""
    try:
        return list(invocation.client.list(NODES).items)
    except StatusError:
        return []


def _only_number(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> int:
    """Return the number of pods of a kind without roles. Raises :class:`WindlassError`."""
    if set(counts) != {""}:
        raise _refusal(
            job,
            "scale",
            f"{with_article(job.resource.kind)} has no roles: give the number alone",
            _remedy(invocation, job, f"windlass scale {job.name} {next(iter(counts.values()))}"),
        )
    return counts[""]


def _batch_scale(invocation: Invocation, job: Job, counts: Mapping[str, int]) -> Object:
    """Change the parallelism, and of an indexed Job that runs all indexes at once its completions too."""
    number = _only_number(invocation, job, counts)
    spec = job.obj["spec"]
    patch = {"parallelism": number}
    if spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"):
        patch["completions"] = number
    return {"spec": patch}

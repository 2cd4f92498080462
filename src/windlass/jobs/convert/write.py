"""Writers of the kinds to which jobs are converted."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields.batch import COMPLETION_INDEX
from windlass.api.resources import JOB_SETS, PYTORCH_JOBS, TRAIN_JOBS, VOLCANO_JOBS, Resource
from windlass.jobs.convert.portable import Json, PortableJob, PortableRole
from windlass.jobs.convert.read import TORCH, Unconvertible

_RENDEZVOUS = frozenset({"MASTER_ADDR", "RANK", "PET_MASTER_ADDR"})
"""Variables of which each means that ranks of ``torch.distributed`` meet."""
_PORT = 29500
_WORD = re.compile(r"\w+")
_OVERRIDABLE = frozenset(
    {"serviceAccountName", "nodeSelector", "affinity", "tolerations", "volumes", "initContainers"}
    | {"imagePullSecrets", "schedulingGates", "priorityClassName"}
)
"""Fields of a pod that ``podTemplateOverrides`` of a TrainJob may set."""


def write(job: PortableJob, target: str) -> Json:
    """Return the manifest. Adds to ``job.lost``. Raises :class:`Unconvertible`."""
    resource, writer = TARGETS[target]
    spec = writer(job)
    metadata: Json = {"name": job.name}
    if job.namespace:
        metadata["namespace"] = job.namespace
    if job.labels:
        metadata["labels"] = dict(job.labels)
    annotations = dict(job.annotations)
    if job.queue and target in ("jobset", "trainjob"):
        annotations[names.QUEUE_NAME_VOLCANO] = job.queue
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _meets(job: PortableJob) -> bool:
    return bool(job.provided & _RENDEZVOUS)


def _main(role: PortableRole) -> Json:
    containers = role.pod.get("containers") or []
    if not containers:
        raise Unconvertible(f"role {role.name} has no container")
    return containers[0]


def _lose_variables(job: PortableJob, given: Iterable[str], target: str) -> None:
    """Report variables that commands use and that the target does not set."""
    missing = job.provided - set(given)
    for role in job.roles:
        main = _main(role)
        words = set(_WORD.findall(json.dumps([main.get("command"), main.get("args")])))
        used = sorted(missing & words)
        if used:
            job.lose(
                f"role {role.name}", f"its command uses {', '.join(used)}, which a {target} does not set"
            )


def _split(job: PortableJob) -> tuple[PortableRole | None, PortableRole]:
    """Return a role of one pod that leads, if there is one, and the others. Raises :class:`Unconvertible`."""
    if len(job.roles) == 1:
        return None, job.roles[0]
    if len(job.roles) > 2:
        known = ", ".join(role.name for role in job.roles)
        raise Unconvertible(f"the target has a leading role and workers; this job has the roles {known}")
    first, second = job.roles
    if job.leader == second.name or (first.replicas > 1 and second.replicas == 1):
        first, second = second, first
    if first.replicas != 1:
        raise Unconvertible(
            f"neither of the roles {first.name} and {second.name} has one pod, which would lead"
        )
    return first, second


def _master_and_workers(job: PortableJob) -> tuple[PortableRole, PortableRole | None]:
    leading, others = _split(job)
    if leading is not None:
        return leading, others
    master = PortableRole("master", 1, copy.deepcopy(others.template), others.restart)
    if others.replicas == 1:
        return master, None
    minimum = None if others.minimum is None else max(0, others.minimum - 1)
    return master, PortableRole("worker", others.replicas - 1, others.template, others.restart, minimum)


def _pytorch(job: PortableJob) -> Json:
    _lose_variables(job, TORCH, "PyTorchJob")
    master, workers = _master_and_workers(job)
    specs: Json = {}
    for name, role in (("Master", master), ("Worker", workers)):
        if role is None:
            continue
        _main(role)["name"] = "pytorch"
        restart = "OnFailure" if job.restarts and role.restart == "Never" else role.restart
        specs[name] = {"replicas": role.replicas, "restartPolicy": restart, "template": role.template}
    scheduling = {
        "queue": job.queue or None,
        "priorityClass": job.priority_class or None,
        "minAvailable": job.min_available,
    }
    if workers is not None and not job.leader:
        job.lose("success", "the job succeeds with its master; the other pods are not waited for")
    limit = job.backoff if job.backoff is not None else (job.restarts or None)
    if job.restarts:
        job.lose("restarts of the whole job", f"failed pods are restarted alone, {limit} times at most")
    run = {
        "backoffLimit": limit,
        "activeDeadlineSeconds": job.deadline,
        "ttlSecondsAfterFinished": job.ttl,
        "suspend": job.suspend or None,
        "schedulingPolicy": _set(scheduling) or None,
    }
    return {**_wrapped("runPolicy", run), "pytorchReplicaSpecs": specs}


def _volcano(job: PortableJob) -> Json:
    roles = list(job.roles)
    plugins: Json = {"env": [], "svc": []}
    if _meets(job):
        master, workers = _master_and_workers(job)
        roles = [master, *([workers] if workers else [])]
        worker = workers.name if workers else "worker"
        plugins["pytorch"] = [f"--master={master.name}", f"--worker={worker}", f"--port={_PORT}"]
        given = {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}
    elif "TF_CONFIG" in job.provided:
        known = {role.name for role in roles} & {"ps", "worker", "chief", "evaluator"}
        plugins["tensorflow"] = [f"--{name}={name}" for name in sorted(known)]
        given = {"TF_CONFIG"}
    else:
        given = {"VC_TASK_INDEX", "VK_TASK_INDEX"}
    _lose_variables(job, given, "Volcano Job")
    tasks = []
    for role in roles:
        role.pod["restartPolicy"] = "Never" if role.restart == "ExitCode" else role.restart
        if role.restart == "ExitCode":
            job.lose(f"role {role.name}", "restartPolicy ExitCode: failed pods are not restarted")
        if job.deadline:
            role.pod["activeDeadlineSeconds"] = job.deadline
        task: Json = {"name": role.name, "replicas": role.replicas, "template": role.template}
        if role.minimum is not None:
            task["minAvailable"] = role.minimum
        if role.name == job.leader and len(roles) > 1:
            task["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
        tasks.append(task)
    if job.deadline:
        job.lose("activeDeadlineSeconds", "it counts from the start of each pod instead of the job's")
    if job.suspend:
        job.lose("suspend", "the job starts at once")
    if job.backoff is not None and any(role.restart in ("OnFailure", "Always") for role in roles):
        job.lose("backoffLimit", f"pods are restarted more often than {job.backoff} times, too")
    elif job.backoff:
        job.lose("backoffLimit", f"{job.backoff}: a failed pod is not replaced")
    failed = {"event": "PodFailed", "action": "RestartJob" if job.restarts else "TerminateJob"}
    minimum = sum(role.replicas if role.minimum is None else role.minimum for role in roles)
    spec = {
        "minAvailable": job.min_available if job.min_available is not None else minimum,
        "queue": job.queue or None,
        "priorityClassName": job.priority_class or None,
        "maxRetry": job.restarts or None,
        "ttlSecondsAfterFinished": job.ttl,
        "plugins": plugins,
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}, failed],
        "tasks": tasks,
    }
    return _set(spec)


def _job_set(job: PortableJob) -> Json:
    roles = job.roles
    given = {"JOB_COMPLETION_INDEX"}
    if _meets(job):
        merged = _merged(job)
        if merged is not None:
            if job.leader:
                job.lose("success", f"all pods have to succeed instead of those of role {job.leader}")
            roles = [merged]
            job.leader = ""
            given |= _add_torch(job, merged)
        else:
            job.lose(
                "MASTER_ADDR, RANK, WORLD_SIZE", "the roles differ, so ranks do not follow from one index"
            )
    _lose_variables(job, given, "JobSet")
    replicated = []
    for role in roles:
        role.pod["restartPolicy"] = "Never" if role.restart in ("ExitCode", "Always") else role.restart
        if role.restart in ("ExitCode", "Always"):
            job.lose(f"role {role.name}", f"restartPolicy {role.restart}: failed pods are not restarted")
        if job.priority_class:
            role.pod.setdefault("priorityClassName", job.priority_class)
        body = {
            "parallelism": role.replicas,
            "completions": role.replicas,
            "completionMode": "Indexed",
            "backoffLimit": _replacements(job, role),
            "template": role.template,
        }
        replicated.append({"name": role.name, "replicas": 1, "template": {"spec": _set(body)}})
    if job.min_available is not None and job.min_available < job.pods:
        job.lose("minAvailable", f"all {job.pods} pods start together")
    spec = {
        "replicatedJobs": replicated,
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [job.leader]} if job.leader else None,
        "failurePolicy": {"maxRestarts": job.restarts} if job.restarts else None,
        "activeDeadlineSeconds": job.deadline,
        "ttlSecondsAfterFinished": job.ttl,
        "suspend": job.suspend or None,
    }
    return _set(spec)


def _replacements(job: PortableJob, role: PortableRole) -> int | None:
    """Return the back-off limit of a Job. Without one, pods that restart have Kubernetes' default."""
    if job.backoff is None and role.pod["restartPolicy"] == "OnFailure":
        job.lose(f"role {role.name}", "restartPolicy OnFailure: it fails after 6 restarts")
        return None
    return job.backoff or 0


def _merged(job: PortableJob) -> PortableRole | None:
    """Return one role of all pods, if their templates are equal but for names of containers."""
    shapes = {json.dumps(_nameless(role.template), sort_keys=True) for role in job.roles}
    if len(shapes) > 1:
        return None
    role = job.roles[-1]
    return PortableRole("node", job.pods, copy.deepcopy(role.template), role.restart)


def _nameless(template: Json) -> Json:
    found = copy.deepcopy(template)
    for container in (found.get("spec") or {}).get("containers") or ():
        container.pop("name", None)
        container.pop("ports", None)
    return found


def _add_torch(job: PortableJob, role: PortableRole) -> set[str]:
    """Add the variables of ``torch.distributed`` and ``torchrun``; return their names."""
    host = f"{job.name}-{role.name}-0-0.{job.name}"
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
    fixed = {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(_PORT),
        "WORLD_SIZE": str(role.replicas),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": str(_PORT),
        "PET_NNODES": str(role.replicas),
    }
    main = _main(role)
    own = {entry.get("name") for entry in main.get("env") or ()}
    variables: list[Json] = [{"name": name, "value": value} for name, value in fixed.items()]
    variables += [{"name": name, "valueFrom": index} for name in ("RANK", "NODE_RANK", "PET_NODE_RANK")]
    main["env"] = [*(main.get("env") or ()), *(one for one in variables if one["name"] not in own)]
    return {one["name"] for one in variables}


def _train_job(job: PortableJob) -> Json:
    merged = _merged(job) if _meets(job) or len(job.roles) == 1 else None
    if merged is None:
        roles = " and ".join(role.name for role in job.roles)
        raise Unconvertible(f"a TrainJob has equal pods, and those of {roles} differ")
    if job.provided and not _meets(job):
        job.lose(", ".join(sorted(job.provided)), "the runtime torch-distributed sets PET_* instead")
    _lose_variables(job, {name for name in TORCH if name.startswith("PET_")}, "TrainJob")
    main, pod = _main(merged), merged.pod
    trainer = _set(
        {
            "image": main.get("image"),
            "command": main.get("command"),
            "args": main.get("args"),
            "env": main.get("env"),
            "resourcesPerNode": main.get("resources"),
            "numNodes": merged.replicas,
        }
    )
    overridden = {key: pod[key] for key in sorted(pod) if key in _OVERRIDABLE}
    if job.priority_class:
        overridden.setdefault("priorityClassName", job.priority_class)
    if mounts := main.get("volumeMounts"):
        overridden["containers"] = [{"name": "node", "volumeMounts": mounts}]
    _lose_parts(job, merged)
    for what, value in (("backoffLimit", job.backoff), ("restarts of the whole job", job.restarts)):
        if value:
            job.lose(what, f"{value}: the runtime decides about restarts")
    if job.ttl is not None:
        job.lose("ttlSecondsAfterFinished", "a TrainJob is kept")
    if job.min_available is not None and job.min_available < job.pods:
        job.lose("minAvailable", f"all {job.pods} pods start together")
    overrides = [{"targetJobs": [{"name": "node"}], "spec": overridden}] if overridden else None
    return _set(
        {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": trainer,
            "podTemplateOverrides": overrides,
            "activeDeadlineSeconds": job.deadline,
            "suspend": job.suspend or None,
        }
    )


def _lose_parts(job: PortableJob, role: PortableRole) -> None:
    """Report what of the pods comes from the runtime of a TrainJob."""
    main, pod = _main(role), role.pod
    if role.restart != "OnFailure":
        job.lose(f"restartPolicy {role.restart}", "the runtime has OnFailure")
    if job.leader and len(job.roles) > 1:
        job.lose("success", f"all pods have to succeed instead of those of role {job.leader}")
    for key in ("labels", "annotations"):
        if (role.template.get("metadata") or {}).get(key):
            job.lose(f"pod metadata.{key}", "they come from the runtime")
    for key in sorted(pod.keys() - _OVERRIDABLE - {"containers", "restartPolicy"}):
        job.lose(f"pod {key}", "it comes from the runtime")
    for key in sorted(
        main.keys() - {"name", "image", "command", "args", "env", "resources", "volumeMounts", "ports"}
    ):
        job.lose(f"container {key}", "it comes from the runtime")
    for container in (pod.get("containers") or [])[1:]:
        job.lose(f"container {container.get('name')}", "the runtime has one container")


def _set(fields: Mapping[str, Any]) -> Json:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _wrapped(name: str, fields: Mapping[str, Any]) -> Json:
    found = _set(fields)
    return {name: found} if found else {}


TARGETS: Mapping[str, tuple[Resource, Callable[[PortableJob], Json]]] = {
    "pytorchjob": (PYTORCH_JOBS, _pytorch),
    "trainjob": (TRAIN_JOBS, _train_job),
    "vcjob": (VOLCANO_JOBS, _volcano),
    "jobset": (JOB_SETS, _job_set),
}
"""Value of ``--to`` → kind and writer."""

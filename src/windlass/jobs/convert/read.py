"""Readers of the kinds that are converted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from windlass.api import annotations as names
from windlass.api.kubeflow_fields import FIELDS, MASTER, WORKER
from windlass.api.resources import (
    BATCH_JOBS,
    JAX_JOBS,
    JOB_SETS,
    PADDLE_JOBS,
    PYTORCH_JOBS,
    TF_JOBS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    VOLCANO_JOBS_V1BETA1,
    XGBOOST_JOBS,
    Resource,
)
from windlass.jobs.convert.portable import Fields, Json, PortableJob, PortableRole

TORCH = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
    | {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"}
)
PROVIDED: Mapping[Resource, frozenset[str]] = {
    PYTORCH_JOBS: TORCH,
    XGBOOST_JOBS: frozenset(
        {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "WORKER_ADDRS", "WORKER_PORT"}
    ),
    TF_JOBS: frozenset({"TF_CONFIG"}),
    PADDLE_JOBS: frozenset({"PADDLE_MASTER", "PADDLE_NNODES", "PADDLE_JOB_ID"}),
    JAX_JOBS: frozenset({"COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID"}),
}
"""Variables that each kind of Kubeflow sets."""


class Unconvertible(ValueError):
    """The manifest cannot be converted; the text says why."""


def read(resource: Resource, obj: Json) -> PortableJob:
    """Return the portable form. Raises :class:`Unconvertible`."""
    reader = _READERS.get(resource)
    if reader is None:
        raise Unconvertible(f"{resource.kind} is not a kind that can be converted")
    job = reader(resource, obj)
    if not job.roles:
        raise Unconvertible("the job has no pods")
    return job


def _metadata(obj: Json) -> Json:
    metadata = obj.get("metadata") or {}
    annotations = {
        key: text
        for key, text in (metadata.get("annotations") or {}).items()
        if not key.startswith("kubectl.kubernetes.io/")
    }
    queue = annotations.pop(names.QUEUE_NAME_VOLCANO, "")
    return {
        "name": metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-"),
        "namespace": metadata.get("namespace") or "",
        "labels": dict(metadata.get("labels") or {}),
        "annotations": annotations,
        "queue": queue,
    }


def _kubeflow(resource: Resource, obj: Json) -> PortableJob:
    fields = FIELDS[resource]
    spec = Fields("spec", obj.get("spec"))
    replicas = spec.take(fields.field, {})
    roles = []
    for name in fields.roles:
        body = next((body for key, body in replicas.items() if str(key).lower() == name.lower()), None)
        if body is None:
            continue
        count = 1 if body.get("replicas") is None else int(body["replicas"])
        template = copy.deepcopy(body.get("template") or {})
        roles.append(PortableRole(name.lower(), count, template, body.get("restartPolicy") or fields.restart))
    job = PortableJob(roles=roles, provided=PROVIDED.get(resource, TORCH), **_metadata(obj))
    if any(role.name == MASTER.lower() for role in roles):
        job.leader = MASTER.lower()
    run = Fields("spec.runPolicy", spec.take("runPolicy"))
    scheduling = Fields("spec.runPolicy.schedulingPolicy", run.take("schedulingPolicy"))
    job.queue = scheduling.take("queue", job.queue)
    job.priority_class = scheduling.take("priorityClass", "")
    job.min_available = scheduling.take("minAvailable")
    scheduling.take("minResources")  # computed from the pods
    job.backoff = run.take("backoffLimit")
    job.deadline = run.take("activeDeadlineSeconds")
    job.ttl = run.take("ttlSecondsAfterFinished")
    job.suspend = bool(run.take("suspend", False))
    if (clean := run.take("cleanPodPolicy")) in ("All",):
        job.lose("spec.runPolicy.cleanPodPolicy", f"{clean}: finished pods are kept with the job")
    elastic = spec.take("elasticPolicy")
    if elastic:
        _elastic(job, elastic)
    spec.take("nprocPerNode")
    scheduling.leave(job)
    run.leave(job)
    spec.leave(job)
    return job


def _elastic(job: PortableJob, elastic: Json) -> None:
    worker = next((role for role in job.roles if role.name == WORKER.lower()), None)
    if worker is not None and elastic.get("minReplicas") is not None:
        worker.minimum = int(elastic["minReplicas"])
    job.lose("spec.elasticPolicy", "the number of pods does not change while the job runs")


def _volcano(resource: Resource, obj: Json) -> PortableJob:
    spec = Fields("spec", obj.get("spec"))
    roles = []
    provided: set[str] = set()
    policies: list[tuple[str, Json]] = [("spec.policies", policy) for policy in spec.take("policies", [])]
    leader = ""
    rest: list[Fields] = []
    for number, body in enumerate(spec.take("tasks", [])):
        task = Fields(f"spec.tasks[{number}]", body)
        name = str(task.take("name") or f"default{number}")
        count = task.take("replicas", 1)
        role = PortableRole(name, int(count), task.take("template", {}), minimum=task.take("minAvailable"))
        role.restart = role.pod.pop("restartPolicy", "OnFailure")
        roles.append(role)
        for policy in task.take("policies", []):
            if policy.get("event") == "TaskCompleted" and policy.get("action") == "CompleteJob":
                leader = name
            else:
                policies.append((f"spec.tasks[{number}].policies", policy))
        rest.append(task)
    plugins = spec.take("plugins", {})
    if "pytorch" in plugins:
        provided |= {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}
    if "env" in plugins:
        provided |= {"VC_TASK_INDEX", "VK_TASK_INDEX"}
    if "tensorflow" in plugins:
        provided |= {"TF_CONFIG"}
    job = PortableJob(roles=roles, provided=frozenset(provided), leader=leader, **_metadata(obj))
    for path, policy in policies:
        _policy(job, path, policy)
    for plugin in plugins:
        if plugin not in ("svc", "env", "pytorch", "tensorflow"):
            job.lose(f"spec.plugins.{plugin}", "the target kind has no such plugin")
    job.queue = spec.take("queue", job.queue)
    job.priority_class = spec.take("priorityClassName", "")
    job.min_available = spec.take("minAvailable")
    job.ttl = spec.take("ttlSecondsAfterFinished")
    restarts = spec.take("maxRetry")
    job.restarts = int(restarts) if restarts is not None and job.restarts else job.restarts
    scheduler = spec.take("schedulerName")
    for role in roles:
        if scheduler:
            role.pod.setdefault("schedulerName", scheduler)
    for fields in (*rest, spec):
        fields.leave(job)
    return job


def _policy(job: PortableJob, path: str, policy: Json) -> None:
    events = {policy.get("event"), *(policy.get("events") or ())} - {None}
    action = policy.get("action")
    if action == "RestartJob" and events <= {"PodEvicted"}:
        return  # every kind starts again after an eviction
    if action in ("TerminateJob", "AbortJob") and events <= {"PodFailed"}:
        return  # a failed pod fails the job in every kind
    if action == "RestartJob" and events <= {"PodFailed", "PodEvicted"}:
        job.restarts = 3  # Volcano's default of maxRetry
        return
    job.lose(path, f"{action} on {', '.join(sorted(map(str, events))) or 'exit code'} has no counterpart")


def _job_set(resource: Resource, obj: Json) -> PortableJob:
    spec = Fields("spec", obj.get("spec"))
    roles = []
    backoffs: set[int] = set()
    rest: list[Fields] = []
    for number, body in enumerate(spec.take("replicatedJobs", [])):
        path = f"spec.replicatedJobs[{number}]"
        outer = Fields(path, body)
        name, count = outer.take("name", "job"), int(outer.take("replicas", 1))
        inner = Fields(f"{path}.template.spec", (outer.take("template", {}).get("spec")) or {})
        pods = inner.take("parallelism", 1)
        inner.take("completions")
        inner.take("completionMode")
        backoff = inner.take("backoffLimit")
        if backoff is not None:
            backoffs.add(int(backoff))
        template = inner.take("template", {})
        role = PortableRole(str(name), count * int(pods), template)
        role.restart = role.pod.pop("restartPolicy", "Never")
        roles.append(role)
        rest += [inner, outer]
    provided = frozenset({"JOB_COMPLETION_INDEX"})
    job = PortableJob(roles=roles, provided=provided, **_metadata(obj))
    success = spec.take("successPolicy", {})
    targets = success.get("targetReplicatedJobs") or []
    if len(targets) == 1 and len(roles) > 1:
        job.leader = targets[0]
    failure = Fields("spec.failurePolicy", spec.take("failurePolicy"))
    job.restarts = int(failure.take("maxRestarts", 0))
    spec.take("network")
    job.backoff = max(backoffs) if backoffs else None
    job.ttl = spec.take("ttlSecondsAfterFinished")
    job.deadline = spec.take("activeDeadlineSeconds")
    job.suspend = bool(spec.take("suspend", False))
    for fields in (*rest, failure, spec):
        fields.leave(job)
    return job


def _batch(resource: Resource, obj: Json) -> PortableJob:
    spec = Fields("spec", obj.get("spec"))
    pods = int(spec.take("parallelism", 1))
    done = spec.take("completions", pods)
    role = PortableRole("main", pods, spec.take("template", {}))
    role.restart = role.pod.pop("restartPolicy", "Never")
    job = PortableJob(roles=[role], provided=frozenset({"JOB_COMPLETION_INDEX"}), **_metadata(obj))
    if int(done) != pods:
        job.lose(
            "spec.completions", f"{done} completions by {pods} pods: the target kind runs {pods} pods once"
        )
    spec.take("completionMode")
    job.backoff = spec.take("backoffLimit")
    job.deadline = spec.take("activeDeadlineSeconds")
    job.ttl = spec.take("ttlSecondsAfterFinished")
    job.suspend = bool(spec.take("suspend", False))
    spec.leave(job)
    return job


def _train_job(resource: Resource, obj: Json) -> PortableJob:
    spec = Fields("spec", obj.get("spec"))
    runtime = (spec.take("runtimeRef", {})).get("name")
    if runtime != "torch-distributed":
        raise Unconvertible(
            f"the pods of runtime {runtime} are not in the manifest; only torch-distributed is known"
        )
    trainer = Fields("spec.trainer", spec.take("trainer"))
    container: Json = {"name": "node", "image": trainer.take("image", "")}
    for field in ("command", "args", "env"):
        if value := trainer.take(field):
            container[field] = value
    if resources := trainer.take("resourcesPerNode"):
        container["resources"] = resources
    template: Json = {"spec": {"containers": [container]}}
    for override in spec.take("podTemplateOverrides", []):
        for key, value in (override.get("spec") or {}).items():
            if key == "containers":
                for other in value:
                    container |= {name: found for name, found in other.items() if name != "name"}
            else:
                template["spec"][key] = value
    role = PortableRole("node", int(trainer.take("numNodes", 1)), template)
    job = PortableJob(roles=[role], provided=TORCH - {"MASTER_ADDR", "RANK", "WORLD_SIZE"}, **_metadata(obj))
    if trainer.take("numProcPerNode"):
        job.lose("spec.trainer.numProcPerNode", "give --nproc-per-node to torchrun")
    job.deadline = spec.take("activeDeadlineSeconds")
    job.suspend = bool(spec.take("suspend", False))
    trainer.leave(job)
    spec.leave(job)
    return job


_READERS: Mapping[Resource, Callable[[Resource, Json], PortableJob]] = {
    **{resource: _kubeflow for resource in (PYTORCH_JOBS, TF_JOBS, XGBOOST_JOBS, PADDLE_JOBS, JAX_JOBS)},
    VOLCANO_JOBS: _volcano,
    VOLCANO_JOBS_V1BETA1: _volcano,
    JOB_SETS: _job_set,
    BATCH_JOBS: _batch,
    TRAIN_JOBS: _train_job,
}


def readable() -> list[str]:
    """Return the kinds that can be converted."""
    return sorted(
        {resource.kind if resource is not BATCH_JOBS else "Job (batch/v1)" for resource in _READERS}
    )

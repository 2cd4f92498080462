"""Readers of the kinds that are converted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from windlass.api import annotations as names
from windlass.api.fields.kubeflow import FIELDS, MASTER, WORKER
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
from windlass.jobs.trainer.builtin import BUILT_IN
from windlass.jobs.trainer.runtime import RuntimeProblem, read_template

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


def read(resource: Resource, obj: Json, runtimes: Mapping[str, Json] | None = None) -> PortableJob:
    """Return the portable form. Raises :class:`Unconvertible`.

    ``runtimes``: name → training runtime, in addition to those of Kubeflow Trainer.
    """
    reader = _READERS.get(resource)
    if resource is TRAIN_JOBS:
        job = _train_job(resource, obj, runtimes or {})
    elif reader is None:
        raise Unconvertible(f"{resource.kind} is not a kind that can be converted")
    else:
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


def _whole(value: object) -> int:
    """Return a number of pods. Raises ``ValueError``."""
    if not isinstance(value, int):
        raise ValueError(f"a number of pods is {value!r}")
    return value


def _kubeflow(resource: Resource, obj: Json) -> PortableJob:
    fields = FIELDS[resource]
    spec = Fields("spec", obj.get("spec"))
    replicas = spec.take(fields.field, {})
    roles = []
    for name in fields.roles:
        body = next((body for key, body in replicas.items() if str(key).lower() == name.lower()), None)
        if body is None:
            continue
        count = 1 if body.get("replicas") is None else _whole(body["replicas"])
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
        role = PortableRole(name, _whole(count), task.take("template", {}), minimum=task.take("minAvailable"))
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
    several: list[tuple[str, str]] = []
    rest: list[Fields] = []
    for number, body in enumerate(spec.take("replicatedJobs", [])):
        path = f"spec.replicatedJobs[{number}]"
        outer = Fields(path, body)
        name, count = outer.take("name", "job"), _whole(outer.take("replicas", 1))
        if outer.take("groupName", "default") != "default":
            rest.append(Fields(path, {"groupName": body["groupName"]}))
        inner = Fields(f"{path}.template.spec", (outer.take("template", {}).get("spec")) or {})
        pods = _whole(inner.take("parallelism", 1))
        inner.take("completions")
        inner.take("completionMode")
        backoff = inner.take("backoffLimit")
        if backoff is not None:
            backoffs.add(int(backoff))
        template = inner.take("template", {})
        if count > 1 and pods > 1:
            several.append((path, f"its {count} Jobs become one role of {count * pods} pods"))
        role = PortableRole(str(name), count * pods, template)
        role.restart = role.pod.pop("restartPolicy", "Never")
        roles.append(role)
        rest += [inner, outer]
    provided = frozenset({"JOB_COMPLETION_INDEX"})
    job = PortableJob(roles=roles, provided=provided, **_metadata(obj))
    for path, why in several:
        job.lose(f"{path}.replicas", why)
    success = spec.take("successPolicy", {})
    targets = success.get("targetReplicatedJobs") or []
    if len(targets) == 1 and len(roles) > 1:
        job.leader = targets[0]
    failure = Fields("spec.failurePolicy", spec.take("failurePolicy"))
    job.restarts = int(failure.take("maxRestarts", 0))
    failure.take("restartStrategy")
    spec.take("network")
    if (order := spec.take("startupPolicy", {})).get("startupPolicyOrder", "AnyOrder") != "AnyOrder":
        job.lose("spec.startupPolicy", f"{order['startupPolicyOrder']}: all pods start together")
    job.backoff = max(backoffs) if backoffs else None
    job.ttl = spec.take("ttlSecondsAfterFinished")
    job.deadline = spec.take("activeDeadlineSeconds")
    job.suspend = bool(spec.take("suspend", False))
    for fields in (*rest, failure, spec):
        fields.leave(job)
    return job


def _batch(resource: Resource, obj: Json) -> PortableJob:
    spec = Fields("spec", obj.get("spec"))
    pods = _whole(spec.take("parallelism", 1))
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


def _train_job(resource: Resource, obj: Json, runtimes: Mapping[str, Json]) -> PortableJob:
    spec = Fields("spec", obj.get("spec"))
    name = (spec.take("runtimeRef", {})).get("name")
    runtime = runtimes.get(str(name)) or BUILT_IN.get(str(name))
    if runtime is None:
        known = ", ".join(BUILT_IN)
        raise Unconvertible(
            f"the pods of runtime {name} are neither in the manifest nor known: add the runtime to the file, "
            f"or use one of {known}"
        )
    try:
        found = read_template(
            {"metadata": {"name": "", **(obj.get("metadata") or {})}, "spec": obj["spec"]}, runtime
        )
    except RuntimeProblem as problem:
        raise Unconvertible(str(problem)) from problem
    policy = next((kind for kind in _FRAMEWORKS if kind in found.policy), "")
    if policy == "mpi":
        raise Unconvertible(
            f"runtime {name} starts its ranks by mpirun, from a launcher with keys and a list of hosts"
        )
    job = _job_set(JOB_SETS, {"metadata": obj.get("metadata"), "spec": found.spec})
    job.provided = _FRAMEWORKS[policy] if policy else job.provided
    trainer = Fields("spec.trainer", spec.take("trainer"))
    for field in ("image", "command", "args", "env", "resourcesPerNode", "numNodes"):
        trainer.take(field)
    if trainer.take("numProcPerNode"):
        job.lose("spec.trainer.numProcPerNode", "give --nproc-per-node to torchrun")
    for field in ("podTemplateOverrides", "runtimePatches", "initializer"):
        spec.take(field)
    job.deadline = spec.take("activeDeadlineSeconds")
    job.ttl = spec.take("ttlSecondsAfterFinished", job.ttl)
    job.suspend = bool(spec.take("suspend", False))
    trainer.leave(job)
    spec.leave(job)
    return job


_FRAMEWORKS: Mapping[str, frozenset[str]] = {
    "torch": TORCH - {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"},
    "jax": PROVIDED[JAX_JOBS],
    "xgboost": frozenset({"DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"}),
    "mpi": frozenset(),
}
"""Framework of a runtime → variables that it sets."""


_READERS: Mapping[Resource, Callable[[Resource, Json], PortableJob]] = {
    **{resource: _kubeflow for resource in (PYTORCH_JOBS, TF_JOBS, XGBOOST_JOBS, PADDLE_JOBS, JAX_JOBS)},
    VOLCANO_JOBS: _volcano,
    VOLCANO_JOBS_V1BETA1: _volcano,
    JOB_SETS: _job_set,
    BATCH_JOBS: _batch,
}


def is_readable(resource: Resource) -> bool:
    return resource in _READERS or resource is TRAIN_JOBS


def readable() -> list[str]:
    """Return the kinds that can be converted."""
    return sorted(
        {
            resource.kind if resource is not BATCH_JOBS else "Job (batch/v1)"
            for resource in (*_READERS, TRAIN_JOBS)
        }
    )

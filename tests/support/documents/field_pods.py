"""Pods and gangs that an object of a job kind leads to, from the controllers on a fake API server."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps_world import AppsWorld
from batch_cluster import BatchWorld
from jobset_cluster import JobSetWorld
from leaderworkerset_cluster import LeaderWorkerSetWorld
from ray_world import RayWorld
from trainer_cluster import TrainWorld
from vcjob_cluster import World

from windlass.api import defaults
from windlass.api.fields.batch import CONTROLLER_UID, JOB_NAME, OLD_CONTROLLER_UID, OLD_JOB_NAME
from windlass.api.resources import (
    BATCH_JOBS,
    CLUSTER_TRAINING_RUNTIMES,
    CRON_JOBS,
    DEPLOYMENTS,
    JOB_SETS,
    JOB_TEMPLATES,
    LEADER_WORKER_SETS,
    POD_GROUPS,
    PODS,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    STATEFUL_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_CRON_JOBS,
    VOLCANO_JOBS,
    Resource,
    by_kind,
)
from windlass.controllers.vcjob.spec import read as read_volcano_job
from windlass.jobs.kubeflow.job import read_job
from windlass.jobs.kubeflow.kinds import KINDS
from windlass.jobs.kubeflow.pods import build_group, build_pod

Json = dict[str, Any]


@dataclass
class FieldPods:
    """Pods of an object: role → number, ``minMember`` of each gang, names of environment variables.

    ``problem``: why the controller creates no pods.
    """

    roles: dict[str, int] = field(default_factory=dict)
    gangs: list[int] = field(default_factory=list)
    environment: set[str] = field(default_factory=set)
    problem: str = ""

    @property
    def total(self) -> int:
        return sum(self.roles.values())


def pods_of(resource: Resource, obj: Json, around: Sequence[Json]) -> FieldPods | None:
    """Return the pods of an accepted object; ``None`` for a kind without pods of its own.

    ``around``: the runtimes that a TrainJob may name.
    """
    obj = copy.deepcopy(obj)
    obj["metadata"].pop("creationTimestamp", None)
    if resource in KINDS:
        return _kubeflow(resource, obj)
    if resource is TRAIN_JOBS:
        return _train_job(obj, around)
    derive = DERIVE.get(resource)
    return derive(obj) if derive is not None else None


def _found(pods: Iterable[Json], role: Callable[[Json], str], gangs: Iterable[Json]) -> FieldPods:
    pods = list(pods)
    return FieldPods(
        dict(Counter(map(role, pods))),
        sorted(group["spec"]["minMember"] for group in gangs),
        _environment(pod["spec"] for pod in pods),
    )


def _environment(specs: Iterable[Json]) -> set[str]:
    return {
        entry["name"]
        for spec in specs
        for part in ("initContainers", "containers")
        for container in spec.get(part) or ()
        for entry in container.get("env") or ()
    }


def _kubeflow(resource: Resource, obj: Json) -> FieldPods:
    obj["metadata"] |= {"namespace": "default", "uid": "u"}
    job = read_job(KINDS[resource], obj)
    roles = job.definition.roles
    pods = [build_pod(job, role, index, "volcano") for role in roles for index in range(role.replicas)]
    names = {
        build_pod(job, role, 0, "volcano")["metadata"]["labels"]["training.kubeflow.org/replica-type"]: role
        for role in roles
    }
    return _found(
        pods,
        lambda pod: names[pod["metadata"]["labels"]["training.kubeflow.org/replica-type"]].name,
        [build_group(job, {})],
    )


def _volcano_job(obj: Json) -> FieldPods:
    obj["metadata"] = {"name": "train", "annotations": obj["metadata"].get("annotations") or {}}
    tasks = [task.name for task in read_volcano_job(obj).tasks]
    world = World(obj)
    world.settle()
    world.admit()
    for _ in tasks:  # tasks that depend on others follow when those run
        world.settle()
        world.run()
    world.settle()
    return _found(
        world.api.objects(PODS),
        lambda pod: pod["metadata"]["annotations"]["volcano.sh/task-spec"],
        world.api.objects(POD_GROUPS),
    )


def _volcano_template(obj: Json) -> FieldPods:
    return _of_volcano_spec(obj["spec"])


def _volcano_cron_job(obj: Json) -> FieldPods:
    return _of_volcano_spec(obj["spec"]["jobTemplate"]["spec"])


def _of_volcano_spec(spec: Json) -> FieldPods:
    job = {"metadata": {"name": "train"}, "spec": spec}
    defaults.apply(VOLCANO_JOBS, job)
    return _volcano_job(job)


def _batch_job(obj: Json) -> FieldPods:
    obj["metadata"] |= {"name": "train", "namespace": "default", "uid": "u"}
    labels = {CONTROLLER_UID: "u", OLD_CONTROLLER_UID: "u", JOB_NAME: "train", OLD_JOB_NAME: "train"}
    template = obj["spec"]["template"]
    template["metadata"] = dict(template.get("metadata") or {})
    template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), **labels}
    obj["spec"] |= {"selector": {"matchLabels": {CONTROLLER_UID: "u"}}, "suspend": False}
    world = BatchWorld()
    world.api.remove(BATCH_JOBS, "default/train")
    world.api.put(BATCH_JOBS, obj)
    world.settle()
    return _found(world.api.objects(PODS), lambda _pod: "pod", ())


def _cron_job(obj: Json) -> FieldPods:
    job = {"metadata": {"name": "train"}, "spec": copy.deepcopy(obj["spec"]["jobTemplate"]["spec"])}
    defaults.apply(BATCH_JOBS, job)
    return _batch_job(job)


def _job_set(obj: Json) -> FieldPods:
    obj["metadata"] |= {"name": "js", "namespace": "default"}
    world = JobSetWorld(obj)
    found = FieldPods()
    gangs: dict[str, int] = {}
    roles: dict[str, dict[str, int]] = {}
    for _ in obj["spec"]["replicatedJobs"]:  # jobs that depend on others, or start in order
        world.settle()
        gangs |= world.groups()
        for name in world.jobs():
            jobs = roles.setdefault(name.rpartition("-")[0], {})
            if name not in jobs:
                pods = _batch_job(copy.deepcopy(world.job(name)))
                jobs[name] = pods.total
                found.environment |= pods.environment
            world.run(name)
        for name in world.jobs():
            world.end(name)
    found.roles = {role: sum(jobs.values()) for role, jobs in roles.items()}
    found.gangs = sorted(gangs.values())
    return found


def _train_job(obj: Json, around: Sequence[Json]) -> FieldPods:
    obj["metadata"] |= {"name": "t", "namespace": "default"}
    world = TrainWorld(obj)
    for runtime in around:
        kind = by_kind(runtime["apiVersion"], runtime["kind"])
        if kind is not None and kind in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES):
            space = {"namespace": "default"} if kind is TRAINING_RUNTIMES else {}
            world.api.put(kind, {**copy.deepcopy(runtime), "metadata": {**runtime["metadata"], **space}})
    for _ in range(30):
        world.reconcile()
        if not world.last.stages:
            break
    if world.job_set is None:
        return FieldPods(problem=world.state)
    found = _job_set(copy.deepcopy(world.job_set))
    found.gangs = sorted(g["spec"]["minMember"] for g in world.api.objects(POD_GROUPS)) or found.gangs
    return found


def _leader_worker_set(obj: Json) -> FieldPods:
    world = LeaderWorkerSetWorld()
    world.api.remove(LEADER_WORKER_SETS, "default/llm")
    obj["metadata"] |= {"name": "llm", "namespace": "default"}
    world.api.put(LEADER_WORKER_SETS, obj)
    world.settle()
    return _found(
        world.api.objects(PODS),
        lambda pod: (
            "leader"
            if pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
            else "worker"
        ),
        world.api.objects(POD_GROUPS),
    )


def _ray(obj: Json) -> FieldPods:
    obj["metadata"] |= {"name": "r", "namespace": "default"}
    world = RayWorld(obj)
    world.settle()
    return _found(
        world.api.objects(PODS),
        lambda pod: pod["metadata"]["labels"]["ray.io/group"].replace("headgroup", "head"),
        world.api.objects(POD_GROUPS),
    )


def _application(resource: Resource) -> Callable[[Json], FieldPods]:
    def derive(obj: Json) -> FieldPods:
        obj["metadata"] |= {"name": "web", "namespace": "default"}
        world = AppsWorld((resource, obj))
        for _ in range(30):
            if not world.round():
                break
        return _found(world.api.objects(PODS), lambda _pod: "pod", world.api.objects(POD_GROUPS))

    return derive


DERIVE: dict[Resource, Callable[[Json], FieldPods]] = {
    VOLCANO_JOBS: _volcano_job,
    VOLCANO_CRON_JOBS: _volcano_cron_job,
    JOB_TEMPLATES: _volcano_template,
    BATCH_JOBS: _batch_job,
    CRON_JOBS: _cron_job,
    JOB_SETS: _job_set,
    LEADER_WORKER_SETS: _leader_worker_set,
    RAY_CLUSTERS: _ray,
    RAY_JOBS: _ray,
    RAY_SERVICES: _ray,
    DEPLOYMENTS: _application(DEPLOYMENTS),
    STATEFUL_SETS: _application(STATEFUL_SETS),
}

"""Jobs of other kinds than Volcano's, as ``windlass run --kind`` and ``submit --kind`` create them.

The pod is that of a Volcano Job of one rank. The kind adds the number of pods and their
rendezvous: operators of Kubeflow set the variables themselves, and a JobSet gets those
of PyTorch and ``torchrun``.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from windlass.api import annotations as names
from windlass.api.errors import WindlassError
from windlass.api.fields.batch import COMPLETION_INDEX
from windlass.api.fields.kubeflow import FIELDS, MASTER, WORKER
from windlass.api.resources import (
    BATCH_JOBS,
    JOB_SETS,
    MPI_JOBS_V2BETA1,
    PYTORCH_JOBS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli.jobs.requests.elastic_job import elastic_job
from windlass.cli.jobs.requests.job_builder import (
    TASK,
    JobRequest,
    build_job,
    environment_of,
    master_port,
    rendezvous,
)

Object = dict[str, Any]
VCJOB = "vcjob"
_KUBEFLOW = {resource.singular: resource for resource in FIELDS}
KINDS = (VCJOB, *_KUBEFLOW, "job", "jobset", "trainjob")
"""Values of ``--kind``. The first one is the default."""
_RESOURCES: Mapping[str, Resource] = {
    **_KUBEFLOW,
    VCJOB: VOLCANO_JOBS,
    "mpijob": MPI_JOBS_V2BETA1,
    "job": BATCH_JOBS,
    "jobset": JOB_SETS,
    "trainjob": TRAIN_JOBS,
}
_TORCH_RUNTIME = "torch-distributed"


def build_manifest(
    request: JobRequest, name: str, *, namespace: str, embedded: bool, environ: Mapping[str, str]
) -> Object:
    """Return the job that the flags describe, of the kind that they name.

    Raises :class:`WindlassError` if the kind cannot express them.
    """
    if request.elastic is not None or request.kind == VCJOB:
        job = build_job(request, name, namespace=namespace, embedded=embedded, environ=environ)
        return job if request.elastic is None else elastic_job(job, request.elastic)
    one = replace(request, nodes=1)
    job = build_job(one, name, namespace=namespace, embedded=embedded, environ=environ)
    template = copy.deepcopy(job["spec"]["tasks"][0]["template"])
    template["spec"]["schedulerName"] = job["spec"]["schedulerName"]
    body = _BUILDERS.get(request.kind, _kubeflow)(request, name, template)
    if request.kind == "jobset":
        given = environment_of(request, embedded=embedded, environ=environ)
        port = master_port(f"{namespace}/{name}", host_network=request.host_network)
        _add_rendezvous(template, name, request, port, given)
    metadata: Object = {"name": name, "namespace": namespace, **body.pop("metadata", {})}
    return {"apiVersion": body.pop("apiVersion"), "kind": body.pop("kind"), "metadata": metadata, **body}


def resource_of(request: JobRequest) -> Resource:
    """Return the resource of the job. Raises :class:`WindlassError` for an elastic job of another kind."""
    kind = request.kind
    if request.elastic is not None:
        if kind not in (VCJOB, PYTORCH_JOBS.singular):
            raise _unable(request, "an elastic job is a PyTorchJob", "--elastic MIN:MAX")
        return PYTORCH_JOBS
    return _RESOURCES[kind]


def _kubeflow(request: JobRequest, name: str, template: Object) -> Object:
    resource = _KUBEFLOW[request.kind]
    fields = FIELDS[resource]
    template["spec"].pop("restartPolicy")
    template["spec"]["containers"][0]["name"] = fields.container

    def role(replicas: int) -> Object:
        return {"replicas": replicas, "restartPolicy": "Never", "template": copy.deepcopy(template)}

    roles: Object = {}
    if fields.roles[0] == MASTER:
        roles[MASTER] = role(1)
        if request.nodes > 1:
            roles[WORKER] = role(request.nodes - 1)
    else:
        roles[WORKER] = role(request.nodes)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "spec": {"runPolicy": _run_policy(request), fields.field: roles},
    }


def _run_policy(request: JobRequest) -> Object:
    scheduling = {"queue": request.queue}
    if request.priority:
        scheduling["priorityClass"] = request.priority
    return {"cleanPodPolicy": "Running", "schedulingPolicy": scheduling}


def _mpi(request: JobRequest, name: str, template: Object) -> Object:
    """Run the command in the launcher. The workers hold the GPUs and wait for it."""
    container = template["spec"]["containers"][0]
    container["name"] = "mpi"
    worker = copy.deepcopy(template)
    worker["spec"]["containers"][0].pop("command")
    container.pop("resources", None)
    for spec in (template["spec"], worker["spec"]):
        spec.pop("restartPolicy")
    return {
        "apiVersion": MPI_JOBS_V2BETA1.api_version,
        "kind": MPI_JOBS_V2BETA1.kind,
        "spec": {
            "slotsPerWorker": max(1, request.gpus),
            "runPolicy": _run_policy(request),
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": template},
                WORKER: {"replicas": request.nodes, "restartPolicy": "Never", "template": worker},
            },
        },
    }


def _batch(request: JobRequest, name: str, template: Object) -> Object:
    if request.nodes > 1:
        raise _unable(
            request,
            f"--nodes {request.nodes}: the pods of a Job do not know each other's addresses",
            "--kind jobset",
        )
    _set_priority(request, template)
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": _in_queue(request),
        "spec": {"backoffLimit": 0, "template": template},
    }


def _job_set(request: JobRequest, name: str, template: Object) -> Object:
    _set_priority(request, template)
    job = {
        "parallelism": request.nodes,
        "completions": request.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template,
    }
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": _in_queue(request),
        "spec": {"replicatedJobs": [{"name": TASK, "replicas": 1, "template": {"spec": job}}]},
    }


def _add_rendezvous(
    template: Object, name: str, request: JobRequest, port: int, given: list[dict[str, str]]
) -> None:
    """Add the variables of PyTorch and ``torchrun``, with the names of a JobSet's pods."""
    variables = rendezvous(name, request.nodes, port, given, devices=request.gpus)
    for variable in variables:
        if variable["name"] in ("MASTER_ADDR", "PET_MASTER_ADDR"):
            own = next((one["value"] for one in given if one["name"] == "MASTER_ADDR"), "")
            variable["value"] = own or f"{name}-{TASK}-0-0.{name}"
        if "valueFrom" in variable:
            path = f"metadata.annotations['{COMPLETION_INDEX}']"
            variable["valueFrom"] = {"fieldRef": {"fieldPath": path}}
    container = template["spec"]["containers"][0]
    container["env"] = [*container["env"], *variables]


def _train_job(request: JobRequest, name: str, template: Object) -> Object:
    """Run the command with the runtime ``torch-distributed``, which has a pod template of its own."""
    if request.annotations or request.host_network or request.priority:
        raise _unable(
            request, "its pods come from a runtime, so they take no flags about devices, nodes and priority"
        )
    container = template["spec"]["containers"][0]
    command = container["command"]
    if directory := container.get("workingDir"):
        command = ["sh", "-c", f'cd {shlex.quote(directory)} && exec "$$0" "$$@"', *command]
    trainer: Object = {"image": container["image"], "command": command, "env": container["env"]}
    trainer["numNodes"] = request.nodes
    if "resources" in container:
        trainer["resourcesPerNode"] = container["resources"]
    spec: Object = {"runtimeRef": {"name": _TORCH_RUNTIME}, "trainer": trainer}
    if request.time_seconds:
        spec["activeDeadlineSeconds"] = request.time_seconds
    return {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": TRAIN_JOBS.kind,
        "metadata": _in_queue(request),
        "spec": spec,
    }


_BUILDERS: Mapping[str, Callable[[JobRequest, str, Object], Object]] = {
    "mpijob": _mpi,
    "job": _batch,
    "jobset": _job_set,
    "trainjob": _train_job,
}


def _in_queue(request: JobRequest) -> Object:
    return {"annotations": {names.QUEUE_NAME_VOLCANO: request.queue}} if request.queue != "default" else {}


def _set_priority(request: JobRequest, template: Object) -> None:
    if request.priority:
        template["spec"]["priorityClassName"] = request.priority


def _unable(request: JobRequest, why: str, other: str = f"--kind {VCJOB}") -> WindlassError:
    return WindlassError(
        "WL-USE-400",
        f"--kind {request.kind} cannot express these flags",
        evidence=why,
        remedies=(f"{request.command_line} {other} -- COMMAND",),
    )

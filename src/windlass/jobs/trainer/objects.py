"""Objects of a TrainJob: its JobSet, and the Secret, ConfigMaps and PodGroup that it needs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api import owner_references
from windlass.api.fields import jobset, trainer
from windlass.api.resources import (
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    JOB_SETS,
    POD_GROUPS,
    SECRETS,
    TRAIN_JOBS,
    Resource,
)
from windlass.jobs.gang import GangPart, least_resources
from windlass.jobs.trainer.policies import HOST_FILE, SSH_SECRET, apply_policy, elastic_nodes, host_file
from windlass.jobs.trainer.runtime import JsonObject, TrainTemplate, count_of, pod_of, read_template

Json = Mapping[str, Any]
SNAPSHOT = "-runtime-snapshot"
SNAPSHOT_KEY = "runtime"
DEFAULT_TIMEOUT_SECONDS = 60
"""Default of ``scheduleTimeoutSeconds`` of coscheduling, in seconds."""


@dataclass(frozen=True, slots=True)
class TrainObjects:
    """Objects of one TrainJob.

    ``group``: PodGroup of the training step, or ``None`` if the JobSet's own gang is enough.
    ``host_file``: ConfigMap with the hosts of MPI, or ``None``. ``ssh_secret``: name of the
    Secret with the keys of MPI; empty if it needs none.
    """

    job_set: JsonObject
    group: tuple[Resource, JsonObject] | None
    host_file: JsonObject | None
    ssh_secret: str


def owner_reference(train_job: Json) -> dict[str, Any]:
    metadata = train_job["metadata"]
    return owner_references.owner_reference(TRAIN_JOBS, metadata["name"], metadata.get("uid") or "")


def build_objects(train_job: Json, runtime: Json, priorities: Mapping[str, int]) -> TrainObjects:
    """Return the objects of a TrainJob. Raises :class:`RuntimeProblem`.

    ``priorities``: PriorityClass → value.
    """
    found = read_template(train_job, runtime)
    apply_policy(found)
    _report_to(found)
    group = _group(train_job, found, priorities)
    hosts = host_file(found)
    return TrainObjects(
        job_set=_job_set(train_job, found),
        group=group,
        host_file=_config_map(train_job, HOST_FILE, {"hostfile": hosts}) if hosts else None,
        ssh_secret=f"{found.name}{SSH_SECRET}" if "mpi" in found.policy else "",
    )


def _report_to(found: TrainTemplate) -> None:
    """Let the pods report progress to the TrainJob, rather than to the Job that controls them."""
    main = found.trainer_job()
    if main is not None:
        template = main["template"]["spec"].setdefault("template", {})
        metadata = template.setdefault("metadata", {})
        path = TRAIN_JOBS.path(found.namespace, found.name, "status")
        metadata["annotations"] = {**(metadata.get("annotations") or {}), names.PROGRESS_PATH: path}


def _metadata(train_job: Json, name: str) -> JsonObject:
    return {
        "name": name,
        "namespace": train_job["metadata"].get("namespace") or "default",
        "ownerReferences": [owner_reference(train_job)],
    }


def _job_set(train_job: Json, found: TrainTemplate) -> JsonObject:
    metadata = _metadata(train_job, found.name)
    annotations = {
        **_inherited(train_job),
        **found.annotations,
        names.TEMPLATE_HASH: template_hash(found.spec),
    }
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {
            **metadata,
            "labels": {**_inherited_labels(train_job), **found.labels},
            "annotations": annotations,
        },
        "spec": found.spec,
    }


def _inherited(train_job: Json) -> dict[str, str]:
    """Return the annotations of a TrainJob that its JobSet takes over: those for the scheduler."""
    given = train_job["metadata"].get("annotations") or {}
    own = (names.LAST_APPLIED, names.PROGRESS)
    return {name: text for name, text in given.items() if name not in own}


def _inherited_labels(train_job: Json) -> dict[str, str]:
    return dict(train_job["metadata"].get("labels") or {})


def template_hash(spec: Json) -> str:
    """Return a hash of a JobSet's spec without ``suspend``."""
    kept = {name: value for name, value in spec.items() if name != "suspend"}
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()[:16]


def _config_map(train_job: Json, suffix: str, data: dict[str, str]) -> JsonObject:
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": _metadata(train_job, f"{train_job['metadata']['name']}{suffix}"),
        "data": data,
    }


def build_secret(train_job: Json, private: str, public: str) -> JsonObject:
    """Return the Secret with the SSH keys of an MPI job."""
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": _metadata(train_job, f"{train_job['metadata']['name']}{SSH_SECRET}"),
        "type": "kubernetes.io/ssh-auth",
        "immutable": True,
        "stringData": {"ssh-privatekey": private, "ssh-publickey": public},
    }


# Snapshot of the runtime.


def snapshot_name(train_job: Json) -> str:
    return f"{train_job['metadata']['name']}{SNAPSHOT}"


def build_snapshot(train_job: Json, runtime: Json) -> JsonObject:
    """Return the ConfigMap with the runtime as it is now. A later change does not reach the job."""
    metadata = runtime.get("metadata") or {}
    kept = {
        "apiVersion": runtime.get("apiVersion"),
        "kind": runtime.get("kind"),
        "metadata": {
            name: metadata[name]
            for name in ("name", "namespace", "labels", "annotations")
            if metadata.get(name)
        },
        "spec": runtime.get("spec") or {},
    }
    return _config_map(train_job, SNAPSHOT, {SNAPSHOT_KEY: msgspec.json.encode(kept).decode()})


def read_snapshot(config_map: Json) -> Json | None:
    """Return the runtime of a snapshot; ``None`` if it cannot be read."""
    text = (config_map.get("data") or {}).get(SNAPSHOT_KEY)
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _from_yaml(text)


def _from_yaml(text: str) -> Json | None:
    """Read a snapshot that Kubeflow's controller wrote."""
    from windlass.api.wire import yaml_text

    try:
        return yaml_text.load_one(text)[0]
    except ValueError:
        return None


# Gang.


def _group(
    train_job: Json, found: TrainTemplate, priorities: Mapping[str, int]
) -> tuple[Resource, JsonObject] | None:
    """Return the PodGroup of the training step, and put the step's pods into it.

    A JobSet forms gangs by itself. The TrainJob's own PodGroup is needed for the form of
    another scheduler, for a network topology, and for a minimum below the number of nodes.
    """
    main = found.trainer_job()
    elastic = elastic_nodes(found)
    if main is None or (not found.gang and elastic is None):
        return None
    depends = {str(item) for item in main.get("dependsOn") or ()}
    members = [job for job in found.jobs if {str(item) for item in job.get("dependsOn") or ()} == depends]
    fewer = count_of(main) - elastic.minimum if elastic is not None else 0
    parts = [
        GangPart(
            count_of(job) * jobset.replicas_of(job),
            count_of(job) * jobset.replicas_of(job) - (fewer if job is main else 0),
            priorities.get(str(pod_of(job).get("priorityClassName") or ""), 0),
            pod_of(job),
        )
        for job in members
    ]
    minimum = sum(part.minimum for part in parts)
    spec: JsonObject = {"minMember": minimum, "minResources": least_resources(parts, minimum)}
    coscheduling = found.gang.get("coscheduling")
    for job in members:
        _join(job, found.name, in_label=coscheduling is not None)
    if coscheduling is not None:
        spec["scheduleTimeoutSeconds"] = coscheduling.get("scheduleTimeoutSeconds") or DEFAULT_TIMEOUT_SECONDS
        return COSCHEDULING_POD_GROUPS, _group_object(train_job, found, COSCHEDULING_POD_GROUPS, spec)
    spec["queue"] = found.annotations.get(names.QUEUE_NAME_VOLCANO) or _inherited(train_job).get(
        names.QUEUE_NAME_VOLCANO, "default"
    )
    topology = (found.gang.get("volcano") or {}).get("networkTopology")
    if topology:
        spec["networkTopology"] = topology
    classes = [str(pod_of(job).get("priorityClassName") or "") for job in members]
    if any(classes):
        spec["priorityClassName"] = next(name for name in classes if name)
    return POD_GROUPS, _group_object(train_job, found, POD_GROUPS, spec)


def _group_object(train_job: Json, found: TrainTemplate, resource: Resource, spec: JsonObject) -> JsonObject:
    metadata = _metadata(train_job, found.name)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            **metadata,
            "labels": _inherited_labels(train_job),
            "annotations": {**_inherited(train_job), **found.annotations},
        },
        "spec": spec,
    }


def _join(job: JsonObject, group: str, *, in_label: bool) -> None:
    template = job["template"]["spec"]["template"]
    metadata = template.setdefault("metadata", {})
    if in_label:
        metadata["labels"] = {**(metadata.get("labels") or {}), names.GROUP_NAME_COSCHEDULING: group}
        return
    marks = {names.GROUP_NAME: group, names.TASK_SPEC: job["name"]}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **marks}


def is_from(runtime: Json, reference: Json) -> bool:
    """Return whether a snapshot is of the runtime that the TrainJob names."""
    kind = trainer.runtime_kind(reference)
    metadata = runtime.get("metadata") or {}
    return (
        kind is not None
        and runtime.get("kind") == kind.kind
        and metadata.get("name") == reference.get("name")
    )

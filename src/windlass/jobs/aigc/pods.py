"""Pods, Service, ConfigMap, Secret and PodGroup of an AIGCJob."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api import annotations as names
from windlass.api import owner_references
from windlass.api.resources import AIGC_JOBS, POD_GROUPS
from windlass.jobs.aigc.job import AigcJob
from windlass.jobs.aigc.model_files import add_model
from windlass.jobs.definition import Role
from windlass.jobs.gang import GangPart, least_resources

IMAGE = "windlass.dev/windlass:latest"
"""Image of driver and workers where the platform names none. In single-node mode it is not looked at."""
BATCH_FOLDER = "/etc/windlass/batch"
BATCH_KEY = "batch.json"
TOKEN_KEY = "token"
OUTPUTS_FOLDER = "/var/lib/windlass/outputs"
_INPUT_FOLDER = "/var/lib/windlass/input"
_FILE_ENDINGS = (".jsonl", ".csv", ".json", ".ndjson")
_SCHEDULER = "windlass"
_NOT_SIMULATED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": names.SIMULATED, "operator": "NotIn", "values": ["true"]}]}
            ]
        }
    }
}
"""Affinity of the driver, which is a process: simulated nodes run none."""


@dataclass(frozen=True, slots=True)
class BatchPlatform:
    """Facts about the place where pods of generation jobs run.

    ``python``: interpreter that has Windlass. ``image``: image that has it. ``outputs``: folder of
    the node for outputs of jobs that name none; empty: they are lost with the pod. ``models``: folder
    of the node for models.
    """

    python: str = "python3"
    image: str = IMAGE
    outputs: str = ""
    models: str = "/var/lib/windlass/models"


def owner_reference(job: AigcJob) -> dict[str, Any]:
    return owner_references.owner_reference(AIGC_JOBS, job.definition.name, job.definition.uid)


def job_labels(job: AigcJob) -> dict[str, str]:
    """Return the labels that all objects of the job carry."""
    return {fields.JOB_NAME: job.definition.name, fields.PRIORITY: job.level}


def pod_labels(job: AigcJob, role: Role, index: int) -> dict[str, str]:
    return {**job_labels(job), fields.ROLE: role.key, fields.INDEX: str(index)}


def _metadata(job: AigcJob, name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": job.definition.namespace,
        "labels": dict(labels or job_labels(job)),
        "ownerReferences": [owner_reference(job)],
    }


def build_config_map(job: AigcJob) -> dict[str, Any]:
    """Return the ConfigMap with the document of the batch."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, job.objects_name),
        "data": {BATCH_KEY: job.batch_text()},
    }


def build_secret(job: AigcJob, token: str) -> dict[str, Any]:
    """Return the Secret with the token of the driver's API."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, job.objects_name),
        "type": "Opaque",
        "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }


def build_service(job: AigcJob) -> dict[str, Any]:
    """Return the headless Service of the driver. It resolves before the driver is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, job.driver_host),
        "spec": {
            "clusterIP": "None",
            "selector": {fields.JOB_NAME: job.definition.name, fields.ROLE: job.driver.key},
            "publishNotReadyAddresses": True,
            "ports": [{"name": "batch", "port": job.port, "targetPort": job.port}],
        },
    }


def build_group(job: AigcJob, priorities: Mapping[str, int]) -> dict[str, Any]:
    """Return the PodGroup of the workers, which has the name of the job."""
    definition = job.definition
    annotations = {
        name: text for name, text in definition.annotations.items() if name not in names.OF_JOBS_ALONE
    }
    if not job.policy["preemptible"]:
        annotations[names.PREEMPTABLE] = "false"
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            **_metadata(job, definition.name, {**definition.labels, **job_labels(job)}),
            "annotations": annotations,
        },
        "spec": group_spec(job, priorities),
    }


def group_spec(job: AigcJob, priorities: Mapping[str, int]) -> dict[str, Any]:
    definition = job.definition
    priority = priorities.get(definition.gang.priority_class, 0)
    worker = GangPart(job.worker.replicas, job.minimum, priority, job.worker.pod_spec)
    return {
        "minMember": job.minimum,
        "queue": definition.gang.queue,
        "minResources": least_resources([worker], job.minimum),
        "priorityClassName": definition.gang.priority_class,
    }


def build_pod(
    job: AigcJob, role: Role, index: int, scheduler: str, platform: BatchPlatform, attempt: int
) -> dict[str, Any]:
    """Return the pod of a role. ``attempt``: number of the job's attempt, from 1 on."""
    template = role.template.get("metadata") or {}
    annotations = {**(template.get("annotations") or {})}
    if not job.policy["preemptible"]:
        annotations[names.PREEMPTABLE] = "false"
    driver = role is job.driver
    if driver:
        annotations[names.QUEUE_NAME_VOLCANO] = job.definition.gang.queue
    else:
        annotations |= {names.GROUP_NAME: job.definition.name, names.TASK_SPEC: role.key}
    labels = {**(template.get("labels") or {}), **pod_labels(job, role, index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_metadata(job, job.definition.pod_name(role, index), labels),
            "annotations": annotations,
        },
        "spec": _driver_spec(job, scheduler, platform, attempt)
        if driver
        else _worker_spec(job, scheduler, platform, attempt),
    }


def _common(job: AigcJob, body: dict[str, Any], scheduler: str) -> dict[str, Any]:
    body["restartPolicy"] = "Never"
    body.setdefault("schedulerName", job.spec.get("schedulerName") or scheduler)
    body.setdefault("priorityClassName", job.definition.gang.priority_class)
    body.setdefault("terminationGracePeriodSeconds", int(job.policy["preemptGraceSeconds"]))
    return body


def _driver_spec(job: AigcJob, scheduler: str, platform: BatchPlatform, attempt: int) -> dict[str, Any]:
    container = dict(job.driver.pod_spec["containers"][0])
    container["image"] = platform.image
    container["command"] = [platform.python, "-m", "windlass.items.driver"]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    container["env"] = [
        *_environment(job, platform, attempt),
        {"name": "WINDLASS_BATCH_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "WINDLASS_BATCH_LISTEN", "value": f"$(WINDLASS_BATCH_POD_IP):{job.port}"},
        *([{"name": "WINDLASS_BATCH_RETRY_DEAD", "value": "true"}] if job.retry or attempt > 1 else ()),
    ]
    container["ports"] = [{"name": "batch", "containerPort": job.port}]
    body: dict[str, Any] = {"containers": [container]}
    template = fields.part(fields.part(job.spec, "template"), "spec")
    for field in ("nodeSelector", "tolerations", "serviceAccountName", "imagePullSecrets"):
        if template.get(field):
            body[field] = template[field]
    # The driver belongs to no gang: a scheduler of gangs would make one of it.
    body["schedulerName"] = job.spec.get("schedulerName") or _SCHEDULER
    body["affinity"] = _NOT_SIMULATED
    _mount(job, body, platform, inputs=True)
    return _common(job, body, scheduler)


def _worker_spec(job: AigcJob, scheduler: str, platform: BatchPlatform, attempt: int) -> dict[str, Any]:
    body = dict(job.worker.pod_spec)
    first = dict(body["containers"][0])
    first.setdefault("image", platform.image)
    first.pop("args", None)
    first["command"] = [platform.python, "-m", "windlass.items.worker"]
    first.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    host = f"{job.driver_host}.{job.definition.namespace}.svc"
    first["env"] = [
        *(first.get("env") or ()),
        *_environment(job, platform, attempt),
        {"name": "WINDLASS_BATCH_DRIVER", "value": f"http://{host}:{job.port}"},
        {"name": "WINDLASS_BATCH_WORKER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    body["containers"] = [first, *body["containers"][1:]]
    _mount(job, body, platform, inputs=False)
    _share_memory(job, body)
    add_model(job.spec, body, platform.models)
    return _common(job, body, scheduler)


def _environment(job: AigcJob, platform: BatchPlatform, attempt: int) -> list[dict[str, Any]]:
    secret = {"secretKeyRef": {"name": job.objects_name, "key": TOKEN_KEY}}
    found = [
        {"name": "WINDLASS_BATCH", "value": posixpath.join(BATCH_FOLDER, BATCH_KEY)},
        {"name": "WINDLASS_BATCH_TOKEN", "valueFrom": secret},
        {"name": "WINDLASS_BATCH_ATTEMPT", "value": str(attempt)},
    ]
    if not _outputs_path(job):
        found.append({"name": "WINDLASS_BATCH_OUTPUTS", "value": _default_outputs(job, platform)})
    return found


def _outputs_path(job: AigcJob) -> str:
    return str(fields.part(job.spec, "outputs").get("path") or "")


def outputs_file(job: AigcJob, platform: BatchPlatform) -> str:
    """Return the path of the outputs on their node or volume; empty if they are lost with the pod."""
    path = _outputs_path(job) or (_default_outputs(job, platform) if platform.outputs else "")
    if not path or not _is_folder(path):
        return path
    form = str(fields.part(job.spec, "outputs").get("format") or "jsonl")
    return posixpath.join(path, f"outputs.{form}")


def _default_outputs(job: AigcJob, platform: BatchPlatform) -> str:
    name = f"{job.definition.namespace}-{job.definition.name}"
    return posixpath.join(platform.outputs or OUTPUTS_FOLDER, name)


def _mount(job: AigcJob, body: dict[str, Any], platform: BatchPlatform, inputs: bool) -> None:
    """Mount the document of the batch, the outputs and the input into the first container."""
    volumes = [*(body.get("volumes") or ())]
    first = dict(body["containers"][0])
    mounts = [*(first.get("volumeMounts") or ())]

    def add(name: str, path: str, source: dict[str, Any], **more: Any) -> None:
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": path, **more})

    add("windlass-batch", BATCH_FOLDER, {"configMap": {"name": job.objects_name}}, readOnly=True)
    if inputs:
        for name, path, source in _folders(job, platform):
            add(name, path, source)
        _mount_input(job, first, add)
    first["volumeMounts"] = mounts
    body["containers"] = [first, *body["containers"][1:]]
    body["volumes"] = volumes


def _folders(job: AigcJob, platform: BatchPlatform) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the folders of the node that the driver needs: name, path, volume."""
    path = _outputs_path(job)
    claim = fields.part(fields.part(job.spec, "outputs"), "pvc").get("claimName")
    if claim:
        mount = path if _is_folder(path) else posixpath.dirname(path)
        return [
            ("windlass-outputs", mount or OUTPUTS_FOLDER, {"persistentVolumeClaim": {"claimName": claim}})
        ]
    folder = path or (_default_outputs(job, platform) if platform.outputs else "")
    if not folder:
        return [("windlass-outputs", OUTPUTS_FOLDER, {"emptyDir": {}})]
    return [("windlass-outputs", *_node_folder(folder if _is_folder(folder) else posixpath.dirname(folder)))]


def _is_folder(path: str) -> bool:
    """Return whether outputs at this path are files in a folder, as the driver reads it."""
    return path.endswith("/") or posixpath.splitext(path)[1] not in _FILE_ENDINGS


def _node_folder(path: str) -> tuple[str, dict[str, Any]]:
    return path, {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _mount_input(job: AigcJob, container: dict[str, Any], add: Any) -> None:
    given = fields.part(job.spec, "input")
    claim, config = fields.part(given, "pvc"), fields.part(given, "configMap")
    if claim.get("claimName"):
        source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": claim["claimName"]}}
    elif config.get("name"):
        source = {"configMap": {"name": config["name"]}}
    else:
        path = str(given.get("path") or "")
        if path.startswith("/"):
            folder = path if given.get("format") == "dir" else posixpath.dirname(path)
            source = {"hostPath": {"path": folder}}
            outputs = _outputs_path(job)
            if folder not in ("/", outputs, posixpath.dirname(outputs)):
                add("windlass-input", folder, source)
        return
    add("windlass-input", _INPUT_FOLDER, source, readOnly=True)
    container["env"] = [*container["env"], {"name": "WINDLASS_BATCH_INPUT_MOUNT", "value": _INPUT_FOLDER}]


def _share_memory(job: AigcJob, body: dict[str, Any]) -> None:
    shared = job.spec.get("sharedMemory")
    if not isinstance(shared, Mapping):
        return
    limit = str(shared.get("sizeLimit") or "16Gi")
    name = "windlass-shared-memory"
    body["volumes"] = [
        *body["volumes"],
        {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": limit}},
    ]
    mount = {"name": name, "mountPath": str(shared.get("mountPath") or "/dev/shm")}
    containers: Sequence[dict[str, Any]] = body["containers"]
    body["containers"] = [
        {**one, "volumeMounts": [*(one.get("volumeMounts") or ()), mount]} for one in containers
    ]

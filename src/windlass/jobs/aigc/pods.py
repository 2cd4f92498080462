"""Pods, Service, ConfigMap, Secret and PodGroup of an AIGCJob."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api import owner_references
from windlass.api.fields import aigc
from windlass.api.fields.model_cache import MODELS_FOLDER
from windlass.api.fields.stages import GPU_GATE, STAGE
from windlass.api.resources import AIGC_JOBS, POD_GROUPS
from windlass.api.views import Pod
from windlass.jobs.aigc.autoscale import mount_plugin
from windlass.jobs.aigc.job import DRIVER_KEY, AigcJob
from windlass.jobs.aigc.model_files import add_model
from windlass.jobs.aigc.shards import add_shard, shard_policy
from windlass.jobs.aigc.spot import add_spot
from windlass.jobs.aigc.storage import OutputsClaim, claim_name, local_path, needs_claim
from windlass.jobs.aigc.topology import slice_annotations
from windlass.jobs.definition import Role
from windlass.jobs.gang import GangPart, least_resources

IMAGE = "windlass.dev/windlass:latest"
"""Image of driver and workers where the platform names none. In single-node mode it is not looked at."""
BATCH_FOLDER = "/etc/windlass/batch"
BATCH_KEY = "batch.json"
TOKEN_KEY = "token"
OUTPUTS_FOLDER = "/var/lib/windlass/outputs"
_INPUT_FOLDER = "/var/lib/windlass/input"
_FILE_ENDINGS = (".jsonl", ".csv", ".json", ".ndjson", ".parquet")
_SCHEDULER = "windlass"
_STORE_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_")
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
    the node for outputs of jobs that name none; empty: they are lost with the pod. ``claim``: volume
    for them instead. ``models``: folder of the node for models.
    ``group``: group that may write to claims (``fsGroup``); 0: the platform does not change them.
    """

    python: str = "python3"
    image: str = IMAGE
    outputs: str = ""
    models: str = MODELS_FOLDER
    group: int = 0
    claim: OutputsClaim | None = None


def owner_reference(job: AigcJob) -> dict[str, Any]:
    return owner_references.owner_reference(AIGC_JOBS, job.definition.name, job.definition.uid)


def job_labels(job: AigcJob) -> dict[str, str]:
    """Return the labels that all objects of the job carry."""
    return {aigc.JOB_NAME: job.definition.name, aigc.PRIORITY: job.level}


def pod_labels(job: AigcJob, role: Role, index: int) -> dict[str, str]:
    stage = {STAGE: role.name} if job.plan is not None and role is not job.driver else {}
    replica, rank = role.place_of(index)
    shard = {aigc.SHARD: str(rank)} if role.size > 1 else {}
    return {**job_labels(job), aigc.ROLE: role.key, aigc.INDEX: str(replica), **shard, **stage}


def driver_among(pods: Iterable[Pod]) -> Pod | None:
    """Return the driver's pod among the pods of a job."""
    return next((pod for pod in pods if pod.labels.get(aigc.ROLE) == DRIVER_KEY), None)


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


def token_of(secret: Mapping[str, Any]) -> str:
    """Return the token of the driver from the Secret of a job. Raises ``ValueError`` if it has none."""
    try:
        return base64.b64decode((secret.get("data") or {})[TOKEN_KEY]).decode()
    except (KeyError, TypeError) as error:
        raise ValueError("the Secret has no token") from error


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
    ports = [{"name": "batch", "port": job.port, "targetPort": job.port}]
    return _headless_service(job, job.driver_host, job.driver, ports=ports)


def build_shard_service(job: AigcJob) -> dict[str, Any]:
    """Return the headless Service by which the pods of workers find one another, before they are ready."""
    return _headless_service(job, job.shards_host, job.worker)


def _headless_service(job: AigcJob, name: str, role: Role, **more: Any) -> dict[str, Any]:
    """Return a Service with the addresses of the pods of a role. ``more``: further fields of its spec."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, name),
        "spec": {
            "clusterIP": "None",
            "selector": {aigc.JOB_NAME: job.definition.name, aigc.ROLE: role.key},
            "publishNotReadyAddresses": True,
            **more,
        },
    }


def build_group(job: AigcJob, priorities: Mapping[str, int], role: Role | None = None) -> dict[str, Any]:
    """Return the PodGroup of the workers of a role; default: of the first one, with the name of the job."""
    role = role or job.worker
    definition = job.definition
    annotations = {
        name: text for name, text in definition.annotations.items() if name not in names.OF_JOBS_ALONE
    }
    if not job.policy["preemptible"]:
        annotations[names.PREEMPTABLE] = "false"
    annotations |= job.reservation(role)
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            **_metadata(job, job.group_name(role), {**definition.labels, **job_labels(job)}),
            "annotations": annotations,
        },
        "spec": group_spec(job, priorities, role),
    }


def group_spec(job: AigcJob, priorities: Mapping[str, int], role: Role | None = None) -> dict[str, Any]:
    definition = job.definition
    priority = priorities.get(definition.gang.priority_class, 0)
    role = role or job.worker
    minimum = definition.min_available if job.plan is None else max(1, role.minimum)
    worker = GangPart(role.replicas, minimum, priority, role.pod_spec)
    spec: dict[str, Any] = {
        "minMember": minimum,
        "queue": definition.gang.queue,
        "minResources": least_resources([worker], minimum),
        "priorityClassName": definition.gang.priority_class,
    }
    if role.size > 1 and slice_annotations(job.spec, _stated(role), role.size) is None:
        spec["subGroupPolicy"] = [shard_policy(job, role)]  # slices are subgroups, too
    return spec


def _stated(role: Role) -> dict[str, str]:
    return dict((role.template.get("metadata") or {}).get("annotations") or {})


def build_pod(
    job: AigcJob, role: Role, index: int, scheduler: str, platform: BatchPlatform, attempt: int
) -> dict[str, Any]:
    """Return the pod of a role. ``attempt``: number of the job's attempt, from 1 on."""
    template = role.template.get("metadata") or {}
    annotations = {**(template.get("annotations") or {})}
    if not job.policy["preemptible"]:
        annotations[names.PREEMPTABLE] = "false"
    driver = role is job.driver
    if role.place_of(index)[1]:
        annotations.pop(names.ITEM_SECONDS, None)  # on a simulated node rank 0 alone processes rows
    if driver:
        annotations[names.QUEUE_NAME_VOLCANO] = job.definition.gang.queue
    else:
        annotations |= {names.GROUP_NAME: job.group_name(role), names.TASK_SPEC: role.key}
    labels = {**(template.get("labels") or {}), **pod_labels(job, role, index)}
    if role.size > 1 and (slices := slice_annotations(job.spec, annotations, role.size)) is not None:
        annotations, labels = slices, {**labels, names.TASK_INDEX: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_metadata(job, job.definition.pod_name(role, index), labels),
            "annotations": annotations,
        },
        "spec": _driver_spec(job, scheduler, platform, attempt)
        if driver
        else _worker_spec(job, role, index, scheduler, platform, attempt),
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
        *([{"name": "WINDLASS_BATCH_RETRY_DEAD", "value": job.retry}] if job.retry else ()),
        *_of_stores(job),
    ]
    container["ports"] = [{"name": "batch", "containerPort": job.port}]
    body: dict[str, Any] = {"containers": [container]}
    template = aigc.part(aigc.part(job.spec, "template"), "spec")
    for field in ("nodeSelector", "tolerations", "serviceAccountName", "imagePullSecrets"):
        if template.get(field):
            body[field] = template[field]
    # The driver belongs to no gang: a scheduler of gangs would make one of it.
    body["schedulerName"] = job.spec.get("schedulerName") or _SCHEDULER
    body["affinity"] = _NOT_SIMULATED
    _mount(job, body, platform, inputs=True)
    if platform.group and any("persistentVolumeClaim" in volume for volume in body["volumes"]):
        body["securityContext"] = {"fsGroup": platform.group}
    mount_plugin(job.spec, body)
    return _common(job, body, scheduler)


def _of_stores(job: AigcJob) -> list[dict[str, Any]]:
    """Return the variables of the template that tell of object stores: their addresses and keys."""
    containers = aigc.part(aigc.part(job.spec, "template"), "spec").get("containers") or ({},)
    given = (containers[0] or {}).get("env") or ()
    return [one for one in given if str(one.get("name")).startswith(_STORE_VARIABLES)]


def _worker_spec(
    job: AigcJob, role: Role, index: int, scheduler: str, platform: BatchPlatform, attempt: int
) -> dict[str, Any]:
    body = dict(role.pod_spec)
    first = dict(body["containers"][0])
    first.setdefault("image", platform.image)
    first.pop("args", None)
    first["command"] = [platform.python, "-P", "-m", "windlass.items.worker"]  # -P: not from workingDir
    first.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    host = f"{job.driver_host}.{job.definition.namespace}.svc"
    first["env"] = [
        *(first.get("env") or ()),
        *_environment(job, platform, attempt),
        {"name": "WINDLASS_BATCH_DRIVER", "value": f"http://{host}:{job.port}"},
        {"name": "WINDLASS_BATCH_WORKER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        *([{"name": "WINDLASS_BATCH_STAGE", "value": role.name}] if job.plan is not None else ()),
    ]
    body["containers"] = [first, *body["containers"][1:]]
    _mount(job, body, platform, inputs=False)
    _share_memory(job, body)
    if job.plan is None or role.name == job.model_role:
        add_model(job.spec, body, platform.models)
    add_spot(job.spec, body, role.place_of(index)[0])
    stage = job.plan.stage(role.name) if job.plan is not None else None
    if stage is not None and stage.is_reserved:
        body["schedulingGates"] = [*(body.get("schedulingGates") or ()), {"name": GPU_GATE}]
    if role.size > 1:
        add_shard(job, body, role, index)
    return _common(job, body, scheduler)


def _environment(job: AigcJob, platform: BatchPlatform, attempt: int) -> list[dict[str, Any]]:
    secret = {"secretKeyRef": {"name": job.objects_name, "key": TOKEN_KEY}}
    found = [
        {"name": "WINDLASS_BATCH", "value": posixpath.join(BATCH_FOLDER, BATCH_KEY)},
        {"name": "WINDLASS_BATCH_TOKEN", "valueFrom": secret},
        {"name": "WINDLASS_BATCH_ATTEMPT", "value": str(attempt)},
    ]
    if not local_path(job):
        found.append({"name": "WINDLASS_BATCH_OUTPUTS", "value": _default_outputs(job, platform)})
    return found


def outputs_file(job: AigcJob, platform: BatchPlatform) -> str:
    """Return the path of the outputs on their node or volume; empty if they are lost with the pod."""
    kept = platform.outputs or platform.claim is not None
    given = str(aigc.part(job.spec, "outputs").get("path") or "")
    path = given or (_default_outputs(job, platform) if kept else "")
    if not path or not _is_folder(path):
        return path
    form = str(aigc.part(job.spec, "outputs").get("format") or "jsonl")
    return posixpath.join(path, f"outputs.{form}")


def _default_outputs(job: AigcJob, platform: BatchPlatform) -> str:
    name = f"{job.definition.namespace}-{job.definition.name}"
    folder = OUTPUTS_FOLDER if platform.claim is not None else platform.outputs or OUTPUTS_FOLDER
    return posixpath.join(folder, name)


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
    path = local_path(job)
    claim = aigc.part(aigc.part(job.spec, "outputs"), "pvc").get("claimName")
    if platform.claim is not None and needs_claim(job):
        claim = claim_name(job)
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
    given = aigc.part(job.spec, "input")
    claim, config = aigc.part(given, "pvc"), aigc.part(given, "configMap")
    if claim.get("claimName"):
        source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": claim["claimName"]}}
    elif config.get("name"):
        source = {"configMap": {"name": config["name"]}}
    else:
        path = str(given.get("path") or "")
        if path.startswith("/"):
            folder = path if given.get("format") == "dir" else posixpath.dirname(path)
            source = {"hostPath": {"path": folder}}
            outputs = local_path(job)
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

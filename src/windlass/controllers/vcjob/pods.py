"""Pods of a Volcano Job: names, labels, annotations, volumes, and additions of plugins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api import owner_references
from windlass.api.devices.numa_annotations import POLICY_VOLCANO
from windlass.api.resources import VOLCANO_JOBS
from windlass.controllers.vcjob import host_ports, plugins
from windlass.controllers.vcjob.members import partition_of
from windlass.controllers.vcjob.spec import JobSpec, JobTask, JobVolume
from windlass.controllers.vcjob.status import JobState

_PASSED_ON = (
    names.PREEMPTABLE,
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    names.CHECKPOINT_PATH,
    names.CHECKPOINT_HOOK,
)
_PASSED_ON_LABELS = (names.PREEMPTABLE, "volcano.sh/cooldown-time")
_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_NUMA_POLICY = POLICY_VOLCANO
_VOLUME_NAME_LIMIT = 63


def owner_reference(spec: JobSpec) -> dict[str, Any]:
    return owner_references.owner_reference(VOLCANO_JOBS, spec.name, spec.uid)


def build(
    spec: JobSpec, state: JobState, task: JobTask, index: int, priority_classes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the pod ``<job>-<task>-<index>``.

    A priority class that does not exist is left out (priority 0).
    """
    template = task.template.get("metadata") or {}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spec.pod_name(task.name, index),
            "namespace": spec.namespace,
            "ownerReferences": [owner_reference(spec)],
            "labels": {**(template.get("labels") or {}), **_labels(spec, task, index)},
            "annotations": {**(template.get("annotations") or {}), **_annotations(spec, state, task, index)},
        },
        "spec": _pod_spec(spec, task, priority_classes),
    }
    _mount_volumes(pod["spec"], spec)
    for plugin, arguments in plugins.served(spec.plugins):
        plugin.decorate(pod, plugins.PodPosition(spec, task, index), arguments)
    host_ports.decorate(pod, plugins.PodPosition(spec, task, index))
    return pod


def _labels(spec: JobSpec, task: JobTask, index: int) -> dict[str, str]:
    labels = {
        names.TASK_INDEX: str(index),
        names.JOB_NAME: spec.name,
        names.TASK_SPEC: task.name,
        names.JOB_NAMESPACE: spec.namespace,
        names.QUEUE_NAME_LABEL: spec.queue,
    }
    labels.update({name: spec.labels[name] for name in _PASSED_ON_LABELS if name in spec.labels})
    if task.partition is not None:
        labels[names.PARTITION_ID] = partition_of(index, task.partition.size)
    return labels


def _annotations(spec: JobSpec, state: JobState, task: JobTask, index: int) -> dict[str, str]:
    annotations = {
        names.TASK_INDEX: str(index),
        names.TASK_SPEC: task.name,
        names.GROUP_NAME: spec.group_name,
        names.JOB_NAME: spec.name,
        names.QUEUE_NAME_LABEL: spec.queue,
        names.JOB_VERSION: str(state.version),
        names.TEMPLATE_UID: f"{spec.name}-{task.name}",
        names.JOB_RETRY_COUNT: str(state.retries),
    }
    if task.topology_policy:
        annotations[_NUMA_POLICY] = task.topology_policy
    annotations.update({name: spec.annotations[name] for name in _PASSED_ON if name in spec.annotations})
    budget = next((name for name in _BUDGETS if name in spec.annotations), None)
    if budget is not None:
        annotations[budget] = spec.annotations[budget]
    return annotations


def _pod_spec(spec: JobSpec, task: JobTask, priority_classes: Mapping[str, int]) -> dict[str, Any]:
    """Copy the template's spec with its container lists; other fields stay shared."""
    body = dict(task.pod_spec)
    for field in ("containers", "initContainers"):
        if body.get(field):
            body[field] = [dict(container) for container in body[field]]
    body.setdefault("restartPolicy", "OnFailure")
    if not body.get("schedulerName"):
        body["schedulerName"] = spec.scheduler_name
    wanted = body.get("priorityClassName") or spec.priority_class
    if wanted and wanted in priority_classes:
        body["priorityClassName"] = wanted
    else:
        body.pop("priorityClassName", None)
    return body


def claim_name(spec: JobSpec, position: int, volume: JobVolume) -> str:
    """Return the claim of a volume: the one it names, or one created for the job.

    The name of a created claim is the same after every restart.
    """
    if volume.claim_name:
        return volume.claim_name
    return f"{spec.name}-pvc-{_digest(spec.uid, str(position))}"


def _mount_volumes(body: dict[str, Any], spec: JobSpec) -> None:
    mounted: set[str] = set()
    for position, volume in enumerate(spec.volumes):
        claim = claim_name(spec, position, volume)
        if claim in mounted:
            continue
        mounted.add(claim)
        digest = _digest(spec.uid, claim)
        name = f"{spec.name.replace('.', '-')[: _VOLUME_NAME_LIMIT - len(digest) - 1]}-{digest}"
        source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        body["volumes"] = [*(body.get("volumes") or ()), source]
        for container in body.get("containers") or ():
            mount = {"name": name, "mountPath": volume.mount_path}
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:12]


def classes_not_found(spec: JobSpec, priority_classes: Mapping[str, int]) -> list[str]:
    """Priority classes that the job names and that do not exist."""
    named = {spec.priority_class, *(task.pod_spec.get("priorityClassName") or "" for task in spec.tasks)}
    return sorted(name for name in named if name and name not in priority_classes)

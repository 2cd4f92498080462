"""Pods of a ``batch/v1`` Job: what is created, and how the decision sees what exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.fields.batch import (
    COMPLETION_INDEX,
    INDEX_FAILURES,
    INDEX_IGNORED,
    INDEX_VARIABLE,
    QUEUE_NAMES,
    TRACKING,
)
from windlass.api.owner_references import owner_reference
from windlass.api.resources import BATCH_JOBS
from windlass.api.views import Pod
from windlass.jobs.batch.decision import NewPod
from windlass.jobs.batch.failures import BatchPod
from windlass.jobs.batch.spec import BatchJobSpec

_SUFFIX_LENGTH = 5
_NAME_LIMIT = 63


def pod_name(spec: BatchJobSpec, new: NewPod, suffix: str) -> str:
    """Return ``<job>-<suffix>``, or ``<job>-<index>-<suffix>`` in an Indexed Job."""
    middle = f"-{new.index}-" if spec.indexed else "-"
    return f"{spec.name[: _NAME_LIMIT - _SUFFIX_LENGTH - len(middle)]}{middle}{suffix}"


def build_pod(spec: BatchJobSpec, new: NewPod, suffix: str, group: str = "") -> dict[str, Any]:
    """Return the pod of the Job's template, with the finalizer that tracks it.

    ``group``: PodGroup of Kubernetes that it is in.
    """
    template = spec.template.get("metadata") or {}
    labels, annotations = dict(template.get("labels") or {}), dict(template.get("annotations") or {})
    if spec.queue and not any(name in labels or name in annotations for name in QUEUE_NAMES[:-1]):
        annotations[QUEUE_NAMES[0]] = spec.queue
    body = dict(spec.template.get("spec") or {})
    if group:
        body["schedulingGroup"] = {"podGroupName": group}
    if spec.indexed:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(new.index)
        if spec.per_index is not None:
            annotations[INDEX_FAILURES] = str(new.index_failures)
            if new.index_ignored:
                annotations[INDEX_IGNORED] = str(new.index_ignored)
        body["hostname"] = f"{spec.name}-{new.index}"
        for field in ("initContainers", "containers"):
            if body.get(field):
                body[field] = [_with_index(container) for container in body[field]]
    metadata: dict[str, Any] = {
        "name": pod_name(spec, new, suffix),
        "generateName": f"{spec.name}-{new.index}-" if spec.indexed else f"{spec.name}-",
        "namespace": spec.namespace,
        "labels": labels,
        "annotations": annotations,
        "finalizers": [*(f for f in template.get("finalizers") or () if f != TRACKING), TRACKING],
        "ownerReferences": [owner_reference(BATCH_JOBS, spec.name, spec.uid)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def _with_index(container: Mapping[str, Any]) -> dict[str, Any]:
    env: Sequence[Mapping[str, Any]] = container.get("env") or ()
    if any(variable.get("name") == INDEX_VARIABLE for variable in env):
        return dict(container)
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    return {**container, "env": [*env, {"name": INDEX_VARIABLE, "valueFrom": source}]}


def batch_pod(pod: Pod) -> BatchPod:
    """Return a pod as the decision sees it."""
    return BatchPod(
        name=pod.name,
        uid=pod.uid,
        index=_number(pod.annotations.get(COMPLETION_INDEX), -1),
        phase=pod.phase or "Pending",
        tracked=TRACKING in pod.finalizers,
        deleting=pod.deleting,
        ready=pod.ready and not pod.deleting,
        scheduled=bool(pod.node_name),
        created=pod.created,
        ended=_ended(pod),
        exits=tuple((one.container, one.exit_code) for one in (*pod.exits, *pod.init_exits)),
        conditions=pod.failure_conditions,
        index_failures=_number(pod.annotations.get(INDEX_FAILURES), 0),
        index_ignored=_number(pod.annotations.get(INDEX_IGNORED), 0),
        restarts=pod.restarts,
    )


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else otherwise


def _ended(pod: Pod) -> float:
    """Return when a pod ended: its last container, else its deletion, else its creation."""
    if not pod.finished and not pod.deleting:
        return 0.0
    if pod.ended and len(pod.exits) == len(pod.containers):
        return pod.ended
    return pod.deleted - pod.grace_seconds if pod.deleted > 1.0 else pod.ended or pod.created

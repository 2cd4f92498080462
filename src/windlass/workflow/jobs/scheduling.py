"""``scheduling`` of a workflow and of its ``job`` templates: queue and gang."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api import annotations as names

Json = dict[str, Any]
GANGS = ("PerTask", "PerWorkflow", "None")
FIELDS = ("queue", "gang", "lookahead")
_OWN_QUEUE = (("batch.volcano.sh", "Job"), ("kurator.dev", "AIGCJob"))
"""Kinds with the queue in ``spec.queue``."""


def apply_scheduling(manifest: Json, scheduling: Mapping[str, Any]) -> None:
    """Write queue and gang into a job, unless the job states them itself."""
    if scheduling.get("queue"):
        _set_queue(manifest, str(scheduling["queue"]))
    if scheduling.get("gang") == "None":
        _dissolve(manifest)


def _set_queue(manifest: Json, queue: str) -> None:
    group, kind = _kind_of(manifest)
    if (group, kind) in _OWN_QUEUE:
        manifest.setdefault("spec", {}).setdefault("queue", queue)
    elif group == "kubeflow.org":
        _policy(manifest).setdefault("queue", queue)
    else:
        metadata = manifest.setdefault("metadata", {})
        metadata["annotations"] = {names.QUEUE_NAME_VOLCANO: queue, **(metadata.get("annotations") or {})}
        metadata["labels"] = {names.QUEUE_NAME_LABEL: queue, **(metadata.get("labels") or {})}


def _dissolve(manifest: Json) -> None:
    """Let each pod of a job start alone."""
    group, kind = _kind_of(manifest)
    if (group, kind) == ("batch.volcano.sh", "Job"):
        spec = manifest.setdefault("spec", {})
        spec["minAvailable"] = 1
        for task in spec.get("tasks") or ():
            task["minAvailable"] = 0
    elif group == "kubeflow.org":
        _policy(manifest)["minAvailable"] = 1


def dissolves(manifest: Mapping[str, Any]) -> bool:
    """Return whether the pods of a job can start one by one, with ``gang: None``."""
    group, kind = _kind_of(manifest)
    return group == "kubeflow.org" or (group, kind) in (("batch.volcano.sh", "Job"), ("batch", "Job"))


def _policy(manifest: Json) -> Json:
    policy = manifest.setdefault("spec", {}).setdefault("runPolicy", {})
    return policy.setdefault("schedulingPolicy", {})


def _kind_of(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return str(manifest.get("apiVersion", "")).rpartition("/")[0], str(manifest.get("kind", ""))


def problems_of(scheduling: Any, gangs: tuple[str, ...] = GANGS) -> Iterator[tuple[str, Any, str]]:
    """Yield what is wrong with ``scheduling``: field, value, message."""
    if scheduling is None:
        return
    if not isinstance(scheduling, Mapping):
        yield "", scheduling, f"the fields {', '.join(FIELDS)} are needed"
        return
    gang = scheduling.get("gang")
    if gang is not None and gang not in gangs:
        yield ".gang", gang, f"one of {', '.join(gangs)} is needed"
    queue = scheduling.get("queue")
    if queue is not None and (not isinstance(queue, str) or not queue):
        yield ".queue", queue, "the name of a queue is needed"
    for field in sorted(set(scheduling) - set(FIELDS)):
        yield f".{field}", scheduling[field], f"the fields are {', '.join(FIELDS)}"

"""The PodGroup of a Volcano Job: name, minimum members, minimum resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.resources import POD_GROUPS
from windlass.controllers.pod_groups import JOB_FIELDS
from windlass.controllers.vcjob.pods import owner_reference
from windlass.controllers.vcjob.spec import JobSpec, JobTask
from windlass.controllers.vcjob.status import JobState
from windlass.jobs.gang import GangPart, least_resources

FIELDS = (*JOB_FIELDS, "subGroupPolicy")
"""Fields of the spec that the job decides."""


def build(spec: JobSpec, state: JobState, priorities: Mapping[str, int]) -> dict[str, Any]:
    """Return the whole object.

    Annotation ``volcano.sh/job-version`` holds the restart that the group belongs to.
    The service that the job attained before that restart is copied into annotations,
    too.
    """
    annotations = {name: text for name, text in spec.annotations.items() if name not in names.OF_JOBS_ALONE}
    if spec.running_estimate:
        annotations[names.RUN_ESTIMATE] = spec.running_estimate
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": spec.group_name,
            "namespace": spec.namespace,
            "labels": dict(spec.labels),
            "annotations": {**annotations, **state.attained, names.JOB_VERSION: str(state.version)},
            "ownerReferences": [owner_reference(spec)],
        },
        "spec": desired_spec(spec, priorities),
    }


def desired_spec(spec: JobSpec, priorities: Mapping[str, int]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "minMember": spec.min_available,
        "minTaskMember": {task.name: task.min_available for task in spec.tasks},
        "queue": spec.queue,
        "minResources": min_resources(spec, priorities),
    }
    if spec.priority_class:
        body["priorityClassName"] = spec.priority_class
    if spec.topology:
        body["networkTopology"] = _topology(spec.topology)
    subgroups = [_subgroup(task) for task in spec.tasks if task.partition is not None]
    if subgroups:
        body["subGroupPolicy"] = subgroups
    return body


def is_stale(group: Mapping[str, Any], state: JobState) -> bool:
    """Return whether the group belongs to an earlier run of the job."""
    version = (group["metadata"].get("annotations") or {}).get(names.JOB_VERSION)
    return version is not None and version.isascii() and version.isdigit() and int(version) < state.version


def waiting_is_useless(group: Mapping[str, Any] | None) -> bool:
    """Return whether the scheduler reported that waiting cannot help the gang."""
    annotations = ((group or {}).get("metadata") or {}).get("annotations") or {}
    try:
        explanation = msgspec.json.decode(annotations.get(names.EXPLANATION) or "{}")
    except msgspec.DecodeError:
        return False  # not the scheduler's record
    return isinstance(explanation, dict) and explanation.get("waitingHelps") == "no"


def min_resources(spec: JobSpec, priorities: Mapping[str, int]) -> dict[str, str]:
    """Return the resources that the gang needs to start. ``priorities``: PriorityClass → value."""
    parts = [
        GangPart(task.replicas, task.min_available, _priority(task, spec, priorities), task.pod_spec)
        for task in spec.tasks
    ]
    return least_resources(parts, spec.min_available)


def _priority(task: JobTask, spec: JobSpec, priorities: Mapping[str, int]) -> int:
    return priorities.get(task.pod_spec.get("priorityClassName") or spec.priority_class, 0)


def _topology(raw: Mapping[str, Any]) -> dict[str, Any]:
    topology: dict[str, Any] = {}
    if raw.get("mode"):
        topology["mode"] = raw["mode"]
    if raw.get("highestTierAllowed") is not None:
        topology["highestTierAllowed"] = raw["highestTierAllowed"]
    elif raw.get("highestTierName"):
        topology["highestTierName"] = raw["highestTierName"]
    return topology


def _subgroup(task: JobTask) -> dict[str, Any]:
    assert task.partition is not None
    subgroup: dict[str, Any] = {
        "name": task.name,
        "labelSelector": {"matchLabels": {names.TASK_SPEC: task.name}},
        "matchLabelKeys": [names.PARTITION_ID],
        "subGroupSize": task.partition.size,
        "minSubGroups": task.partition.minimum,
    }
    if task.partition.topology:
        subgroup["networkTopology"] = dict(task.partition.topology)
    return subgroup

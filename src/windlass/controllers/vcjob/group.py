"""The PodGroup of a Volcano Job: name, minimum members, minimum resources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.quantities import add, from_units
from windlass.api.resources import POD_GROUPS
from windlass.api.views import decode_pod
from windlass.controllers.vcjob.pods import owner_reference
from windlass.controllers.vcjob.spec import JobSpec, JobTask
from windlass.controllers.vcjob.status import JobState

_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration",)


def build(spec: JobSpec, state: JobState, priorities: Mapping[str, int]) -> dict[str, Any]:
    """Return the whole object.

    Annotation ``volcano.sh/job-version`` holds the restart that the group belongs to.
    The service that the job attained before that restart is copied into annotations,
    too.
    """
    annotations = {name: text for name, text in spec.annotations.items() if name not in _NOT_COPIED}
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


def spec_patch(group: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes a present group's spec right; empty when it is.

    Fields that the job does not decide (``queue``, ``networkTopology`` after creation) are left alone.
    """
    present = group.get("spec") or {}
    patch: dict[str, Any] = {}
    for name in ("minMember", "minTaskMember", "minResources", "priorityClassName", "subGroupPolicy"):
        wanted, found = desired.get(name), present.get(name)
        if (wanted or None) == (found or None):
            continue
        if isinstance(wanted, dict) and isinstance(found, dict):
            patch[name] = {**dict.fromkeys(found.keys() - wanted.keys()), **wanted}
        else:
            patch[name] = wanted
    return patch


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
    """Return the resources that the gang needs to start (Volcano's ``calcPGMinResources``).

    Tasks are taken by priority (of their template's class), and in the order of the
    spec among equals. If the job's minAvailable is below the sum of the tasks'
    minimums, the requests of the first minAvailable pods count. Otherwise each task's
    minimum counts, filled up to minAvailable with the remaining replicas.
    """
    ordered = sorted(spec.tasks, key=lambda task: -_priority(task, spec, priorities))
    if spec.min_available < spec.task_minimum:
        shares = _first(ordered, spec.min_available)
    else:
        shares = _minimums(ordered, spec.min_available)
    total: dict[str, int] = {}
    for task, count in shares:
        request = pod_request(task.pod_spec)
        total = add(total, {name: units * count for name, units in request.items()})
    return {name: from_units(name, units) for name, units in sorted(total.items()) if units}


def _first(tasks: list[JobTask], count: int) -> list[tuple[JobTask, int]]:
    shares = []
    for task in tasks:
        share = min(task.replicas, count)
        shares.append((task, share))
        count -= share
    return shares


def _minimums(tasks: list[JobTask], count: int) -> list[tuple[JobTask, int]]:
    shares = []
    for task in tasks:
        share = min(task.min_available, count)
        shares.append((task, share))
        count -= share
    for task in tasks:
        share = min(max(0, task.replicas - task.min_available), count)
        shares.append((task, share))
        count -= share
    return shares


def _priority(task: JobTask, spec: JobSpec, priorities: Mapping[str, int]) -> int:
    return priorities.get(task.pod_spec.get("priorityClassName") or spec.priority_class, 0)


def pod_request(pod_spec: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the effective request of a pod spec in engine units; unreadable quantities
    count as 0.
    """
    return _request(msgspec.json.encode({"metadata": {"name": "template"}, "spec": pod_spec}))


@lru_cache(maxsize=1024)
def _request(raw: bytes) -> Mapping[str, int]:
    return decode_pod(raw).shape.request


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

"""``scheduling`` of a workflow on its pods: their queue, and the first wave as one gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.resources import POD_GROUPS, Resource
from windlass.controllers.effects import Action, Create, controller_reference
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.specification import executed_spec

Json = dict[str, Any]


def set_queue(pod: Json, spec: Json) -> None:
    """Let a pod wait in the queue of the workflow, unless it names one."""
    queue = (spec.get("scheduling") or {}).get("queue")
    if queue:
        pod["metadata"]["annotations"].setdefault(names.QUEUE_NAME_VOLCANO, queue)


def admitted_together(spec: Json) -> bool:
    return (spec.get("scheduling") or {}).get("gang") == "PerWorkflow"


def begins(workflow: Json, templates: Mapping[str, Json]) -> bool:
    """Return whether the next look at a workflow begins a first wave that is one gang."""
    if (workflow.get("status") or {}).get("phase"):
        return False
    try:
        return admitted_together(executed_spec(workflow, templates))
    except EvaluationError:
        return False  # the reconciliation tells it


def told(over_quota: Mapping[str, str]) -> str:
    """Return the message about a first wave that waits for a quota."""
    count, reason = len(over_quota), next(iter(over_quota.values()))
    waits = "node of the first wave waits" if count == 1 else "nodes of the first wave wait"
    return f"{count} {waits} for a quota, and the wave starts as a whole: {reason}"


def gather(kind: Resource, workflow: Json, spec: Json, pods: list[Json]) -> list[Action]:
    """Make one gang of the pods that begin first. Return the writes that come before them.

    Later pods are no members: no GPU is held for a wave that has not begun.
    """
    if len(pods) < 2:
        return []
    metadata = workflow["metadata"]
    name = f"{metadata['name']}-first"
    for pod in pods:
        pod["metadata"]["annotations"][names.GROUP_NAME] = name
    body: Json = {
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace"),
            "ownerReferences": [controller_reference(kind, workflow)],
        },
        "spec": {"minMember": len(pods)},
    }
    if queue := (spec.get("scheduling") or {}).get("queue"):
        body["spec"]["queue"] = queue
    return [Create(POD_GROUPS, body)]

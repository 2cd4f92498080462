"""Access to the progress endpoint for the pods that reconcilers create."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import BATCH_JOBS, JOB_SETS, PODS, VOLCANO_JOBS, by_kind
from windlass.controllers.effects import Action, Create, Effects, controller_of
from windlass.jobs.progress_access import ProgressAccess, with_access

Json = dict[str, Any]
REPORTING = frozenset({JOB_SETS, VOLCANO_JOBS, *FIELDS})
"""Kinds of which pods report to the job that controls them. Pods of a TrainJob name it."""


def adjusted(effects: Effects, access: ProgressAccess | None) -> Effects:
    """Return effects of which the new pods can report progress. ``None``: there is no endpoint."""
    if access is None or not effects.stages:
        return effects
    stages = tuple(tuple(add_access(action, access) for action in stage) for stage in effects.stages)
    return replace(effects, stages=stages)


def add_access(action: Action, access: ProgressAccess) -> Action:
    """Return a write with access for the pods that follow from it. Other writes stay as they are."""
    if not isinstance(action, Create):
        return action
    body = action.object
    if action.resource is PODS:
        path = _path_of(body)
        return replace(action, object=with_access(body, path, access)) if path else action
    if action.resource is BATCH_JOBS:
        path = _path_of(body)
        return replace(action, object=_with_template(body, path, access)) if path else action
    if action.resource is JOB_SETS:
        spec = body["spec"]
        jobs = [_with_named_job(job, access) for job in spec.get("replicatedJobs") or ()]
        return replace(action, object={**body, "spec": {**spec, "replicatedJobs": jobs}})
    return action


def _path_of(body: Json) -> str:
    """Return the path of the status of the job that controls an object; empty if it reports to none."""
    owner = controller_of(body)
    kind = by_kind(owner.get("apiVersion") or "", owner.get("kind") or "") if owner is not None else None
    if owner is None or kind is None or kind not in REPORTING:
        return ""
    return kind.path(body["metadata"].get("namespace"), owner["name"], "status")


def _with_template(job: Json, path: str, access: ProgressAccess) -> Json:
    spec = job["spec"]
    return {**job, "spec": {**spec, "template": with_access(spec["template"], path, access)}}


def _with_named_job(replicated: Json, access: ProgressAccess) -> Json:
    """Return a replicated job of which the pods name the job that they report to."""
    template = replicated.get("template") or {}
    inner = (template.get("spec") or {}).get("template") or {}
    path = ((inner.get("metadata") or {}).get("annotations") or {}).get(names.PROGRESS_PATH)
    if not path:
        return replicated
    return {**replicated, "template": _with_template(template, path, access)}

"""Spec that is executed: the workflow's own, merged over that of its WorkflowTemplate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.templates import describe_scope

Json = dict[str, Any]


def template_scope(spec: Mapping[str, Any]) -> str:
    """Return the scope of ``workflowTemplateRef``; empty if there is none."""
    reference = spec.get("workflowTemplateRef")
    if not reference:
        return ""
    return f"{'cluster' if reference.get('clusterScope') else 'namespaced'}/{reference.get('name')}"


def executed_spec(workflow: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]) -> Json:
    """Return the spec to execute. ``templates``: scope → spec of a template.

    The first merged spec is kept in the status: a later change of the template does not
    change a workflow that runs. ``suspend`` and ``shutdown`` are those of the workflow.
    Raises :class:`EvaluationError` where the template does not exist.
    """
    spec: Json = dict(workflow.get("spec") or {})
    scope = template_scope(spec)
    if not scope:
        return spec
    stored = (workflow.get("status") or {}).get("storedWorkflowTemplateSpec")
    if stored is None:
        base = templates.get(scope)
        if base is None:
            raise EvaluationError(f"{describe_scope(scope)} is not found: create it first")
        stored = merge(base, spec)
    return {**stored, **{field: spec.get(field) for field in ("suspend", "shutdown")}}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """Merge a workflow's spec over that of a template. Arguments and templates are merged by name."""
    result: Json = dict(base)
    for field, value in over.items():
        if field == "workflowTemplateRef" or value is None:
            continue
        if field == "arguments":
            mine = base.get("arguments") or {}
            result[field] = {
                kind: _by_name(mine.get(kind) or (), value.get(kind) or ())
                for kind in ("parameters", "artifacts")
            }
        elif field in ("templates", "volumes"):
            result[field] = _by_name(base.get(field) or (), value)
        else:
            result[field] = value
    return result


def _by_name(base: Any, over: Any) -> list[Json]:
    found = {entry.get("name"): entry for entry in base}
    for entry in over:
        found[entry.get("name")] = {**found.get(entry.get("name"), {}), **entry}
    return list(found.values())

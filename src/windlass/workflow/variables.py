"""Global variables of a workflow: ``{{workflow.…}}``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from windlass.kits.timestamps import parse_rfc3339
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.functions import text_of, to_json
from windlass.workflow.language.scope import Scope
from windlass.workflow.templates import ConfigLookup, parameter_value

Json = dict[str, Any]


def global_values(workflow: Json, spec: Json, config: ConfigLookup, now: float) -> dict[str, Any]:
    """Return the global variables. Raises :class:`EvaluationError` for a parameter without a value."""
    metadata = workflow["metadata"]
    status = workflow.get("status") or {}
    values: dict[str, Any] = {
        "workflow.name": metadata["name"],
        "workflow.namespace": metadata.get("namespace", ""),
        "workflow.uid": metadata.get("uid", ""),
        "workflow.mainEntrypoint": spec.get("entrypoint", ""),
        "workflow.serviceAccountName": spec.get("serviceAccountName", "default"),
        "workflow.status": status.get("phase", "Running"),
        "workflow.failures": '"[]"',
    }
    if spec.get("priority") is not None:
        values["workflow.priority"] = str(spec["priority"])
    created = metadata.get("creationTimestamp")
    if created:
        values |= _times(created)
    scheduled = (metadata.get("annotations") or {}).get("workflows.argoproj.io/scheduled-time")
    values["workflow.scheduledTime"] = scheduled or created or ""
    if status.get("startedAt"):
        values["workflow.duration"] = f"{max(0.0, now - parse_rfc3339(status['startedAt'])):.6f}"
    for field in ("labels", "annotations"):
        found = metadata.get(field) or {}
        values[f"workflow.{field}.json"] = values[f"workflow.{field}"] = to_json(found)
        values.update({f"workflow.{field}.{name}": value for name, value in found.items()})
    values |= _parameters(spec, Scope(values), config)
    for parameter in (status.get("outputs") or {}).get("parameters") or ():
        values[f"workflow.outputs.parameters.{parameter['name']}"] = parameter.get("value", "")
    for artifact in (status.get("outputs") or {}).get("artifacts") or ():
        values[f"workflow.outputs.artifacts.{artifact['name']}"] = artifact
    return values


_FORMATS = "aAbBcdefgGhHIjmMnprRStTuUVwWxXyYZ"
"""Letters of strftime for ``{{workflow.creationTimestamp.LETTER}}``."""


def _times(created: str) -> dict[str, Any]:
    prefix = "workflow.creationTimestamp"
    moment = datetime.fromtimestamp(parse_rfc3339(created), UTC)
    values = {prefix: created, f"{prefix}.RFC3339": created, f"{prefix}.s": str(int(moment.timestamp()))}
    values.update({f"{prefix}.{letter}": moment.strftime(f"%{letter}") for letter in _FORMATS})
    return values


def _parameters(spec: Json, scope: Scope, config: ConfigLookup) -> dict[str, Any]:
    values: dict[str, Any] = {}
    listed = []
    for parameter in (spec.get("arguments") or {}).get("parameters") or ():
        name = parameter.get("name")
        value = parameter_value(parameter, scope, config)
        if value is None:
            raise EvaluationError(
                f"spec.arguments.parameters: {name} has no value: set it with -p {name}=VALUE or give it a default"
            )
        allowed = parameter.get("enum")
        if allowed and value not in [text_of(entry) for entry in allowed]:
            raise EvaluationError(
                f"spec.arguments.parameters: {name} is {value!r}, not one of {', '.join(map(text_of, allowed))}"
            )
        values[f"workflow.parameters.{name}"] = value
        listed.append({"name": name, "value": value})
    values["workflow.parameters"] = values["workflow.parameters.json"] = to_json(listed)
    for artifact in (spec.get("arguments") or {}).get("artifacts") or ():
        values[f"workflow.artifacts.{artifact.get('name')}"] = artifact
    return values


def spec_with_volumes(workflow: Json, spec: Json, config: ConfigLookup, now: float) -> Json:
    """Return the spec with the global variables in its volumes filled in.

    Raises :class:`EvaluationError`.
    """
    volumes = spec.get("volumes")
    if not volumes or "{{" not in str(volumes):
        return spec
    return {**spec, "volumes": Scope(global_values(workflow, spec, config, now)).apply(volumes)}

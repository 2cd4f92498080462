"""Outputs of nodes: what later nodes can refer to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError, UnknownReference
from windlass.workflow.language.functions import text_of, to_json
from windlass.workflow.language.scope import Scope, only_reference
from windlass.workflow.node import NodeStatus
from windlass.workflow.run import Run

Json = dict[str, Any]


def add_node(scope: Scope, prefix: str, node: NodeStatus) -> None:
    """Make a finished node known as ``prefix`` (``tasks.NAME``, ``steps.NAME``)."""
    values = scope.values
    values[f"{prefix}.id"] = node.id
    values[f"{prefix}.status"] = node.phase
    values[f"{prefix}.startedAt"] = node.started_at or ""
    values[f"{prefix}.finishedAt"] = node.finished_at or ""
    values[f"{prefix}.hostNodeName"] = node.host_node_name
    values[f"{prefix}.ip"] = node.pod_ip
    if node.phase in (words.SKIPPED, words.OMITTED):
        scope.absent.add(prefix)
    add_outputs(scope, prefix, node.outputs or {})


def add_outputs(scope: Scope, prefix: str, outputs: Json) -> None:
    values = scope.values
    for name in ("result", "exitCode"):
        if name in outputs:
            values[f"{prefix}.outputs.{name}"] = outputs[name]
    if "exitCode" in outputs:
        values[f"{prefix}.exitCode"] = outputs["exitCode"]
    for parameter in outputs.get("parameters") or ():
        values[f"{prefix}.outputs.parameters.{parameter['name']}"] = parameter.get("value", "")
    for artifact in outputs.get("artifacts") or ():
        values[f"{prefix}.outputs.artifacts.{artifact['name']}"] = artifact


def add_group(scope: Scope, prefix: str, children: Iterable[NodeStatus]) -> None:
    """Make the outputs of a loop known as JSON lists, in the order of the items."""
    outputs = [child.outputs for child in children if child.outputs]
    results = [found["result"] for found in outputs if "result" in found]
    parameters: list[Json] = []
    by_name: dict[str, list[str]] = {}
    for found in outputs:
        if "parameters" in found:
            parameters.append({entry["name"]: entry.get("value", "") for entry in found["parameters"]})
            for entry in found["parameters"]:
                by_name.setdefault(entry["name"], []).append(entry.get("value", ""))
    values = scope.values
    values[f"{prefix}.outputs.result"] = _json_list(results)
    values[f"{prefix}.outputs.parameters"] = to_json(parameters)
    for name, entries in by_name.items():
        values[f"{prefix}.outputs.parameters.{name}"] = _json_list(entries)


def _json_list(texts: list[str]) -> str:
    """Return a JSON list. Texts that are all JSON objects or lists are taken as such."""
    found = []
    for text in texts:
        if text.strip()[:1] not in ("{", "["):
            return to_json(texts)
        try:
            found.append(json.loads(text))
        except ValueError:
            return to_json(texts)
    return to_json(found)


def of_template(run: Run, template: Json, scope: Scope) -> Json | None:
    """Return the outputs of a DAG or Steps template, from those of its nodes."""
    declared = template.get("outputs") or {}
    found: Json = {}
    parameters = []
    for parameter in declared.get("parameters") or ():
        value = _parameter(parameter, scope)
        entry = {"name": parameter["name"], "value": value}
        if parameter.get("globalName"):
            entry["globalName"] = parameter["globalName"]
        parameters.append(entry)
    if parameters:
        found["parameters"] = parameters
    artifacts = [
        {**resolved, "name": artifact["name"]}
        for artifact in declared.get("artifacts") or ()
        if (resolved := resolve_artifact(artifact, scope)) is not None
    ]
    if artifacts:
        found["artifacts"] = artifacts
    export_globals(run, declared, found)
    return found or None


def _parameter(parameter: Json, scope: Scope) -> str:
    source = parameter.get("valueFrom") or {}
    try:
        if reference := source.get("parameter"):
            name = only_reference(reference) or reference
            try:
                value = scope.lookup(name)
            except KeyError:
                raise UnknownReference(name) from None
        elif expression := source.get("expression"):
            value = scope.evaluate(expression)
        else:
            value = parameter.get("value")
    except EvaluationError:
        if "default" not in source:
            raise
        value = None
    if value is None:
        value = source.get("default", "")
    return scope.text(text_of(value), strict=("tasks.", "steps."))


def resolve_artifact(artifact: Json, scope: Scope) -> Json | None:
    """Return the artifact that ``from`` refers to; ``None`` where an optional one is absent."""
    if artifact.get("fromExpression"):
        found = scope.evaluate(artifact["fromExpression"])
        name = artifact["fromExpression"]
    elif artifact.get("from"):
        name = only_reference(artifact["from"]) or artifact["from"]
        try:
            found = scope.lookup(name)
        except KeyError:
            found = None
    else:
        return scope.apply(artifact)
    if not isinstance(found, dict):
        if artifact.get("optional"):
            return None
        raise EvaluationError(f"Unable to resolve: the artifact {{{{{name}}}}} does not exist")
    result = {key: value for key, value in found.items() if key not in ("name", "path")}
    if artifact.get("subPath"):
        result["subPath"] = scope.text(artifact["subPath"])
    return result


def export_globals(run: Run, declared: Json, outputs: Json) -> None:
    """Make outputs with a ``globalName`` outputs of the workflow."""
    for kind in ("parameters", "artifacts"):
        values = {entry["name"]: entry for entry in outputs.get(kind) or ()}
        for entry in declared.get(kind) or ():
            value = values.get(entry.get("name"))
            if not entry.get("globalName") or value is None:
                continue
            name = entry["globalName"]
            exported = {**value, "name": name}
            exported.pop("globalName", None)
            others = [other for other in run.outputs.get(kind) or () if other["name"] != name]
            run.outputs[kind] = [*others, exported]
            if kind == "parameters":
                run.globals.values[f"workflow.outputs.parameters.{name}"] = exported.get("value", "")
            else:
                run.globals.values[f"workflow.outputs.artifacts.{name}"] = exported

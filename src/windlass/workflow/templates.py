"""Templates of a workflow: their kinds, where references to them lead, and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.functions import text_of
from windlass.workflow.language.scope import Scope, only_reference

Json = dict[str, Any]
LOCAL = "local/"
"""Scope of the workflow's own templates."""

COMPOSITE = ("steps", "dag")
LEAVES = (
    "container",
    "script",
    "containerSet",
    "http",
    "function",
    "data",
    "resource",
    "job",
    "suspend",
    "plugin",
)
KINDS = (*COMPOSITE, *LEAVES)


def kind_of(template: Mapping[str, Any]) -> str:
    """Return the kind of a template; empty if it has none."""
    return next((kind for kind in KINDS if kind in template), "")


@dataclass(frozen=True, slots=True)
class ResolvedTemplate:
    """Template with the scope in which its own references to templates are looked up."""

    template: Json
    scope: str


class TemplateLibrary:
    """Templates of a workflow and of the WorkflowTemplates that it refers to.

    ``others``: scope (``namespaced/NAME`` or ``cluster/NAME``) → spec of the template.
    """

    def __init__(self, spec: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> None:
        self._specs: dict[str, Mapping[str, Any]] = {LOCAL: spec, **others}
        self._indices: dict[str, dict[str, Json]] = {}
        self._defaults: Json = spec.get("templateDefaults") or {}

    def resolve(self, holder: Mapping[str, Any], scope: str) -> ResolvedTemplate:
        """Return the template of a step, a task or a hook. Raises :class:`EvaluationError`."""
        if inline := holder.get("inline"):
            return ResolvedTemplate(self._with_defaults(inline), scope)
        if reference := holder.get("templateRef"):
            kind = "cluster" if reference.get("clusterScope") else "namespaced"
            scope, name = f"{kind}/{reference.get('name')}", str(reference.get("template") or "")
        else:
            name = str(holder.get("template") or "")
        found = self._index(scope).get(name)
        if found is None and scope != LOCAL and not holder.get("templateRef"):
            found, scope = self._index(LOCAL).get(name), LOCAL
        if found is None:
            raise EvaluationError(f"template {name!r} is not found in {describe_scope(scope)}")
        return ResolvedTemplate(self._with_defaults(found), scope)

    def specs(self) -> list[Mapping[str, Any]]:
        return list(self._specs.values())

    def _index(self, scope: str) -> dict[str, Json]:
        index = self._indices.get(scope)
        if index is None:
            spec = self._specs.get(scope)
            if spec is None:
                raise EvaluationError(f"{describe_scope(scope)} is not found: create it first")
            index = {template.get("name", ""): template for template in spec.get("templates") or ()}
            self._indices[scope] = index
        return index

    def _with_defaults(self, template: Json) -> Json:
        if not self._defaults:
            return template
        return _merged(self._defaults, template)


def _merged(defaults: Json, template: Json) -> Json:
    """Merge defaults into a template. Those of a container apply to container templates only."""
    result = dict(template)
    for key, value in defaults.items():
        if key in KINDS and key not in template:
            continue
        if isinstance(value, dict) and isinstance(template.get(key), dict):
            result[key] = {**value, **template[key]}
        else:
            result.setdefault(key, value)
    return result


def describe_scope(scope: str) -> str:
    """Return a scope in words."""
    kind, _, name = scope.partition("/")
    if scope == LOCAL:
        return "the workflow"
    return f"{'ClusterWorkflowTemplate' if kind == 'cluster' else 'WorkflowTemplate'} {name!r}"


def holder_scopes(spec: Mapping[str, Any]) -> set[str]:
    """Return the scopes of other templates that a spec refers to."""
    found: set[str] = set()
    _collect(spec, found)
    return found


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, dict):
        reference = value.get("templateRef")
        if isinstance(reference, dict) and reference.get("name"):
            found.add(f"{'cluster' if reference.get('clusterScope') else 'namespaced'}/{reference['name']}")
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, list):
        for item in value:
            _collect(item, found)


ConfigLookup = Callable[[str, str], str | None]
"""``lookup(name, key)``: text of a ConfigMap, ``None`` if there is none."""


@dataclass(frozen=True, slots=True)
class ProcessedTemplate:
    """Template with known inputs. References to its inputs and to the workflow were replaced."""

    template: Json
    scope: Scope
    inputs: Json


def process(
    template: Json, arguments: Mapping[str, Any], scope: Scope, config: ConfigLookup
) -> ProcessedTemplate:
    """Give a template its arguments. Raises :class:`EvaluationError` for a missing one."""
    values: dict[str, Any] = {}
    inputs: Json = {}
    parameters = _parameters(template, arguments, scope, config)
    for parameter in parameters:
        values[f"inputs.parameters.{parameter['name']}"] = parameter["value"]
    if parameters:
        inputs["parameters"] = parameters
    values["inputs.parameters"] = parameters
    artifacts = _artifacts(template, arguments, scope.child(values))
    for artifact in artifacts:
        values[f"inputs.artifacts.{artifact['name']}"] = artifact
        values[f"inputs.artifacts.{artifact['name']}.path"] = artifact.get("path", "")
    if artifacts:
        inputs["artifacts"] = artifacts
    for field in ("parameters", "artifacts"):
        for output in (template.get("outputs") or {}).get(field) or ():
            path = output.get("path") or (output.get("valueFrom") or {}).get("path")
            if path:
                values[f"outputs.{field}.{output.get('name')}.path"] = path
    own = scope.child(values)
    body = {key: value for key, value in template.items() if key != "inputs"}
    processed = own.apply(body)
    if inputs:
        processed["inputs"] = inputs
    return ProcessedTemplate(processed, own, inputs)


def _parameters(
    template: Json, arguments: Mapping[str, Any], scope: Scope, config: ConfigLookup
) -> list[Json]:
    supplied = {entry.get("name"): entry for entry in arguments.get("parameters") or ()}
    found = []
    for declared in (template.get("inputs") or {}).get("parameters") or ():
        name = declared.get("name")
        value = parameter_value(supplied.get(name) or {}, scope, config)
        if value is None:
            value = parameter_value(declared, scope, config)
        if value is None and (supplied.get(name) or {}).get("absent"):
            value = ""
        if value is None:
            raise EvaluationError(f"inputs.parameters.{name} was not supplied")
        allowed = declared.get("enum")
        if allowed and value not in [text_of(entry) for entry in allowed]:
            raise EvaluationError(
                f"inputs.parameters.{name} is {value!r}, which is not one of {', '.join(map(text_of, allowed))}"
            )
        found.append({"name": name, "value": value})
    return found


def parameter_value(parameter: Mapping[str, Any], scope: Scope, config: ConfigLookup) -> str | None:
    """Return the value of a parameter as text, its default if there is none."""
    value = parameter.get("value")
    name = only_reference(value)
    if name is not None and scope.is_absent(name):
        value = None if "default" in parameter else value
    if value is None and (source := parameter.get("valueFrom")):
        value = _value_from(source, scope, config)
    if value is None:
        value = parameter.get("default")
    if value is None:
        return None
    return scope.text(text_of(value))


def _value_from(source: Mapping[str, Any], scope: Scope, config: ConfigLookup) -> Any:
    if reference := source.get("configMapKeyRef"):
        name, key = scope.text(reference.get("name", "")), scope.text(reference.get("key", ""))
        value = config(name, key)
        if value is None and "default" not in source and not reference.get("optional"):
            raise EvaluationError(f"ConfigMap {name!r} with key {key!r} is not found")
        return source.get("default") if value is None else value
    if expression := source.get("expression"):
        return scope.evaluate(expression)
    return source.get("default")


def _artifacts(template: Json, arguments: Mapping[str, Any], scope: Scope) -> list[Json]:
    supplied = {entry.get("name"): entry for entry in arguments.get("artifacts") or ()}
    found = []
    for declared in (template.get("inputs") or {}).get("artifacts") or ():
        name = declared.get("name")
        given = supplied.get(name) or {}
        artifact = {**declared, **{key: value for key, value in given.items() if key not in ("name", "from")}}
        if "path" in declared:
            artifact["path"] = declared["path"]
        if not has_location(artifact):
            if declared.get("optional") or given.get("optional"):
                continue
            raise EvaluationError(f"inputs.artifacts.{name} was not supplied")
        found.append(scope.apply(artifact))
    return found


_LOCATIONS = ("raw", "store", "http", "git", "s3", "gcs", "oss", "azure", "hdfs", "artifactory")


def has_location(artifact: Mapping[str, Any]) -> bool:
    """Return whether an artifact says where its content is."""
    return any(artifact.get(place) for place in _LOCATIONS)

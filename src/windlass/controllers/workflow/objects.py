"""Objects of ``resource`` and ``job`` templates: what is created, and how it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from windlass.api.resources import Resource
from windlass.controllers.effects import (
    Action,
    Create,
    Delete,
    Patch,
    controller_reference,
)
from windlass.controllers.workflow import labels
from windlass.workflow import words
from windlass.workflow.advance import LeafReport
from windlass.workflow.checks.jobs import job_problems
from windlass.workflow.jobs.resource import job_resource, known_outputs
from windlass.workflow.language import jsonpath
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.functions import text_of
from windlass.workflow.language.selectors import holds
from windlass.workflow.node import NodeStatus
from windlass.workflow.run import Start

Json = dict[str, Any]
KindLookup = Callable[[str, str], Resource | None]
"""``lookup(apiVersion, kind)``: served kind."""
POLL_SECONDS = 1.0
"""Interval (seconds) between looks at an object that a node waits for."""
_NO_GROUPS = ("rbac.authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io")
_ACTIONS = ("create", "apply", "get", "delete", "patch")


def begin_object(
    owner: Resource, workflow: Json, spec: Json, start: Start, lookup: KindLookup
) -> Action | None:
    """Return the write of a ``resource`` or ``job`` template, and note its object in the node.

    Raises :class:`EvaluationError`.
    """
    template = start.template
    resource = _of_job(spec, template["job"]) if "job" in template else template.get("resource") or {}
    action = resource.get("action") or "create"
    if action not in _ACTIONS:
        raise EvaluationError(f"resource.action {action!r} is not one of {', '.join(_ACTIONS)}")
    body = _manifest(resource.get("manifest"))
    kind = lookup(str(body.get("apiVersion")), str(body.get("kind")))
    if kind is None:
        raise EvaluationError(f"kind {body.get('kind')} of {body.get('apiVersion')} is not served here")
    metadata = body.setdefault("metadata", {})
    _check_reach(kind, metadata, workflow)
    if kind.namespaced:
        metadata.setdefault("namespace", workflow["metadata"].get("namespace"))
    name = metadata.pop("generateName", "")
    if not metadata.get("name"):
        if not name:
            raise EvaluationError("resource.manifest: metadata.name or metadata.generateName is needed")
        # The name follows from the node: a controller that starts again creates no second object.
        metadata["name"] = f"{name}{start.node.id.rsplit('-', 1)[-1]}"
    elif "job" in template and (start.node.node_flag or {}).get("retried"):
        metadata["name"] += f"-{start.node.name.rpartition('(')[2].rstrip(')')}"
    metadata.setdefault("labels", {})[labels.WORKFLOW] = workflow["metadata"]["name"][:63]
    metadata.setdefault("annotations", {})[labels.NODE_ID] = start.node.id
    if resource.get("setOwnerReference") or "job" in template:
        metadata["ownerReferences"] = [controller_reference(owner, workflow)]
    start.node.managed_object = {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": metadata["name"],
        "action": action,
        **({"daemon": True} if template.get("daemon") else {}),
        **({"namespace": metadata["namespace"]} if kind.namespaced else {}),
        **{
            field: resource[field]
            for field in ("successCondition", "failureCondition")
            if resource.get(field)
        },
        "outputs": [
            *((template.get("outputs") or {}).get("parameters") or ()),
            *(known_outputs(body) if "job" in template else ()),
        ],
    }
    return _write(action, kind, body)


def _check_reach(kind: Resource, metadata: Json, workflow: Json) -> None:
    """Raise :class:`EvaluationError` for an object that the author of a workflow may have no rights to.

    The controller writes it with its own rights, not with those of a service account.
    """
    home = workflow["metadata"].get("namespace")
    if not kind.namespaced:
        raise EvaluationError(
            f"a {kind.kind} belongs to no namespace: workflows write objects of their own only"
        )
    if metadata.get("namespace") not in (None, home):
        raise EvaluationError(
            f"metadata.namespace is {metadata['namespace']!r}: objects of a workflow are in its namespace {home!r}"
        )
    if kind.group in _NO_GROUPS or (kind.group, kind.kind) == ("", "Secret"):
        raise EvaluationError(
            f"a {kind.kind} is neither read nor written for a workflow: use a pod with the rights"
        )


def _of_job(spec: Json, job: Json) -> Json:
    """Return a ``job`` template as a ``resource`` template, after the checks that need known parameters."""
    if found := job_problems(job):
        field, _, text = found[0]
        raise EvaluationError(f"job{field}: {text}")
    return job_resource(job, spec.get("scheduling"))


def _manifest(manifest: Any) -> Json:
    if isinstance(manifest, str):
        try:
            manifest = yaml.safe_load(manifest)
        except yaml.YAMLError as problem:
            raise EvaluationError(f"resource.manifest is not YAML: {problem}") from None
    if not isinstance(manifest, dict) or not manifest.get("kind"):
        raise EvaluationError("resource.manifest: an object with apiVersion and kind is needed")
    return manifest


def _write(action: str, kind: Resource, body: Json) -> Action | None:
    metadata = body["metadata"]
    namespace = metadata.get("namespace") if kind.namespaced else None
    if action == "create":
        return Create(kind, body)
    if action == "delete":
        return Delete(kind, metadata["name"], namespace)
    if action in ("patch", "apply"):
        return Patch(kind, metadata["name"], {key: body[key] for key in body if key != "status"}, namespace)
    return None


def report_of_object(node: NodeStatus, found: Json | None, now: float) -> LeafReport | None:
    """Return what became of an object; ``None``: nothing new. ``found``: the object, if it exists."""
    wanted = node.managed_object or {}
    if wanted.get("action") == "delete":
        if found is None or not (wanted.get("successCondition") or found["metadata"].get("finalizers")):
            return LeafReport(node.id, words.SUCCEEDED, finished=now)
        return None
    if found is None:
        what = f"{wanted.get('kind')} {wanted.get('name')}"
        return LeafReport(node.id, words.ERROR, f"{what} does not exist any more", finished=now)
    try:
        if wanted.get("failureCondition") and holds(wanted["failureCondition"], found):
            text = f"failure condition '{wanted['failureCondition']}' evaluated true"
            if why := _reason(found):
                text = f"{wanted.get('kind')} {wanted.get('name')} failed: {why}"
            return LeafReport(node.id, words.FAILED, text, finished=now)
        if wanted.get("successCondition") and not holds(wanted["successCondition"], found):
            return LeafReport(node.id, words.RUNNING) if node.phase == words.PENDING else None
        outputs = _outputs(wanted.get("outputs") or (), found)
    except EvaluationError as problem:
        return LeafReport(node.id, words.ERROR, str(problem), finished=now)
    if wanted.get("daemon"):
        return LeafReport(node.id, words.RUNNING, outputs=outputs, daemoned=True)
    return LeafReport(node.id, words.SUCCEEDED, outputs=outputs, finished=now)


def _reason(found: Json) -> str:
    """Return why a job failed, as its status words it; empty if it does not."""
    status = found.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if one.get("type") == "Failed"]
    told = next((one.get("message") for one in conditions if str(one.get("status")) == "True"), "")
    return str(told or status.get("message") or (status.get("state") or {}).get("message") or "")


def _outputs(declared: Any, found: Json) -> Json:
    parameters: list[Json] = []
    for parameter in declared:
        if any(parameter.get("name") == known["name"] for known in parameters):
            continue  # a declaration precedes the output that the kind has anyway
        source = parameter.get("valueFrom") or {}
        path = source.get("jsonPath")
        if not path:
            continue
        values = jsonpath.find(found, path)
        if values:
            value = text_of(values[0]) if len(values) == 1 else " ".join(text_of(value) for value in values)
        elif source.get("default") is not None:
            value = str(source["default"])
        elif parameter.get("optional"):
            continue
        else:
            raise EvaluationError(f"output parameter {parameter.get('name')!r}: {path} has no value")
        parameters.append({"name": parameter["name"], "value": value})
    return {"parameters": parameters} if parameters else {}

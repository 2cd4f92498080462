"""Requests about a workflow: new ones, changes and repetitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.resources import (
    CLUSTER_WORKFLOW_TEMPLATES,
    CRON_WORKFLOWS,
    WORKFLOW_TEMPLATES,
    WORKFLOWS,
    Resource,
)
from windlass.cli.invocation import Invocation
from windlass.cli.manifests.read import read
from windlass.cli.workflows.lookup import KINDS, FoundWorkflow, find
from windlass.controllers.workflow import labels

Json = dict[str, Any]


def parameters_of(values: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters of ``-p NAME=VALUE``. Raises :class:`WindlassError`."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise WindlassError(
                "WL-USE-400", f"-p {value} is not NAME=VALUE", remedies=(f"-p {name or 'NAME'}=VALUE",)
            )
        found[name] = text
    return found


def with_parameters(spec: Json, values: Mapping[str, str]) -> Json:
    """Return a spec with values of its parameters."""
    if not values:
        return spec
    arguments = spec.get("arguments") or {}
    present = {entry.get("name"): entry for entry in arguments.get("parameters") or ()}
    for name, value in values.items():
        present[name] = {"name": name, "value": value}
    return {**spec, "arguments": {**arguments, "parameters": list(present.values())}}


def create_from_file(
    invocation: Invocation, file: str, values: Mapping[str, str], entrypoint: str, name: str
) -> list[tuple[Resource, Json]]:
    """Create the workflows of a manifest. Templates in it are created or replaced before."""
    created: list[tuple[Resource, Json]] = []
    for document in read([file]):
        kind, obj = _kind_of(document.obj), document.obj
        if kind is None:
            raise WindlassError(
                "WL-WORKFLOW-400",
                f"{document.where}: {document.title} is not a workflow",
                evidence="Workflow, WorkflowTemplate, ClusterWorkflowTemplate, CronWorkflow and AIGCWorkflow are run",
                remedies=(f"windlass apply -f {file}",),
            )
        metadata = obj.setdefault("metadata", {})
        namespace = (metadata.get("namespace") or invocation.home_namespace) if kind.namespaced else None
        if invocation.namespace and kind.namespaced:
            namespace = metadata["namespace"] = invocation.namespace
        if kind not in KINDS:
            _replace(invocation, kind, obj, namespace)
            continue
        if name:
            metadata.pop("generateName", None)
            metadata["name"] = name
        obj["spec"] = with_parameters(obj.get("spec") or {}, values)
        if entrypoint:
            obj["spec"]["entrypoint"] = entrypoint
        created.append((kind, invocation.client.create(kind, obj, namespace)))
    if not created:
        raise WindlassError(
            "WL-WORKFLOW-400",
            f"{file} has templates only, which were stored",
            remedies=("windlass workflow run --template NAME",),
        )
    return created


def _kind_of(obj: Json) -> Resource | None:
    for kind in (*KINDS, WORKFLOW_TEMPLATES, CLUSTER_WORKFLOW_TEMPLATES, CRON_WORKFLOWS):
        if (obj.get("apiVersion"), obj.get("kind")) == (kind.api_version, kind.kind):
            return kind
    return None


def _replace(invocation: Invocation, kind: Resource, obj: Json, namespace: str | None) -> None:
    name = obj["metadata"].get("name", "")
    present = invocation.client.find(kind, name, namespace) if name else None
    if present is None:
        invocation.client.create(kind, obj, namespace)
    else:
        obj["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"]
        invocation.client.update(kind, obj)


def create_from_template(
    invocation: Invocation, template: str, values: Mapping[str, str], entrypoint: str, name: str
) -> tuple[Resource, Json]:
    """Create a workflow of a WorkflowTemplate."""
    spec: Json = {"workflowTemplateRef": {"name": template}}
    if entrypoint:
        spec["entrypoint"] = entrypoint
    metadata: Json = {"name": name} if name else {"generateName": f"{template}-"}
    body = {"metadata": metadata, "spec": with_parameters(spec, values)}
    return WORKFLOWS, invocation.client.create(WORKFLOWS, body, invocation.home_namespace)


def resubmit(invocation: Invocation, found: FoundWorkflow, values: Mapping[str, str]) -> Json:
    """Create the same workflow again under another name."""
    old = found.obj["metadata"]
    prefix = old.get("generateName") or f"{old['name']}-"
    kept = {
        key: value for key, value in (old.get("labels") or {}).items() if not key.startswith("workflows.")
    }
    spec = {key: value for key, value in found.obj["spec"].items() if key not in ("shutdown", "suspend")}
    metadata: Json = {"generateName": prefix, "namespace": found.namespace}
    if kept:
        metadata["labels"] = kept
    body = {"metadata": metadata, "spec": with_parameters(spec, values)}
    return invocation.client.create(found.kind, body, found.namespace)


def send(invocation: Invocation, found: FoundWorkflow, request: Json) -> None:
    """Ask the controller to change the nodes, and wait until it has done so.

    Raises :class:`WindlassError` where the controller does not answer.
    """
    body = {"metadata": {"annotations": {labels.COMMAND: json.dumps(request)}}}
    invocation.client.patch(found.kind, found.name, body, found.namespace)
    for _ in range(100):
        present = find(invocation, found.name)
        if labels.COMMAND not in (present.obj["metadata"].get("annotations") or {}):
            return
        invocation.clock.pause(0.1)
    raise WindlassError(
        "WL-WORKFLOW-503",
        f"no controller has answered the request about workflow {found.name}",
        remedies=("windlass status",),
    )

"""Requests about a workflow: new ones, changes and repetitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import (
    CLUSTER_WORKFLOW_TEMPLATES,
    CRON_WORKFLOWS,
    WORKFLOW_TEMPLATES,
    WORKFLOWS,
    Resource,
)
from windlass.cli.invocation import Invocation
from windlass.cli.manifests.apply import refusal
from windlass.cli.manifests.read import Document, read
from windlass.cli.workflows.lookup import KINDS, FoundWorkflow
from windlass.controllers.workflow import labels
from windlass.workflow.language.scope import references
from windlass.workflow.specification import merge

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


def tell_unknown(invocation: Invocation, spec: Json, values: Mapping[str, str]) -> None:
    """Tell the parameters that ``spec``, with its template merged in, neither declares nor refers to."""
    known = [str(one.get("name")) for one in (spec.get("arguments") or {}).get("parameters") or ()]
    used = {name.removeprefix("workflow.parameters.") for name in references(spec)}
    for name in values:
        if name not in known and name not in used:
            listed = ", ".join(known) or "none"
            invocation.note(
                f"warning: the workflow has no parameter {name}, so that -p {name}=… may have no effect: "
                f"its parameters are {listed}"
            )


def whole_spec(invocation: Invocation, spec: Json, namespace: str | None) -> Json:
    """Return a spec merged over that of its template, if the template exists."""
    reference = spec.get("workflowTemplateRef") or {}
    if not reference.get("name"):
        return spec
    if reference.get("clusterScope"):
        found = invocation.client.find(CLUSTER_WORKFLOW_TEMPLATES, reference["name"], None)
    else:
        found = invocation.client.find(WORKFLOW_TEMPLATES, reference["name"], namespace)
    return merge(found.get("spec") or {}, spec) if found else spec


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
            with _located(invocation, document, kind):
                _replace(invocation, kind, obj, namespace)
            continue
        if name:
            metadata.pop("generateName", None)
            metadata["name"] = name
        _refuse_taken(invocation, metadata.get("name", ""), namespace)
        if values:
            tell_unknown(invocation, whole_spec(invocation, obj.get("spec") or {}, namespace), values)
        obj["spec"] = with_parameters(obj.get("spec") or {}, values)
        if entrypoint:
            obj["spec"]["entrypoint"] = entrypoint
        with _located(invocation, document, kind):
            created.append((kind, invocation.client.create(kind, obj, namespace)))
    if not created:
        raise WindlassError(
            "WL-WORKFLOW-400",
            f"{file} has templates only, which were stored",
            remedies=("windlass workflow run --template NAME",),
        )
    return created


@contextmanager
def _located(invocation: Invocation, document: Document, kind: Resource) -> Iterator[None]:
    """Raise a refusal of the server with file and line, as ``windlass apply`` does."""
    try:
        yield
    except StatusError as error:
        raise refusal(document, kind, error, invocation.client) from error


def _refuse_taken(invocation: Invocation, name: str, namespace: str | None) -> None:
    """Raise :class:`WindlassError` if a workflow of either kind has the name: commands would confuse the two."""
    for kind in KINDS if name else ():
        try:
            taken = invocation.client.find(kind, name, namespace) is not None
        except StatusError as error:
            if error.code != 404:
                raise
            continue
        if taken:
            raise WindlassError(
                "WL-WORKFLOW-409",
                f"workflow {name} already exists in namespace {namespace}",
                evidence=f"it is of kind {kind.kind}, and a workflow runs once",
                remedies=(
                    "windlass workflow run FILE --name NAME   (with another name)",
                    f"windlass workflow resubmit {name}   (to run it again)",
                    f"windlass workflow show {name}",
                ),
            )


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
    """Create a workflow of a WorkflowTemplate. Raises :class:`WindlassError` if it does not exist."""
    spec: Json = {"workflowTemplateRef": {"name": template}}
    present = invocation.client.find(WORKFLOW_TEMPLATES, template, invocation.home_namespace)
    if present is None:
        items = invocation.client.list(WORKFLOW_TEMPLATES, invocation.home_namespace).items
        names = sorted(one["metadata"]["name"] for one in items)
        raise WindlassError(
            "WL-WORKFLOW-404",
            f"there is no WorkflowTemplate {template} in namespace {invocation.home_namespace}",
            evidence=f"its templates are {', '.join(names[:8]) or 'none'}",
            remedies=(
                f"windlass workflow run --template {names[0]}" if names else "windlass apply -f FILE",
                "windlass get workflowtemplates -A",
            ),
        )
    tell_unknown(invocation, present.get("spec") or {}, values)
    if entrypoint:
        spec["entrypoint"] = entrypoint
    _refuse_taken(invocation, name, invocation.home_namespace)
    metadata: Json = {"name": name} if name else {"generateName": f"{template}-"}
    body = {"metadata": metadata, "spec": with_parameters(spec, values)}
    return WORKFLOWS, invocation.client.create(WORKFLOWS, body, invocation.home_namespace)


def resubmit(
    invocation: Invocation, found: FoundWorkflow, values: Mapping[str, str], *, memoized: bool = False
) -> Json:
    """Create the same workflow again under another name.

    ``memoized``: the controller takes the results of nodes that succeeded over before anything begins.
    """
    old = found.obj["metadata"]
    prefix = old.get("generateName") or f"{old['name']}-"
    kept = {
        key: value for key, value in (old.get("labels") or {}).items() if not key.startswith("workflows.")
    }
    spec = {key: value for key, value in found.obj["spec"].items() if key not in ("shutdown", "suspend")}
    if values:
        tell_unknown(invocation, whole_spec(invocation, spec, found.namespace), values)
    metadata: Json = {"generateName": prefix, "namespace": found.namespace}
    if kept:
        metadata["labels"] = kept
    if memoized:
        metadata["annotations"] = {labels.COMMAND: json.dumps({"action": "reuse", "of": found.name})}
    body = {"metadata": metadata, "spec": with_parameters(spec, values)}
    return invocation.client.create(found.kind, body, found.namespace)


def send(invocation: Invocation, found: FoundWorkflow, request: Json) -> None:
    """Ask the controller to change the nodes, and wait until it has done so.

    Raises :class:`WindlassError` where the controller does not answer.
    """
    body = {"metadata": {"annotations": {labels.COMMAND: json.dumps(request)}}}
    invocation.client.patch(found.kind, found.name, body, found.namespace)
    for _ in range(300):
        present = invocation.client.find(found.kind, found.name, found.namespace)
        if present is None or labels.COMMAND not in (present["metadata"].get("annotations") or {}):
            return
        invocation.clock.pause(0.1)
    raise WindlassError(
        "WL-WORKFLOW-503",
        f"no controller has answered the request about workflow {found.name}",
        remedies=("windlass status",),
    )

"""Workflow as it is built in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from windlass.api.errors import WindlassError
from windlass.api.resources import AIGC_WORKFLOWS, WORKFLOWS
from windlass.sdk.session import Target, session_of
from windlass.sdk.workflows import context
from windlass.sdk.workflows.graphs import GraphTemplate
from windlass.sdk.workflows.templates import Artifact, Parameter, TemplateBase
from windlass.sdk.workflows.values import RunValue, as_text

if TYPE_CHECKING:
    from windlass.sdk.workflows.handle import WorkflowRun

_KINDS = {one.kind: one for one in (AIGC_WORKFLOWS, WORKFLOWS)}


class Workflow:
    """Workflow. Templates and graphs that are made in its ``with`` block belong to it.

    ``arguments``: parameters by name, with their values; an :class:`Artifact` is one with ``raw``.
    ``entrypoint``: by default the first graph, or the only template. ``on_exit``: template that runs at
    the end. ``fields``: further fields of the spec, in Argo's form. A ``name`` that ends with ``-`` is
    completed by the server.
    """

    def __init__(
        self,
        name: str,
        *,
        entrypoint: str = "",
        arguments: Mapping[str, Any] | None = None,
        on_exit: TemplateBase | None = None,
        parallelism: int = 0,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        kind: Literal["AIGCWorkflow", "Workflow"] = "AIGCWorkflow",
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.namespace, self.kind = name, namespace, kind
        self.templates: list[TemplateBase] = []
        self.on_exit = on_exit
        self._entrypoint, self._arguments = entrypoint, dict(arguments or {})
        self._parallelism, self._labels, self._fields = parallelism, dict(labels or {}), dict(fields or {})

    def __enter__(self) -> Self:
        context.workflows().append(self)
        return self

    def __exit__(self, *error: object) -> None:
        context.workflows().remove(self)

    def add(self, template: TemplateBase) -> None:
        """Add a template. Raises ``ValueError`` if another one has its name."""
        for one in self.templates:
            if one is template:
                return
            if one.name == template.name:
                raise ValueError(f"two templates of workflow {self.name} have the name {template.name}")
        self.templates.append(template)

    def parameter(self, name: str) -> RunValue:
        """Return a parameter of the workflow."""
        return RunValue(f"{{{{workflow.parameters.{name}}}}}")

    def manifest(self) -> dict[str, Any]:
        """Return the object. Raises ``ValueError`` where no template is the entrypoint."""
        if self.on_exit is not None:
            self.add(self.on_exit)
        spec: dict[str, Any] = {"entrypoint": self._entry()}
        arguments: dict[str, Any] = {}
        for name, value in self._arguments.items():
            if isinstance(value, Artifact):
                arguments.setdefault("artifacts", []).append({**value.as_entry(), "name": name})
            else:
                entry = Parameter(name, as_text(value)).as_input()
                arguments.setdefault("parameters", []).append(entry)
        if arguments:
            spec["arguments"] = arguments
        if self.on_exit is not None:
            spec["onExit"] = self.on_exit.name
        if self._parallelism:
            spec["parallelism"] = self._parallelism
        spec["templates"] = [one.build() for one in self.templates]
        metadata: dict[str, Any] = {"generateName" if self.name.endswith("-") else "name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        if self._labels:
            metadata["labels"] = self._labels
        resource = _KINDS[self.kind]
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": spec | self._fields,
        }

    def _entry(self) -> str:
        if self._entrypoint:
            return self._entrypoint
        graphs = [one for one in self.templates if isinstance(one, GraphTemplate)]
        found = graphs or [one for one in self.templates if one is not self.on_exit]
        if not found or (not graphs and len(found) > 1):
            names = ", ".join(one.name for one in found) or "none"
            raise ValueError(f"workflow {self.name} needs an entrypoint: its templates are {names}")
        return found[0].name

    def to_yaml(self) -> str:
        """Return the manifest as YAML, for ``kubectl apply`` or ``windlass workflow run``."""
        from windlass.cli.output.formats import to_yaml

        return to_yaml(self.manifest())

    def problems(self) -> list[str]:
        """Return what the server would reject, each with its field. Nothing is created."""
        from windlass.workflow.checks.validation import check_spec

        return [f"{one.path}: {one.message}" for one in check_spec(self.manifest()["spec"])]

    def submit(self, target: Target | None = None, **parameters: Any) -> WorkflowRun:
        """Create the workflow and return its run. ``parameters``: other values of arguments.

        Starts the control plane of this machine if it does not run. Raises :class:`WindlassError` with the
        fields that are wrong.
        """
        from windlass.sdk.workflows.handle import WorkflowRun

        if unknown := [name for name in parameters if name not in self._arguments]:
            known = ", ".join(self._arguments) or "none"
            raise TypeError(f"workflow {self.name} has no argument {unknown[0]!r}: its arguments are {known}")
        if problems := self.problems():
            raise WindlassError(
                "WL-WORKFLOW-422",
                f"workflow {self.name} is not valid: {problems[0]}",
                evidence="; ".join(problems[1:]),
            )
        session = session_of(target or Target(namespace=self.namespace))
        session.started()
        body = self.manifest()
        for entry in (body["spec"].get("arguments") or {}).get("parameters") or ():
            if entry["name"] in parameters:
                entry["value"] = as_text(parameters[entry["name"]])
        with session.explained():
            created = session.invocation.client.create(_KINDS[self.kind], body, session.namespace)
        return WorkflowRun(session, created["metadata"]["name"])

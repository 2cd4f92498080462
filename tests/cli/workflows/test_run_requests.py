"""Requests of ``windlass workflow run`` that are refused or warned about before a workflow is created."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.api.errors import FieldError, WindlassError, invalid
from windlass.api.resources import AIGC_WORKFLOWS, WORKFLOW_TEMPLATES, WORKFLOWS, Resource
from windlass.cli.workflows import requests

MANIFEST = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  workflowTemplateRef: {name: hello}
"""
SPEC = {
    "arguments": {"parameters": [{"name": "rows", "value": "1"}]},
    "templates": [{"name": "main", "container": {"args": ["{{workflow.parameters.used}}"]}}],
}


class _Invocation:
    """Invocation against objects in a dictionary."""

    namespace, home_namespace = "", "default"

    def __init__(self, *objects: tuple[Resource, str]) -> None:
        self.objects = {(kind, name): {"metadata": {"name": name}, "spec": SPEC} for kind, name in objects}
        self.notes: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.client = self

    def find(self, kind: Resource, name: str, _namespace: str | None) -> dict[str, Any] | None:
        return self.objects.get((kind, name))

    def list(self, kind: Resource, _namespace: str) -> SimpleNamespace:
        return SimpleNamespace(items=[obj for (one, _), obj in self.objects.items() if one is kind])

    def create(self, _kind: Resource, body: dict[str, Any], _namespace: str | None) -> dict[str, Any]:
        self.created.append(body)
        return body

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_template_that_does_not_exist_is_refused_with_the_list() -> None:
    invocation: Any = _Invocation((WORKFLOW_TEMPLATES, "hello"))
    with pytest.raises(WindlassError, match="there is no WorkflowTemplate nope") as caught:
        requests.create_from_template(invocation, "nope", {}, "", "")
    assert caught.value.evidence == "its templates are hello"
    assert caught.value.remedies[0] == "windlass workflow run --template hello"
    assert invocation.created == []


def test_parameters_that_nothing_uses_are_told(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(MANIFEST)
    values = {"nix": "3", "rows": "2", "used": "4"}
    invocation: Any = _Invocation((WORKFLOW_TEMPLATES, "hello"))
    requests.create_from_template(invocation, "hello", values, "", "")
    requests.create_from_file(invocation, str(file), values, "", "")
    assert len(invocation.created) == 2
    told = "the workflow has no parameter nix, so that -p nix=… may have no effect: its parameters are rows"
    assert invocation.notes == [f"warning: {told}"] * 2


@pytest.mark.parametrize("kind", [WORKFLOWS, AIGC_WORKFLOWS])
def test_a_name_that_a_workflow_of_either_kind_has_is_refused(kind: Resource, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(MANIFEST)
    invocation: Any = _Invocation((kind, "w"))
    with pytest.raises(WindlassError, match="workflow w already exists in namespace default") as caught:
        requests.create_from_file(invocation, str(file), {}, "", "")
    assert f"it is of kind {kind.kind}" in caught.value.evidence
    requests.create_from_file(invocation, str(file), {}, "", "other")
    assert invocation.created[0]["metadata"]["name"] == "other"


def test_a_refusal_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(
        "\n" + MANIFEST.replace("  workflowTemplateRef", "  entrypoint: gone\n  workflowTemplateRef")
    )
    invocation: Any = _Invocation()
    problem = FieldError.invalid("spec.entrypoint", "gone", "the template does not exist")
    refused = invalid(WORKFLOWS, "w", [problem])

    def create(*_: Any) -> None:
        raise refused

    invocation.create = create
    with pytest.raises(WindlassError, match=f"^{file}:6: "):
        requests.create_from_file(invocation, str(file), {}, "", "")


def test_control_c_tells_how_to_come_back_to_a_workflow(windlass, tmp_path: Path, monkeypatch) -> None:
    def interrupt(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("windlass.cli.commands.jobs.workflow._follow", interrupt)
    manifest = tmp_path / "w.yaml"
    text = MANIFEST.replace("workflowTemplateRef: {name: hello}", "entrypoint: m\n  templates: []")
    manifest.write_text(text.replace("name: w", "name: w, namespace: default"))
    done = windlass("workflow", "run", str(manifest))
    assert done.code == 130
    assert "detached; w keeps running\ncome back: windlass workflow show w\n" in done.err
    assert "end it:    windlass workflow stop w\n" in done.err

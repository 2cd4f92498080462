"""A deletion that waits for artifacts is shown with its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from windlass.api.resources import WORKFLOWS
from windlass.cli.workflows.lookup import FoundWorkflow
from windlass.cli.workflows.show import print_workflow
from windlass.kits.clock import FakeClock


def shown(conditions: list[dict[str, Any]], phase: str = "Succeeded") -> str:
    texts: list[str] = []

    def line(text: str = "") -> None:
        texts.append(f"{text}\n")

    out = SimpleNamespace(paint=lambda text, _: text, write=texts.append, line=line)
    invocation: Any = SimpleNamespace(out=out, clock=FakeClock(), namespace_flag=lambda name: f" -n {name}")
    metadata = {"name": "w", "namespace": "team"}
    status = {"phase": phase, "conditions": conditions}
    print_workflow(invocation, FoundWorkflow(WORKFLOWS, {"metadata": metadata, "status": status}, {}))
    return "".join(texts)


def test_failed_workflow_is_shown_with_the_command_that_goes_on() -> None:
    assert "windlass workflow retry w -n team\n" in shown([], "Failed")
    assert "retry" not in shown([])


def test_failed_removal_of_artifacts_is_shown() -> None:
    completed = {"type": "Completed", "status": "True", "message": "m"}
    assert "Deletion" not in shown([completed])
    told = shown([completed, {"type": "ArtifactGCError", "status": "True", "message": "pod x failed"}])
    assert "Deletion" in told
    assert "pod x failed" in told

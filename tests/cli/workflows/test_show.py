"""A deletion that waits for artifacts is shown with its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from windlass.api.resources import WORKFLOWS
from windlass.cli.workflows.lookup import FoundWorkflow
from windlass.cli.workflows.show import print_workflow
from windlass.kits.clock import FakeClock


def shown(conditions: list[dict[str, Any]]) -> str:
    texts: list[str] = []
    out = SimpleNamespace(paint=lambda text, _: text, write=texts.append, line=lambda text="": None)
    invocation: Any = SimpleNamespace(out=out, clock=FakeClock())
    status = {"phase": "Succeeded", "conditions": conditions}
    print_workflow(invocation, FoundWorkflow(WORKFLOWS, {"metadata": {"name": "w"}, "status": status}, {}))
    return "".join(texts)


def test_failed_removal_of_artifacts_is_shown() -> None:
    completed = {"type": "Completed", "status": "True", "message": "m"}
    assert "Deletion" not in shown([completed])
    told = shown([completed, {"type": "ArtifactGCError", "status": "True", "message": "pod x failed"}])
    assert "Deletion" in told
    assert "pod x failed" in told

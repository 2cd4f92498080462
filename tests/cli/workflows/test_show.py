"""A deletion that waits for artifacts is shown with its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from windlass.api.resources import WORKFLOWS
from windlass.cli.workflows.lookup import FoundWorkflow, state_of
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


def test_suspended_workflow_does_not_look_like_one_that_runs(cluster, windlass) -> None:
    metadata = {"name": "w", "namespace": "default"}
    status = {"phase": "Running", "message": "suspended, no further node begins"}
    cluster.add(WORKFLOWS, {"metadata": metadata, "spec": {"suspend": True}, "status": status})
    assert "Running (suspended)" in windlass("workflow", "show", "w").out
    listed = windlass("workflow", "ls").out
    assert "Running (suspended)" in listed
    assert "no further node begins" in listed
    assert "windlass workflow resume w" in windlass("workflow", "graph", "w").err
    ended = {"phase": "Failed", "finishedAt": "2026-01-01T00:00:00Z"}
    assert state_of({"spec": {"suspend": True}, "status": ended}) == "Failed"


def test_messages_name_nodes_instead_of_their_ids(cluster, windlass) -> None:
    failed = {"phase": "Failed", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
    message = "child 'w-12' failed"
    nodes = {
        "w": {**failed, "id": "w", "name": "w", "displayName": "w", "type": "Steps", "message": message},
        "w-12": {**failed, "id": "w-12", "name": "w[0].job", "displayName": "job", "type": "Pod"},
    }
    metadata = {"name": "w", "namespace": "default"}
    cluster.add(
        WORKFLOWS,
        {"metadata": metadata, "spec": {}, "status": {**failed, "message": message, "nodes": nodes}},
    )
    told = windlass("workflow", "show", "w").out
    assert told.count("child 'job' failed") == 2, told
    assert "child 'job' failed" in windlass("workflow", "ls").out
    assert message in windlass("workflow", "show", "w", "-o", "json").out  # as Argo writes it


def test_failed_removal_of_artifacts_is_shown() -> None:
    completed = {"type": "Completed", "status": "True", "message": "m"}
    assert "Deletion" not in shown([completed])
    told = shown([completed, {"type": "ArtifactGCError", "status": "True", "message": "pod x failed"}])
    assert "Deletion" in told
    assert "pod x failed" in told

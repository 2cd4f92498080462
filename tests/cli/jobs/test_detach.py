"""Detachment from a job that keeps running: the commands to come back, and to end it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from windlass.cli.jobs.cancel import detach


def test_commands_to_come_back_hold_the_namespace_as_it_is() -> None:
    notes: list[str] = []
    invocation: Any = SimpleNamespace(
        note=notes.append,
        context=SimpleNamespace(target_flags=""),
        namespace_flag=lambda namespace: f" -n {namespace}",
        err=SimpleNamespace(interactive=False),
    )
    job: Any = SimpleNamespace(name="train", namespace="team-nlp", kind="Job")
    detach(invocation, job)
    assert "come back: windlass logs -f train --namespace team-nlp" in notes
    assert "end it:    windlass cancel train -n team-nlp" in notes

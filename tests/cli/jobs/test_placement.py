"""Stages of a job in ``windlass explain``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.api import annotations as names
from windlass.api.reasons import Explanation, Reason
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.placement import condition_of, condition_text


def job(phase: str, *pods: tuple[str, str], minimum: int = 2, code: Reason | None = None) -> Job:
    """A gang with pods given by phase and node."""
    notes = {}
    if code is not None:
        notes[names.EXPLANATION] = json.dumps(Explanation(code, "It waits.").as_dict())
    group: dict[str, Any] = {
        "metadata": {"name": "g", "annotations": notes},
        "spec": {"minMember": minimum},
        "status": {"phase": phase},
    }
    members = [
        {
            "metadata": {"name": f"g-{number}"},
            "spec": {"nodeName": node} if node else {},
            "status": {"phase": pod_phase},
        }
        for number, (pod_phase, node) in enumerate(pods)
    ]
    return Job("PodGroup", group, members, group=group)


WAITS, BOUND, RUNS = ("Pending", ""), ("Pending", "n"), ("Running", "n")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job("Pending", WAITS, WAITS), "Pending"),
        (job("Inqueue", WAITS, WAITS), "Inqueue"),
        (job("Inqueue", WAITS, WAITS, code=Reason.WAITING_FOR_VICTIMS), "Allocating"),
        (job("Inqueue", BOUND, WAITS), "Allocating"),
        (job("Running", BOUND, RUNS), "Allocating"),
        (job("Running", RUNS, RUNS), "Running"),
        (job("Running", RUNS, RUNS, WAITS), "Running"),
        (job("Completed", ("Succeeded", "n"), ("Succeeded", "n")), "Completed"),
    ],
)
def test_stages_of_a_gang(found: Job, expected: str) -> None:
    """F25: Pending, Inqueue, Allocating, Running, Completed."""
    assert condition_of(found) == expected


def test_allocating_is_told_with_its_numbers() -> None:
    assert condition_text(job("Running", BOUND, RUNS)) == "Allocating: 2 of 2 pods on a node, 1 running"
    assert condition_text(job("Running", RUNS, RUNS)) == ""

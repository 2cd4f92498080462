"""Shipped scenarios of ``windlass sim run`` (F24)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from windlass.cli.simulate import scenarios

Run: TypeAlias = Any
"""Type of the fixture ``windlass``."""
SUBJECTS = ["gang", "queue", "fair share", "topology", "preemption", "reclaim"]


def test_f24_each_subject_has_one_line_and_passes(windlass: Run) -> None:
    done = windlass("sim", "run", "--scenario", "all")
    assert done.code == 0, done.err
    _, *lines, last = done.out.splitlines()
    assert [line.partition("  ")[0].strip() for line in lines] == SUBJECTS
    assert all(" passed " in line for line in lines)
    assert last == "6 of 6 passed"
    assert "victims: low-0" in lines[4]
    assert "victims: borrowed-new-0" in lines[5]


def test_f24_scenarios_as_json(windlass: Run) -> None:
    done = windlass("sim", "run", "--scenario", "gang,reclaim", "-o", "json")
    found = json.loads(done.out)
    assert [(one["subject"], one["passed"]) for one in found["scenarios"]] == [
        ("gang", True),
        ("reclaim", True),
    ]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("gang", {"bound": {}}), ("reclaim", {"evicted": ["own-0"]}), ("queue", {"actions": "backfill"})],
)
def test_another_decision_than_the_expected_one_fails(name: str, wrong: dict[str, Any]) -> None:
    scenario, objects = scenarios.read(name)
    assert not scenarios.play(name, replace(scenario, **wrong), objects).passed


def test_a_failed_scenario_is_reported_with_what_was_expected(
    windlass: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, objects = scenarios.read("gang")
    wrong = replace(scenario, pending=["old-0"])
    monkeypatch.setattr(scenarios, "read", lambda _: (wrong, objects))
    done = windlass("sim", "run", "--scenario", "gang")
    assert done.code == 1
    assert "gang: expected" in done.err
    assert "FAILED" in done.out


def test_unknown_scenarios_and_other_inputs_are_refused(windlass: Run) -> None:
    done = windlass("sim", "run", "--scenario", "gangs")
    assert (done.code, 'there is no scenario "gangs"' in done.err) == (2, True)
    done = windlass("sim", "run", "--scenario", "gang", "--nodes", "1x8")
    assert (done.code, "excludes --trace and --nodes" in done.err) == (2, True)
    done = windlass("sim", "run", "--nodes", "1x8")
    assert (done.code, "missing option '--trace'" in done.err) == (2, True)

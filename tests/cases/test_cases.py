"""Every scheduling case: it passes, or is a listed deviation."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from scheduling_cases import CASES, FOLDER, RUNNER, deviations, outcome

RUN = sorted(CASES)
DEVIATIONS = deviations()


@pytest.mark.parametrize("name", RUN)
def test_case(name: str) -> None:
    plan, differences = outcome(CASES[name])
    assert json.loads(json.dumps(plan)) == plan
    if name in DEVIATIONS:
        assert differences, f"{name} passes: take it off DEVIATIONS.md"
    else:
        assert not differences, f"{CASES[name]['about']} {differences}"


@pytest.mark.parametrize("name", [name for name in RUN if CASES[name]["dialect"] == "volcano"])
def test_volcanos_cases_pass_under_the_compatibility_switch(name: str) -> None:
    """All of them, those included that are decided otherwise on purpose without it."""
    assert not outcome(CASES[name], compatibility="volcano")[1]


def test_deviations_are_cases_that_are_run_and_no_essential_ones() -> None:
    assert sorted(set(DEVIATIONS) - set(RUN)) == []
    assert [name for name in DEVIATIONS if CASES[name]["class"] == "essential"] == []


def test_nearly_all_policies_are_as_their_users_know_them() -> None:
    policy = [name for name in RUN if CASES[name]["class"] == "policy"]
    assert sum(name in DEVIATIONS for name in policy) <= len(policy) * 0.05


def test_how_many_cases_there_are() -> None:
    """All are run; a case that is lost shows here."""
    assert len(RUN) == 309
    assert sum(case["area"].startswith("topology") for case in CASES.values()) == 18
    assert sum(any("mig" in node for node in case["state"].get("nodes", ())) for case in CASES.values()) == 15


def test_a_smoke_run_of_the_command_by_the_runner_itself(tmp_path: Path) -> None:
    """The files, the configuration and the batch as any other program would use them."""
    names = [name for name in (FOLDER / "essential_smoke.txt").read_text().split() if name in RUN]
    argv = [
        sys.executable,
        FOLDER / "run_cases.py",
        "--command",
        f"{shlex.quote(sys.executable)} -m windlass plan",
        "--batch",
    ]
    done = subprocess.run(
        [*argv, "--id", ",".join(names), "--json", tmp_path / "out.json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((tmp_path / "out.json").read_text())["results"]) == len(names) > 10


def test_the_same_plan_byte_for_byte() -> None:
    for name in RUN[:: max(1, len(RUN) // 10)]:
        first, second = (json.dumps(outcome(CASES[name])[0]) for _ in range(2))
        assert first == second


def test_the_runner_refuses_a_case_that_is_not_well_formed() -> None:
    """Nothing is skipped in silence."""
    case = dict(CASES[RUN[0]], expect={})
    with pytest.raises(RUNNER.CaseError):
        RUNNER.check_case(case)

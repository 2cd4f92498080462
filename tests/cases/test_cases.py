"""Every scheduling case that asks for whole devices: it passes, or is a listed deviation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from plancases import CASES, FOLDER, RUNNER, asks_for, deviations, outcome

RUN = sorted(name for name, case in CASES.items() if not asks_for(case))
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


def test_which_cases_are_run() -> None:
    """All but those that ask for parts of devices; a change of the rule shows here."""
    left_out = {name: asks_for(case) for name, case in CASES.items() if asks_for(case)}
    assert len(RUN) + len(left_out) == len(CASES) == 309
    assert set(left_out.values()) == {"parts of devices"}
    in_topology = {name for name, case in CASES.items() if case["area"].startswith("topology")}
    assert len(in_topology) == 18
    assert in_topology <= set(RUN)


def test_a_smoke_run_of_the_command_by_the_runner_itself(tmp_path: Path) -> None:
    """The files, the configuration and the batch as any other program would use them."""
    names = [name for name in (FOLDER / "essential_smoke.txt").read_text().split() if name in RUN]
    argv = [
        sys.executable,
        FOLDER / "run_cases.py",
        "--command",
        f"{sys.executable} -m windlass plan",
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

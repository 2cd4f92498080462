"""The table at the end of `make bench` says what was measured."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_PATH = Path(__file__).resolve().parent.parent / "benchmarks" / "goals.py"


def _goals() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_goals", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(pods_per_second: int, get_p99_ms: float) -> dict[str, Any]:
    return {
        "pods": 2000,
        "pods_per_second": pods_per_second,
        "get_p99_ms": get_p99_ms,
        "processes": {"server": {"cpu_seconds": 1.0}},
    }


def test_the_median_of_several_runs_is_held_against_the_goal() -> None:
    runs = [("end_to_end", _run(*figures)) for figures in ((750, 10.0), (3000, 40.0), (1500, 5.0))]
    _, _, throughput, latency, cost = _goals().table(runs)
    assert throughput == "| pods from create to bound | 1 500/s | 750 to 3 000 | ≥ 1 500/s | 1.00 |"
    assert latency == "| GET meanwhile, p99 | 10 ms | 5 to 40 | ≤ 20 ms | 2.00 |"
    assert cost == "| server CPU per pod | 500 us | 500 to 500 |  |  |"


def test_benchmarks_without_a_goal_add_no_row() -> None:
    assert len(_goals().table([("engine", {})])) == 2


def test_a_policy_that_could_not_be_played_is_told_and_not_waited_for() -> None:
    command = [sys.executable, "-m", "benchmarks.months", "no-such-trace.csv", "--policies", "fifo"]
    ended = subprocess.run(command, cwd=_PATH.parent.parent, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 1
    assert "no-such-trace.csv does not exist" in ended.stderr


def test_a_real_slurm_runs_the_work_and_leaves_nothing() -> None:
    code = (
        "from benchmarks import slurm, slurm_lab\n"
        "lacking = slurm_lab.missing()\n"
        "if lacking: raise SystemExit('lacking: ' + ', '.join(lacking))\n"
        "slurm.adopt_orphans()\n"
        "with slurm.slurm('Slurm', slurm.QUICK) as side:\n"
        "    print(slurm.many(side, 9, batch=True)['jobs'])\n"
        "print(side.daemons(), side.lab.folder.exists())\n"
    )
    root = _PATH.parent.parent
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=240
    )
    if ended.stderr.startswith("lacking: "):
        pytest.skip(f"no Slurm here, {ended.stderr.strip()}")
    assert ended.stdout == "9\n{} False\n", ended.stderr

"""The table at the end of `make bench` says what was measured."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gang_schedulers import PEERS

_FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def _part(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", _FOLDER / f"{name}.py")
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
    _, _, throughput, latency, cost = _part("goals").table(runs)
    assert throughput == "| pods from create to bound | 1 500/s | 750 to 3 000 | ≥ 1 500/s | 1.00 |"
    assert latency == "| GET meanwhile, p99 | 10 ms | 5 to 40 | ≤ 20 ms | 2.00 |"
    assert cost == "| server CPU per pod | 500 us | 500 to 500 |  |  |"


def test_benchmarks_without_a_goal_add_no_row() -> None:
    assert len(_part("goals").table([("engine", {})])) == 2


def test_a_policy_that_could_not_be_played_is_told_and_not_waited_for() -> None:
    command = [sys.executable, "-m", "benchmarks.months", "no-such-trace.csv", "--policies", "fifo"]
    ended = subprocess.run(command, cwd=_FOLDER.parent, capture_output=True, text=True, timeout=240)
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
    root = _FOLDER.parent
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=240
    )
    if ended.stderr.startswith("lacking: "):
        pytest.skip(f"no Slurm here, {ended.stderr.strip()}")
    assert ended.stdout == "9\n{} False\n", ended.stderr


def test_what_gangs_held_before_they_were_whole_is_counted() -> None:
    part = _part("live_gangs")
    binds = {"a-0": 1.0, "b-0": 1.5, "a-1": 2.0, "c-0": 3.0, "b-1": 4.0}
    gangs = part.by_gang([*binds, "c-1", "d-0", "d-1"], binds)
    assert gangs == {"a": [1.0, 2.0], "b": [1.5, 4.0], "c": [3.0]}
    assert part.most_incomplete(list(gangs.values()), 2) == 2  # a-0 and b-0, then b-0 and c-0
    assert part.incomplete_seconds(list(gangs.values()), 2, until=10.0) == 1.0 + 2.5 + 7.0


def test_the_versions_that_are_told_of_peers_are_those_that_are_built() -> None:
    tools, told = _FOLDER.parent / "tools" / "kubernetes", " ".join(peer.title for peer in PEERS.values())
    documented = (_FOLDER.parent / "docs" / "operations" / "benchmarks" / "peers.md").read_text()
    modules = {
        "volcano": ("Volcano", "volcano.sh/volcano"),
        "kai": ("KAI", "github.com/NVIDIA/KAI-scheduler"),
        "kueue": ("Kueue", "sigs.k8s.io/kueue"),
        "coscheduling": ("coscheduling", "sigs.k8s.io/scheduler-plugins"),
        "server": ("kube-scheduler", "k8s.io/kubernetes"),
    }
    for folder, (title, module) in modules.items():
        (version,) = re.findall(rf"^\s{module} v(\S+)", (tools / folder / "go.mod").read_text(), re.M)
        assert f"{title} {version}" in told
        assert re.search(rf"^\| {title} \|[^|]*\b{re.escape(version)}\b", documented, re.M), (title, version)


def test_a_peer_that_is_not_built_is_refused_with_the_command_that_builds_it(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (tools / name).write_text("")
        (tools / name).chmod(0o755)
    command = [sys.executable, "-m", "benchmarks.live_peers", "--schedulers", "windlass,kueue,none"]
    ended = subprocess.run(
        command,
        cwd=_FOLDER.parent,
        env={**os.environ, "WINDLASS_TOOLS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 1
    lacking = "kueue: no kueue, kube-scheduler, the definitions of kueue"
    assert f"{lacking}: build with tools/kubernetes/build.sh --peers, or leave it out" in ended.stderr

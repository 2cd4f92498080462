"""F7 and C3: a node in sharing mode MPS, with a daemon that Windlass runs."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import yaml
from scripted_nvml import H100_80, Script, card
from single_node import Box
from single_node_gpus import gpu_environment, gpu_pod

from windlass.kits.processes import is_alive
from windlass.node.devices.mps_control import RECORD

SHOW = "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY; sleep 600"


def half(name: str) -> dict[str, Any]:
    return gpu_pod(
        name, {}, SHOW, metadata={"annotations": {"gpu-fraction": "0.5"}}, schedulerName="windlass"
    )


def pid_in(file: Path) -> int:
    """Return the process that a file names; 0 while it is being written."""
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def share(box: Box, *names: str) -> None:
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump_all([half(name) for name in names]))
    for name in names:
        box.wait_for("it runs", lambda name=name: box.get("pod", name)["status"].get("phase") == "Running")


def test_f7_two_halves_share_one_simulated_gpu_under_mps() -> None:
    with Box("--gpus", "simulated:2xA100-40GB+mps") as box:
        share(box, "one", "two")
        document = json.loads(box.windlass("gpu", "-o", "json").stdout)
        (shared,) = [row for row in document["items"] if row["holders"]]
        assert ([h["pod"] for h in shared["holders"]], shared["mode"]) == (
            ["default/one", "default/two"],
            "shared,MPS",
        )
        (daemon,) = document["mpsDaemons"]
        assert (daemon["running"], daemon["managed"]) == (True, True)
        for name in ("one", "two"):
            said = box.wait_for("it speaks", lambda name=name: box.windlass("logs", name).stdout)
            assert said.split() == [daemon["pipeDirectory"], daemon["logDirectory"]]
        assert (
            f"running, managed by Windlass, pipe directory {daemon['pipeDirectory']}"
            in box.windlass("gpu").stdout
        )


def test_c3_windlass_runs_the_control_daemon_in_the_directories_of_the_two_variables(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m windlass.node.devices.simulated_mps "$@"\n')
    program.chmod(0o755)
    script = Script.write(tmp_path / "nvml.json", [card(H100_80, 0)])
    environment = gpu_environment(tmp_path, script) | {
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(tmp_path / "log"),
    }
    pid_file = tmp_path / "pipe" / "nvidia-cuda-mps-control.pid"
    with Box("--gpus", "auto+mps", environment=environment) as box:
        share(box, "one", "two")
        said = box.wait_for("it speaks", lambda: box.windlass("logs", "two").stdout)
        assert said.split() == [str(tmp_path / "pipe"), str(tmp_path / "log")]
        (daemon,) = json.loads(box.windlass("gpu", "-o", "json").stdout)["mpsDaemons"]
        assert daemon["pipeDirectory"] == str(tmp_path / "pipe")
        pid = int(pid_file.read_text())
        assert pid > 1  # a signal to process 0 would end the tests themselves
        os.kill(pid, signal.SIGKILL)
        pid = box.wait_for(
            "it is started again", lambda: pid_in(pid_file) not in (0, pid) and pid_in(pid_file)
        )
        recorded = box.state.node / RECORD
        box.wait_for(
            "the agent has recorded it", lambda: f'"pid":{pid},' in recorded.read_text().replace(" ", "")
        )
        record = box.state.read_supervisor()
        assert record is not None
        os.kill(record["processes"]["node"]["pid"], signal.SIGKILL)
        assert is_alive(pid)  # its clients go on while no agent runs
        box.windlass("run", "--quiet", "--", "true")  # by the next agent, which has the daemon then
    assert not is_alive(pid)

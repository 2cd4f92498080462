"""C3 and F7: the agent starts, supervises and ends the MPS control daemon of its node."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.kits.clock import SystemClock
from windlass.kits.processes import is_alive
from windlass.node.devices import mps, mps_control
from windlass.node.devices.mps_control import SIMULATED, MpsControl, control_of, split_option, stop_recorded


@pytest.fixture
def control(tmp_path: Path) -> Iterator[MpsControl]:
    made = MpsControl(tmp_path, os.environ | {"CUDA_MPS_LOG_DIRECTORY": str(tmp_path / "logs")}, SIMULATED)
    yield made
    made.stop()


def pid_of(control: MpsControl) -> int:
    pid = mps.pid_of(Path(control.environment[mps.PIPE_DIRECTORY]))
    assert pid > 1  # a signal to process 0 would end the tests themselves
    return pid


def wait_gone(pid: int) -> None:
    clock, deadline = SystemClock(), SystemClock().monotonic() + 30
    while is_alive(pid) and clock.monotonic() < deadline:
        clock.pause(0.02)
    assert not is_alive(pid)


def test_c3_daemon_is_started_once_and_ended(control: MpsControl, tmp_path: Path) -> None:
    daemon = control.ensure()
    assert daemon.runs
    assert (daemon.directory, daemon.log_directory) == (str(tmp_path / "mps/pipe"), str(tmp_path / "logs"))
    assert mps.may_connect(daemon)
    pid = pid_of(control)
    assert control.ensure() == daemon
    assert pid_of(control) == pid
    later = MpsControl(tmp_path, control.environment, SIMULATED)  # another agent, after a crash
    assert later.ensure() == daemon
    later.stop()
    wait_gone(pid)
    assert not mps.find_daemon(control.environment).runs


def test_check_after_the_end_does_not_start_the_daemon_again(control: MpsControl) -> None:
    control.ensure()
    control.stop()
    assert not control.ensure().runs


def test_daemon_that_died_is_started_again(control: MpsControl) -> None:
    control.ensure()
    first = pid_of(control)
    os.kill(first, signal.SIGKILL)
    wait_gone(first)
    assert control.ensure().runs
    assert pid_of(control) != first


def test_daemon_of_the_administrator_is_used_and_not_ended(control: MpsControl, tmp_path: Path) -> None:
    control.ensure()
    pid = pid_of(control)
    other = tmp_path / "agent"
    other.mkdir()
    used = MpsControl(other, control.environment, ("/no/such/program",))
    assert used.ensure().runs
    used.stop()
    assert is_alive(pid)


def test_problems_are_reported(tmp_path: Path) -> None:
    missing = MpsControl(tmp_path, {}, ("/no/such/nvidia-cuda-mps-control",))
    assert "is not installed" in missing.ensure().problem
    failing = MpsControl(tmp_path, os.environ, (sys.executable, "-c", "import sys; sys.exit('no GPU')"))
    assert "failed: no GPU" in failing.ensure().problem
    assert stop_recorded(tmp_path) == []


def test_daemon_that_does_not_answer_is_killed(control: MpsControl, tmp_path: Path) -> None:
    control.ensure()
    pid = pid_of(control)
    record = json.loads((tmp_path / mps_control.RECORD).read_text())
    (tmp_path / mps_control.RECORD).write_text(json.dumps(record | {"program": ["/no/such/program"]}))
    assert stop_recorded(tmp_path) == [pid]
    wait_gone(pid)


def test_options() -> None:
    assert split_option("auto+mps") == ("auto", True)
    assert split_option("auto:dynamic+mps") == ("auto:dynamic", True)
    assert split_option("auto") == ("auto", False)
    assert split_option("simulated:1xT4+mps,1xT4") == ("simulated:1xT4+mps,1xT4", True)
    assert control_of(Path("/x"), "simulated:1xT4", {}) is None
    assert control_of(Path("/x"), "none", {}) is None


def test_long_state_directories_do_not_exceed_the_path_of_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    directory = mps_control.environment_of(deep, {})[mps.PIPE_DIRECTORY]
    assert len(directory) < 100
    assert directory == mps_control.environment_of(deep, {})[mps.PIPE_DIRECTORY]

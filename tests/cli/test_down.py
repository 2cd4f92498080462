"""``windlass down`` at the same time as another one, and without its lock file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.cli import main
from windlass.cli.invocation import InvocationContext
from windlass.kits import processes
from windlass.kits.clock import FakeClock
from windlass.kits.files import FileLock
from windlass.kits.state import StateFolder


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    return folder


def down(state: StateFolder, clock: FakeClock | None = None, *flags: str) -> int:
    arguments = ["--state", str(state.path), "down", *flags]
    return main.run(arguments, InvocationContext(clock=clock or FakeClock()))


class Later(FakeClock):
    """Clock that calls ``action`` at the second pause."""

    def __init__(self, action) -> None:
        super().__init__()
        self.action = action
        self.pauses = 0

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        self.pauses += 1
        if self.pauses == 2:
            self.action()


def test_control_plane_whose_lock_file_was_removed_is_stopped(state, capsys):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as supervisor:
        ticks = processes.start_time(supervisor.pid)
        state.write_supervisor({"pid": supervisor.pid, "startTicks": ticks})
        assert down(state) == 0
        assert capsys.readouterr().out.startswith("stopped the control plane and all that it ran\n")
        assert supervisor.wait() != 0


def test_process_that_only_has_the_pid_of_the_supervisor_is_left_alone(state, capsys):
    state.write_supervisor({"pid": os.getpid(), "startTicks": 1})
    assert down(state) == 0
    assert capsys.readouterr().out.startswith("no control plane runs on")


def test_another_down_is_waited_for(state, capsys):
    state.write_supervisor({"port": 7443, "stopped": "2026-01-01T12:00:00Z"})
    lock = FileLock(state.lock)
    assert lock.acquire()
    assert down(state, Later(lock.release)) == 0
    assert capsys.readouterr().out.startswith("stopped the control plane and all that it ran\n")


def test_another_down_may_remove_the_directory(state, capsys):
    state.write_supervisor({"port": 7443, "stopped": "2026-01-01T12:00:00Z"})
    lock = FileLock(state.lock)
    assert lock.acquire()

    def purge() -> None:
        for file in (state.lock, state.supervisor):
            file.unlink(missing_ok=True)
        for directory in sorted(state.path.rglob("*"), reverse=True):
            directory.rmdir() if directory.is_dir() else directory.unlink()
        state.path.rmdir()
        lock.release()

    assert down(state, Later(purge)) == 0
    assert f"removed {state.path}" in capsys.readouterr().out


def test_control_plane_that_was_started_meanwhile_is_named(state, capsys):
    state.write_supervisor({"port": 7443, "stopped": "2026-01-01T12:00:00Z"})
    lock = FileLock(state.lock)
    assert lock.acquire()
    own = {"pid": os.getpid(), "startTicks": processes.start_time(os.getpid())}
    assert down(state, Later(lambda: state.write_supervisor(own))) == 5
    told = capsys.readouterr().err
    assert "another control plane was started on this state directory in the meantime" in told
    assert f"is held by pid {os.getpid()}" in told
    lock.release()

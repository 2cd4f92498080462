"""Start, supervision and end of the MPS control daemon of this node.

With ``--gpus …+mps`` the agent runs ``nvidia-cuda-mps-control -d`` in the directories of
``CUDA_MPS_PIPE_DIRECTORY`` and ``CUDA_MPS_LOG_DIRECTORY`` of its own environment, else in
its state directory. A daemon that runs there already is used, and not ended. The daemon
outlives a killed agent, as its clients do. ``windlass down`` ends it.

For simulated GPUs :mod:`windlass.node.devices.simulated_mps` takes the place of the
program.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from windlass.kits.clock import SystemClock
from windlass.kits.files import unlink_if_exists, write_atomic
from windlass.node.devices import mps
from windlass.node.runtime import attempt_files

PROGRAM = "nvidia-cuda-mps-control"
SIMULATED = (sys.executable, "-m", "windlass.node.devices.simulated_mps")
RECORD = "mps.json"
"""File with the identity of a daemon that the agent has started."""
SUFFIX = "+mps"
_MAX_SOCKET_PATH = 100
"""Maximum length of the path of a socket in bytes, with a reserve."""
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05

_log = logging.getLogger("windlass.node")


def split_option(gpus: str) -> tuple[str, bool]:
    """Split ``auto+mps`` into ``auto`` and True. Simulated devices keep their suffix."""
    if gpus.startswith("simulated:"):
        return gpus, SUFFIX in gpus
    return gpus.removesuffix(SUFFIX), gpus.endswith(SUFFIX)


def control_of(root: Path, gpus: str, environment: Mapping[str, str]) -> MpsControl | None:
    """Return the supervisor of the daemon; ``None`` if the option ``gpus`` does not ask for one."""
    source, wanted = split_option(gpus)
    if not wanted:
        return None
    return MpsControl(root, environment, SIMULATED if source.startswith("simulated:") else (PROGRAM,))


def environment_of(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the daemon: the directories of the caller, else own ones."""
    base = root / "mps"
    if len(str(base / "pipe" / "control").encode()) > _MAX_SOCKET_PATH:
        digest = hashlib.sha256(str(root).encode()).hexdigest()[:10]
        base = Path(tempfile.gettempdir()) / f"windlass-mps-{digest}"
    pipe = environment.get(mps.PIPE_DIRECTORY) or str(base / "pipe")
    log = environment.get(mps.LOG_DIRECTORY) or str(base / "log")
    return {**environment, mps.PIPE_DIRECTORY: pipe, mps.LOG_DIRECTORY: log}


class MpsControl:
    """Supervisor of the daemon. All methods block, so they run in a thread."""

    def __init__(
        self, root: Path, environment: Mapping[str, str], program: Sequence[str] = (PROGRAM,)
    ) -> None:
        self._root = root
        self.environment = environment_of(root, environment)
        self._program = tuple(program)
        self._problem = ""
        self._lock = threading.Lock()
        self._stopped = False

    def ensure(self) -> mps.Daemon:
        """Return the running daemon. It is started if there is none, unless :meth:`stop` was called."""
        with self._lock:
            found = mps.find_daemon(self.environment)
            return found if found.runs or self._stopped else self._started()

    def _started(self) -> mps.Daemon:
        problem = self._start()
        found = mps.find_daemon(self.environment)
        if not found.runs:
            found = mps.Daemon(problem=problem or f"the MPS control daemon did not start: {found.problem}")
        if found.problem != self._problem:
            self._problem = found.problem
            _log.log(
                logging.WARNING if found.problem else logging.INFO,
                "MPS: %s",
                found.problem or f"started the control daemon in {found.directory}",
            )
        return found

    def _start(self) -> str:
        """Start the daemon. Return what went wrong, or an empty text."""
        pipe = Path(self.environment[mps.PIPE_DIRECTORY])
        try:
            for directory in (pipe, Path(self.environment[mps.LOG_DIRECTORY])):
                directory.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                [*self._program, "-d"],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_START_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            return f"{self._program[0]} is not installed, so GPU shares are not enforced"
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self._program[0]} could not be started: {error}"
        if done.returncode != 0:
            why = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
            return f"{self._program[0]} -d failed: {why}"
        clock = SystemClock()
        deadline = clock.monotonic() + _START_SECONDS
        while not mps.find_daemon(self.environment).runs and clock.monotonic() < deadline:
            clock.pause(_POLL_SECONDS)
        self._record(pipe)
        return ""

    def _record(self, pipe: Path) -> None:
        pid = mps.pid_of(pipe)
        identity = attempt_files.identity(pid) if pid else {}
        directories = {name: self.environment[name] for name in (mps.PIPE_DIRECTORY, mps.LOG_DIRECTORY)}
        record = {**identity, "environment": directories, "program": list(self._program)}
        write_atomic(self._root / RECORD, json.dumps(record))

    def stop(self) -> None:
        """End the daemon for good, if this agent or an earlier one has started it."""
        with self._lock:
            self._stopped = True
            stop_recorded(self._root)


def stop_recorded(root: Path) -> list[int]:
    """End the daemon that the agent of this directory has started. Return its pid, if it was running."""
    record = attempt_files.read(str(root), RECORD)
    unlink_if_exists(root / RECORD)
    if record is None or "pid" not in record or not attempt_files.is_running(record):
        return []
    try:
        subprocess.run(
            list(record["program"]),
            env={**os.environ, **record["environment"]},
            input="quit\n",
            capture_output=True,
            text=True,
            timeout=_STOP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.warning("MPS: the control daemon does not answer: %s", error)
    clock = SystemClock()
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        if number:
            attempt_files.signal(record, number)
        deadline = clock.monotonic() + _STOP_SECONDS
        while attempt_files.is_running(record) and clock.monotonic() < deadline:
            clock.pause(_POLL_SECONDS)
        if not attempt_files.is_running(record):
            break
    return [int(record["pid"])]

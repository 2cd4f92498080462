"""MPS control daemon of this machine, and the environment of its clients.

The administrator runs the daemon (``nvidia-cuda-mps-control -d``), or the agent does
(:mod:`windlass.node.devices.mps_control`). With it the driver enforces the limits of a
shared device, without it they are only accounted.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from windlass.kits.processes import is_alive

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
LOG_DIRECTORY = "CUDA_MPS_LOG_DIRECTORY"
MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
DEFAULT_DIRECTORY = "/tmp/nvidia-mps"
_PID_FILE = "nvidia-cuda-mps-control.pid"
_CONTROL = "control"
_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """MPS control daemon: its pipe directory, or the ``problem`` that there is none.

    ``log_directory``: empty if unknown.
    """

    directory: str = ""
    problem: str = ""
    log_directory: str = ""

    @property
    def runs(self) -> bool:
        return bool(self.directory)


def find_daemon(environment: Mapping[str, str]) -> Daemon:
    """Return the daemon of ``CUDA_MPS_PIPE_DIRECTORY``, or of the default directory."""
    log = environment.get(LOG_DIRECTORY) or ""
    directory = Path(environment.get(PIPE_DIRECTORY) or DEFAULT_DIRECTORY)
    control = directory / _CONTROL
    try:
        mode = control.stat().st_mode
    except OSError:
        return Daemon(problem=f"no MPS control daemon is running: {control} does not exist")
    pid = pid_of(directory)
    if pid and _runs(pid):
        return Daemon(str(directory), log_directory=log)
    if stat.S_ISSOCK(mode) and _answers(str(control)):
        return Daemon(str(directory), log_directory=log)
    return Daemon(problem=f"the MPS control daemon of {directory} is no longer running")


def pid_of(directory: Path) -> int:
    """Return the pid that the daemon of a pipe directory has written; 0 without one."""
    try:
        words = (directory / _PID_FILE).read_text().split()
    except OSError:
        return 0
    return int(words[0]) if words and words[0].isdecimal() else 0


def _runs(pid: int) -> bool:
    """Return whether the process is an MPS control daemon: the pid may have been reused."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False
    return name.startswith("nvidia-cuda-mps") and is_alive(pid)  # a zombie has a name, too


def _answers(path: str) -> bool:
    """Return whether a process listens on the socket.

    This finds a daemon of another PID namespace.
    """
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.settimeout(_TIMEOUT_SECONDS)
            try:
                probe.connect(path)
                return True
            except OSError as error:
                if error.errno != errno.EPROTOTYPE:
                    return False
    return False


def client_environment(daemon: Daemon, shares: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Return the environment that limits an MPS client.

    ``shares``: thousandths of compute and MiB of each visible device, in order. 0 is no limit.
    Devices are numbered as the client sees them, since limits by UUID are known not to be applied.
    The thread percentage is one for all devices of a client: the smallest share.
    """
    variables = {PIPE_DIRECTORY: daemon.directory}
    if daemon.log_directory:
        variables[LOG_DIRECTORY] = daemon.log_directory
    limits = [f"{position}={_amount(mib)}" for position, (_, mib) in enumerate(shares) if mib]
    if limits:
        variables[MEMORY_LIMIT] = ",".join(limits)
    parts = [milli for milli, _ in shares if milli]
    if parts:
        variables[THREAD_PERCENTAGE] = f"{min(parts) / 10:g}"
    return variables


def _amount(mib: int) -> str:
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


def may_connect(daemon: Daemon) -> bool:
    """Return whether this user may write to the daemon's socket, as its clients must."""
    return daemon.runs and os.access(os.path.join(daemon.directory, _CONTROL), os.W_OK)

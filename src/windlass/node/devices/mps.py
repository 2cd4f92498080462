"""True if an MPS control daemon serves this machine's devices, and what its clients are told.

The daemon is the administrator's (``nvidia-cuda-mps-control -d``): the agent neither starts nor stops it. With
it, the limits of a shared device are enforced by the driver; without it they are only accounted.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
DEFAULT_DIRECTORY = "/tmp/nvidia-mps"
_PID_FILE = "nvidia-cuda-mps-control.pid"
_CONTROL = "control"
_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running control daemon's pipe directory; ``problem`` says why there is none."""

    directory: str = ""
    problem: str = ""

    @property
    def runs(self) -> bool:
        return bool(self.directory)


def find_daemon(environment: Mapping[str, str]) -> Daemon:
    """The daemon of ``CUDA_MPS_PIPE_DIRECTORY``, or of the default directory."""
    folder = Path(environment.get(PIPE_DIRECTORY) or DEFAULT_DIRECTORY)
    control = folder / _CONTROL
    try:
        mode = control.stat().st_mode
    except OSError:
        return Daemon(problem=f"no MPS control daemon runs ({control} is not there)")
    pid = _pid(folder)
    if pid and _runs(pid):
        return Daemon(str(folder))
    if stat.S_ISSOCK(mode) and _answers(str(control)):
        return Daemon(str(folder))
    return Daemon(problem=f"the MPS control daemon of {folder} does not run any more")


def _pid(folder: Path) -> int:
    try:
        words = (folder / _PID_FILE).read_text().split()
    except OSError:
        return 0
    return int(words[0]) if words and words[0].isdecimal() else 0


def _runs(pid: int) -> bool:
    """Return whether a process of that number is an MPS control daemon (the pid may have been used again)."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False
    return name.startswith("nvidia-cuda-mps")


def _answers(path: str) -> bool:
    """Return whether somebody listens on the socket; a daemon of another PID namespace is found so."""
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
    """What holds a client to its shares: (thousandths of compute, MiB) of each device it sees, in their order.

    Devices are named by the numbers they have for the client, since limits by UUID are known not to be applied.
    0: no limit of that kind. The percentage of threads is one for all devices of a client: its smallest share.
    """
    found = {PIPE_DIRECTORY: daemon.directory}
    limits = [f"{place}={_amount(mib)}" for place, (_, mib) in enumerate(shares) if mib]
    if limits:
        found[MEMORY_LIMIT] = ",".join(limits)
    parts = [milli for milli, _ in shares if milli]
    if parts:
        found[THREAD_PERCENTAGE] = f"{min(parts) / 10:g}"
    return found


def _amount(mib: int) -> str:
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


def may_connect(daemon: Daemon) -> bool:
    """Return whether this user may write to the daemon's socket, as its clients must."""
    return daemon.runs and os.access(os.path.join(daemon.directory, _CONTROL), os.W_OK)

"""Stand-in for ``nvidia-cuda-mps-control`` on simulated GPUs.

``-d`` starts a daemon that listens on the socket ``control`` of
``CUDA_MPS_PIPE_DIRECTORY``. Without it, the command on standard input (``quit``) is sent
to the daemon. It limits nothing, since nothing runs on a simulated GPU.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

from windlass.kits.files import write_atomic
from windlass.kits.processes import set_name
from windlass.node.devices import mps

NAME = "nvidia-cuda-mps-control"


def main(arguments: list[str]) -> int:
    """Run as the program does. Return the exit status."""
    pipe = Path(os.environ[mps.PIPE_DIRECTORY])
    if arguments == ["-d"]:
        return _start(pipe)
    if sys.stdin.read().strip() == "quit" and (pid := mps.pid_of(pipe)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return 0


def _start(pipe: Path) -> int:
    """Start the daemon, and return once its pid file is written."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control = pipe / "control"
    control.unlink(missing_ok=True)
    listener.bind(str(control))
    listener.listen()
    started, report = os.pipe()
    if os.fork():
        os.close(report)
        os.read(started, 1)
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    set_name(NAME)
    log = os.open(
        os.path.join(os.environ[mps.LOG_DIRECTORY], "control.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND
    )
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    write_atomic(pipe / f"{NAME}.pid", f"{os.getpid()}\n", 0o644, durable=False)
    os.close(report)
    print("simulated MPS control daemon started", flush=True)
    while True:
        connection, _ = listener.accept()
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

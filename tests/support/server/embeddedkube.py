"""The embedded server in a process of its own, for one test session."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from realkube import end, spawn

from windlass.api.resources import QUEUES
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.kubeconfig import load
from windlass.kits.state import StateFolder


class EmbeddedKube:
    """``start()`` … ``stop()``. ``controllers`` runs garbage collection, namespaces and the like too."""

    def __init__(self, folder: Path, *, controllers: bool = True) -> None:
        self.state = StateFolder(folder)
        self._controllers = controllers
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder.with_name(folder.name + ".log")

    def start(self) -> None:
        """Raises ``RuntimeError`` with the end of its log when it does not come up."""
        (self.state.path / "ready").unlink(missing_ok=True)
        program = Path(__file__).with_name("embedded_server.py")
        extra = [] if self._controllers else ["--bare"]
        self._process = spawn(
            [sys.executable, "-X", "faulthandler", str(program), str(self.state.path), *extra], self.log
        )
        deadline = time.monotonic() + 120
        while not (self.state.path / "ready").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the embedded server did not start\n{self.tail()}")
            time.sleep(0.02)
        if self._controllers:
            self._wait_for_queue(deadline)

    def _wait_for_queue(self, deadline: float) -> None:
        """The queue controller makes the first queue a moment after the server is ready."""
        with BlockingClient(self.connection) as client:
            while client.find(QUEUES, "default") is None:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"there is no default queue\n{self.tail()}")
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            end(self._process)
            self._process = None

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def connection(self) -> Connection:
        """The administrator's, over TLS."""
        return load(self.state.kubeconfig)

    @property
    def kubeconfig(self) -> Path:
        return self.state.kubeconfig

    def forget_history(self) -> None:
        """Make every resourceVersion of the past too old."""
        mark = self.state.path / "forgotten"
        mark.unlink(missing_ok=True)
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while not mark.exists():
            if time.monotonic() > deadline:
                raise RuntimeError(f"history was not forgotten\n{self.tail()}")
            time.sleep(0.01)

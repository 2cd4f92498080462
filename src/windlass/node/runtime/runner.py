"""Runners: they start the attempts of containers.

:class:`ProcessRunner` starts a shim per attempt. Runners for container engines fit the same
protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from windlass.kits.files import write_atomic
from windlass.node.lifecycle.events import Exit
from windlass.node.runtime import attempt_files
from windlass.node.runtime.helpers import ForkServer, read_to_end, wait_exit
from windlass.node.runtime.start_errors import start_error

UNKNOWN_REASON = "ContainerStatusUnknown"
UNKNOWN_MESSAGE = "The container could not be located when the agent came back; how it ended is not known"


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    """Attempt of a container. ``directory`` exists and belongs to this attempt only.

    ``record``: what the shim reads (:mod:`windlass.node.runtime.shim`).
    """

    directory: Path
    record: Mapping[str, Any]


class Handle(Protocol):
    """Handle of a running attempt."""

    async def started(self) -> float | Exit:
        """Wait until the command runs. Return the Unix time of its start, or the failure of the start."""
        ...

    async def ended(self) -> Exit:
        """Wait until no process of the attempt is left."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. May be repeated with a shorter one."""
        ...


class Runner(Protocol):
    async def start(self, spec: AttemptSpec) -> Handle:
        """Start an attempt. Raises ``OSError`` if nothing could be started."""
        ...

    def adopt(self, directory: Path) -> Handle | None:
        """Return the handle of an attempt of an earlier agent, running or ended.

        None: the attempt was never claimed and may be started.
        """
        ...


class ProcessRunner:
    """Runs attempts as processes of this machine, each under a shim."""

    def __init__(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server

    async def start(self, spec: AttemptSpec) -> Handle:
        write_atomic(spec.directory / attempt_files.SPEC, attempt_files.encode(spec.record), durable=False)
        errors = spec.directory / "shim.err"
        pid, reader = self._fork_server.start_helper(
            "windlass.node.runtime.shim", str(spec.directory), errors=errors
        )
        return ProcessHandle(spec.directory, attempt_files.identity(pid), reader)

    def adopt(self, directory: Path) -> Handle | None:
        claim = attempt_files.read(str(directory), attempt_files.CLAIM)
        if claim is None and (directory / attempt_files.CLAIM).exists():
            # Truncated by a crash of the machine: it had been claimed.
            claim = {"pid": 0, "start_time": 0, "boot_id": ""}
        if claim is None:
            return None
        return ProcessHandle(directory, claim, None)


class ProcessHandle:
    """Handle that reads the files of an attempt. This agent or an earlier one started its shim."""

    def __init__(self, directory: Path, shim: Mapping[str, Any], reader: int | None) -> None:
        self._directory = str(directory)
        self._shim = dict(shim)
        self._reader = reader

    async def started(self) -> float | Exit:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await read_to_end(reader)
            claim = attempt_files.read(self._directory, attempt_files.CLAIM)
            if claim is None:
                return self._start_failure()
            self._shim = claim  # possibly of a shim that an earlier agent started
        while True:
            started = attempt_files.started_at(self._directory)
            if started is not None:
                return started
            if attempt_files.read(
                self._directory, attempt_files.EXIT
            ) is not None or not attempt_files.is_running(self._shim):
                return await self.ended()
            await asyncio.sleep(0.02)  # adopted between claim and exec

    async def ended(self) -> Exit:
        if attempt_files.is_running(self._shim):
            await wait_exit(self._shim["pid"], self._shim["start_time"])
        record = attempt_files.read(self._directory, attempt_files.EXIT)
        started_at = attempt_files.started_at(self._directory) or 0.0
        if record is None:
            attempt_files.kill_leftovers(self._directory)
            return Exit(137, UNKNOWN_REASON, message=UNKNOWN_MESSAGE, started_at=started_at)
        return exit_of(record, started_at, attempt_files.read(self._directory, attempt_files.SPEC) or {})

    def _start_failure(self) -> Exit:
        try:
            why = (Path(self._directory) / "shim.err").read_text(errors="replace").strip()[-500:]
        except OSError:
            why = ""
        return Exit(128, "StartError", message=f"the supervisor of the container did not start: {why}")

    def stop(self, grace_seconds: float) -> None:
        # On error (removed directory, full disk) the shim uses its own grace period.
        with contextlib.suppress(OSError):
            write_atomic(Path(self._directory) / attempt_files.STOP, f"{grace_seconds:.3f}", durable=False)
        attempt_files.signal(self._shim, signal.SIGTERM)


def exit_of(record: Mapping[str, Any], started_at: float, spec: Mapping[str, Any]) -> Exit:
    """Return the end of a container as in Kubernetes, from the shim's exit record."""
    finished = record["finished_at_ns"] / 1e9
    started_at = started_at or record.get("started_at_ns", 0) / 1e9
    if "start_error" in record:
        reason, message = start_error(record["start_error"], spec)
        return Exit(128, reason, message=message, started_at=started_at or finished, finished_at=finished)
    code = int(record["code"])
    reason = "OOMKilled" if record.get("oom") else "Completed" if code == 0 else "Error"
    if record.get("oom") and code == 0:
        code = 137
    return Exit(code, reason, int(record["signal"]), "", finished, started_at or finished)

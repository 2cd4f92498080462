"""Rank above 0 of a worker of several pods: runs the job's program with its rank until rank 0 ends.

Rank 0 leases and commits the rows. The controller deletes the other pods when the job has
ended, and the whole worker when one of its pods fails.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from windlass.items.runtimes.base import PEER_SECONDS, SetupError, WorkerStopped
from windlass.items.spec import BatchSpec
from windlass.kits.clock import SystemClock

END_SECONDS = 10.0
"""Time that the program has to end after the end of its input (seconds)."""
FAILED_SECONDS = 2 * PEER_SECONDS
"""Time that a rank with a failed program waits for the end of its worker (seconds).

Rank 0 waits for a shorter time, so a program that failed because of rank 0 is not blamed.
"""
STOPPED = 143
"""Exit code of a rank that was told to end."""
_SIGNAL_CODES = 128
_POLL_SECONDS = 0.25


class Shard:
    """Program of one rank."""

    def __init__(self, batch: BatchSpec, environment: Mapping[str, str]) -> None:
        self._batch, self._environment = batch, environment
        self._clock = SystemClock()
        self._stopping = self._interruptible = False

    def stop(self) -> None:
        """End soon: called by the handler of SIGTERM, in the main thread."""
        self._stopping = True
        if self._interruptible:
            raise WorkerStopped

    def run(self) -> int:
        """Run the program; return the exit code of the process. Raises :class:`SetupError`."""
        name = self._batch.runtime.name
        try:
            if name == "process":
                return self._command()
            if name == "python":
                return self._follow()
        except WorkerStopped:
            return STOPPED
        self._wait()  # containers behind the first one are the other ranks of a server
        return STOPPED

    def _wait(self, seconds: float = float("inf")) -> bool:
        """Wait until this rank is told to end, at most ``seconds``; return whether it was."""
        deadline = self._clock.monotonic() + seconds
        while not self._stopping and self._clock.monotonic() < deadline:
            self._clock.pause(_POLL_SECONDS)
        return self._stopping

    def _command(self) -> int:
        runtime = self._batch.runtime
        try:
            process = subprocess.Popen(
                runtime.command,
                stdin=subprocess.PIPE,
                env={**self._environment, "PYTHONUNBUFFERED": "1"},
                cwd=runtime.working_dir or None,
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"{runtime.command[0]} cannot be started: {error.strerror}") from None
        while process.poll() is None and not self._stopping:
            self._clock.pause(_POLL_SECONDS)
        if self._stopping:
            _end(process)
            return STOPPED
        _close(process)
        code = process.returncode
        if code == 0:
            self._wait()
            return STOPPED
        if code < 0:
            return _SIGNAL_CODES - code
        return self._failed(code, f"the command ended with exit code {code}")

    def _follow(self) -> int:
        """Set a class up and call its method ``follow()``. A function is imported only."""
        from windlass.items.runtimes.python_function import load

        runtime = self._batch.runtime
        self._interruptible = True
        target = load(runtime.function, runtime.working_dir)
        instance: Any = None
        try:
            if inspect.isclass(target):
                instance = target(**runtime.parameters)
                for name in ("setup", "follow"):
                    if callable(method := getattr(instance, name, None)):
                        method()
        except Exception as error:
            traceback.print_exc()
            return self._failed(1, f"{runtime.function} failed: {type(error).__name__}: {error}")
        self._wait()
        return STOPPED

    def _failed(self, code: int, words: str) -> int:
        """Return the exit code of a failed program, unless another rank was first."""
        if self._wait(FAILED_SECONDS):
            return STOPPED
        print(f"windlass: rank {self._environment.get('RANK', '')}: {words}", file=sys.stderr)
        return code


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the input of a command; end it with all its processes if it stays."""
    _close(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()

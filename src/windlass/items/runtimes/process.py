"""Runtime ``process``: a command that reads one JSON object a line, and writes one a line.

The command is started once and gets the rows of all batches. A command that holds its
answers back until the end of its input is recognised: it then runs once for each batch.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections import deque
from collections.abc import Iterator

from windlass.items.runtimes.answers import Answers
from windlass.items.runtimes.base import (
    LeasedRow,
    ReplicaEnded,
    RowOutcome,
    RuntimeContext,
    SetupError,
    WorkBatch,
    WorkerStopped,
)
from windlass.items.runtimes.error_lines import ErrorLines
from windlass.items.spec import SHARD

QUIET_SECONDS = 5.0
"""Time without any answer after which the input of a new command is closed (seconds).

A command that holds its answers back then writes them.
"""
PATIENT_SECONDS = 30.0
"""Minimum of this time for a command that has answered before the end of its input."""
MAX_QUIET_SECONDS = 600.0
"""Maximum of this time."""
END_SECONDS = 10.0
"""Time that a command has to end after the end of its input (seconds)."""
SOON_SECONDS = 1.0
"""Maximum time from the end of the input to the first answer of a command that held it back."""
HELD = 2
"""Number of inputs in a row that were answered only after their end, to run once for each batch."""
MAX_DELAY_SECONDS = 5.0
"""Maximum delay before a command is started that has ended without an answer (seconds)."""
MAX_LINE_BYTES = 64 * 2**20
"""Maximum size of an answer in bytes."""


class ProcessRuntime:
    """Feeds rows to a command. Answers are expected in the order of the rows (:mod:`.answers`)."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self._timeout = context.batch.items.timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: ErrorLines | None = None
        self._input = self._rest = b""
        self._quiet = QUIET_SECONDS
        self._held = 0
        self._crashes = 0
        self._answers = Answers()
        self._leads = SHARD in context.environment
        self._spawned = self._closed = 0.0

    def setup(self) -> None:
        self._start()

    def teardown(self) -> None:
        """Close the input and wait for the end of the command."""
        process, self._process = self._process, None
        if process is None:
            return
        _close(process)
        _reap(process, END_SECONDS)
        if self._errors is not None:
            self._errors.last()  # all of it is passed on

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        waiting: deque[LeasedRow] = deque()
        items = batch.left()
        self._answers.begin_batch()
        try:
            yield from self._exchange(items, waiting)
        except WorkerStopped:
            if self._process is not None:
                _kill(self._process)
                _reap(self._process)
                self._process = None
            raise

    def _exchange(self, items: Iterator[LeasedRow], waiting: deque[LeasedRow]) -> Iterator[RowOutcome]:
        """Feed items and yield outcomes. ``waiting``: items that were fed without an answer."""
        more = True
        moved = self._context.monotonic()
        if self._process is not None:
            for line in self._pump(moved, at_once=True)[0]:  # written after the last answer of all rows
                self._answers.take(line, waiting, 0.0)
        while True:
            if self._process is None:
                self._restart(waiting)
                moved = self._context.monotonic()
            while more and len(self._input) < 1 << 16:
                item = next(items, None)
                more = item is not None
                if item is not None:
                    if not waiting:
                        moved = self._context.monotonic()
                    waiting.append(item)
                    self._input += _line(item)
            if not waiting and not more:
                self._end_batch()
                return
            self._close_input(more, moved)
            lines, ended = self._pump(moved)
            now = self._context.monotonic()
            for line in lines:
                outcomes = self._answers.take(line, waiting, now - moved)
                if outcomes:
                    self._learn(now, now - moved)
                    moved = now
                yield from outcomes
                if self._answers.out_of_step:
                    self._end_process()
                    break
                self._crashes = 0 if outcomes else self._crashes
            if self._process is None:
                continue
            late = bool(self._timeout and waiting and now - moved > self._limit(len(waiting)))
            if ended or late:
                yield from self._ended(waiting, late, now - moved)
                moved = self._context.monotonic()

    def _end_process(self) -> None:
        """End a command that is out of step: the rows that wait are given to a new one."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
            _reap(process)
        self._crashes += 1

    def _limit(self, waiting: int) -> float:
        """Return the maximum time without an answer: a command that holds back has that of all rows."""
        return self._timeout * (waiting if self._held else 1)

    def _ended(self, waiting: deque[LeasedRow], late: bool, seconds: float) -> Iterator[RowOutcome]:
        process, self._process = self._process, None
        assert process is not None
        if late:
            _kill(process)
        code = _reap(process)
        if not waiting:
            return
        if late:
            message = f"no answer within items.timeoutSeconds ({self._timeout:g} s)"
            yield RowOutcome(waiting.popleft().number, None, seconds, "program", "Timeout", message)
            return
        self._crashes += 1
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = self._errors.last() if self._errors is not None else ""
        message = f"the command ended with {how} before it answered{f': {last}' if last else ''}"
        yield RowOutcome(waiting.popleft().number, None, seconds, "program", "ProcessExited", message)

    def _close_input(self, more: bool, moved: float) -> None:
        """Close the input of a command that may hold its answers back."""
        if more or self._input or self._leads or not self._open_input():
            return  # other ranks belong to a command that leads: it does not start again alone
        now = self._context.monotonic()
        if self._held >= HELD or now - moved > self._quiet:
            assert self._process is not None
            _close(self._process)
            self._closed = now

    def _learn(self, now: float, gap: float) -> None:
        """Adapt the patience to an answer that came ``gap`` seconds after the one before."""
        if self._open_input():
            self._held = 0
            self._quiet = min(MAX_QUIET_SECONDS, max(self._quiet, PATIENT_SECONDS, 10 * gap))
        elif self._closed and self._held < HELD:
            self._held = self._held + 1 if now - self._closed < SOON_SECONDS else 0
            self._quiet = min(MAX_QUIET_SECONDS, max(self._quiet, 2 * (now - self._spawned) + 1))
        self._closed = 0.0

    def _open_input(self) -> bool:
        return (
            self._process is not None and self._process.stdin is not None and not self._process.stdin.closed
        )

    def _end_batch(self) -> None:
        """End a process with a closed input after its last answer."""
        if self._process is not None and not self._open_input():
            process, self._process = self._process, None
            _reap(process, END_SECONDS)

    def _pump(self, moved: float, *, at_once: bool = False) -> tuple[list[bytes], bool]:
        """Write and read once. Return complete lines, and whether the output has ended.

        ``at_once``: do not wait for output.
        """
        process = self._process
        assert process is not None
        assert process.stdout is not None
        out = process.stdout.fileno()
        poll = select.poll()
        poll.register(out, select.POLLIN)
        if self._input and self._open_input():
            assert process.stdin is not None
            poll.register(process.stdin.fileno(), select.POLLOUT)
        wait = max(0.05, min(1.0, self._quiet / 5))
        if self._timeout:
            wait = min(wait, max(0.01, moved + self._timeout - self._context.monotonic()), self._timeout)
        for descriptor, _ in poll.poll(0 if at_once else wait * 1000):
            if descriptor != out:
                self._feed(descriptor)
                continue
            try:
                data = os.read(out, 1 << 18)
            except BlockingIOError:
                continue
            if not data:
                return [], True
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MAX_LINE_BYTES:
                _kill(process)
            return lines, False
        return [], False

    def _feed(self, descriptor: int) -> None:
        try:
            self._input = self._input[os.write(descriptor, self._input[: 1 << 16]) :]
        except BlockingIOError:
            return
        except OSError:
            self._input = b""  # the command has ended, which its output will tell

    def _restart(self, waiting: deque[LeasedRow]) -> None:
        """Start the command again, and feed it the rows that were not answered."""
        if self._leads:
            raise ReplicaEnded("the command has ended: all ranks of the worker start again")
        if self._crashes > 1:
            self._context.pause(min(MAX_DELAY_SECONDS, 0.05 * 2 ** min(self._crashes, 10)))
        self._start()
        self._input = b"".join(_line(item) for item in waiting)

    def _start(self) -> None:
        runtime = self._context.batch.runtime
        environment = {**self._context.environment, "PYTHONUNBUFFERED": "1"}
        try:
            self._process = subprocess.Popen(
                runtime.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                cwd=runtime.working_dir or None,
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"{runtime.command[0]} cannot be started: {error.strerror}") from None
        assert self._process.stderr is not None
        self._errors = ErrorLines(self._process.stderr)
        self._input = self._rest = b""
        self._answers.begin_process()
        self._spawned, self._closed = self._context.monotonic(), 0.0
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)


def _line(item: LeasedRow) -> bytes:
    row = {**item.row, "prompt": item.prompt} if item.prompt else item.row
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _reap(process: subprocess.Popen[bytes], seconds: float | None = None) -> int:
    """Wait for the end of a command, which is killed after ``seconds``, and close its pipes."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        code = process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    return code


def _close(process: subprocess.Popen[bytes]) -> None:
    try:
        if process.stdin is not None:
            process.stdin.close()
    except OSError:
        pass  # the command has ended


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a command with all processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

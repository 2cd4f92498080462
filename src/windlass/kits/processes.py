"""Starting, recognising and ending processes of this machine.

A process is named by its pid *and* its start time (``/proc/PID/stat``, field 22), because the kernel
uses pids again. Nothing here ends a process that it cannot recognise.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def start_time(pid: int) -> int | None:
    """Return the start of ``pid`` in clock ticks after boot; ``None`` if absent or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return int(fields[19])


def is_alive(pid: int, started: int | None = None) -> bool:
    """Return whether ``pid`` runs and, with ``started``, is the process started at that time."""
    found = start_time(pid)
    return found is not None and (started is None or found == started)


def die_with_parent(parent: int) -> bool:
    """Ask the kernel to kill this process when its parent dies.

    ``False`` if ``parent`` is already gone: then the caller should exit. Children do
    not inherit the request.
    """
    import ctypes  # not needed for starting processes

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent


def set_name(name: str) -> None:
    """The name that ``ps`` and ``top`` show (15 bytes)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def set_command_line(text: str) -> None:
    """Replace the command line that ``ps`` shows, as far as the original one has room.

    A copy of a process would otherwise be shown as the original. The kernel reads the
    words from the memory in which it passed them.
    """
    import ctypes

    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
    room = end - start - 1
    if room > 0:
        ctypes.memmove(start, text.encode()[:room].ljust(room + 1, b"\0"), room + 1)


def rotate(path: Path, keep: int = 3) -> None:
    """Rotate ``x.log`` → ``x.log.1`` → … and drop the oldest. Absent or empty files stay."""
    try:
        if path.stat().st_size == 0:
            return
    except FileNotFoundError:
        return
    for number in range(keep, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        newer = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        if newer.exists():
            os.replace(newer, older)


def copy_and_truncate(path: Path) -> None:
    """Rotate a log that is open in append mode: copy it to ``x.log.1``, then truncate it."""
    aside = path.with_name(f"{path.name}.1")
    with open(path, "rb") as source, open(aside, "wb") as target:
        os.fchmod(target.fileno(), 0o600)
        while block := source.read(1 << 20):
            target.write(block)
    os.truncate(path, 0)


class Child:
    """A child process that this process started and has to collect."""

    __slots__ = ("code", "pid", "started")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.started = start_time(pid)
        self.code: int | None = None
        """Exit status after the end; a negative signal number if a signal ended it."""

    def poll(self) -> int | None:
        """``None`` while it runs, afterwards its exit status."""
        if self.code is None:
            try:
                found, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.code = -signal.SIGKILL
                return self.code
            if found:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def send(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)


def spawn(
    argv: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
) -> Child:
    """Start ``argv`` in its own session without input; its output is appended to ``log``.

    Only ``descriptors`` are inherited. Raises ``OSError``.
    """
    stream = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            dict(os.environ if environment is None else environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, stream, 1),
                (os.POSIX_SPAWN_DUP2, stream, 2),
            ],
            setsid=True,
            setsigmask=(),
        )
    finally:
        os.close(stream)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
    return Child(pid)


def fork(work: Callable[[], int], log: Path, *, title: str, descriptors: Sequence[int] = ()) -> Child:
    """Start a copy of this process in its own session; it ends with the status of ``work``.

    Like :func:`spawn`, without a new interpreter and its imports. This process must have
    a single thread. The copy has only ``descriptors``, and the handlers of a new
    interpreter. ``title``: command line that ``ps`` shows. Raises ``OSError``.
    """
    stream = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _run_copy(work, stream, title, descriptors)
    finally:
        os.close(stream)
    return Child(pid)


def _run_copy(work: Callable[[], int], stream: int, title: str, descriptors: Sequence[int]) -> NoReturn:
    """Detach the copy from its original, run ``work``, and end without the original's cleanup."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, target in ((nothing, 0), (stream, 1), (stream, 2)):
            os.dup2(descriptor, target)
        _close_all_but(descriptors)
        set_command_line(title)
        code = work()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):  # the disk of the log may be full
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _close_all_but(descriptors: Sequence[int]) -> None:
    """Close everything that this process has open, the standard streams and ``descriptors`` excepted."""
    for opened in map(int, os.listdir("/proc/self/fd")):
        if opened > 2 and opened not in descriptors:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(opened)


def spawn_daemon(module: str, arguments: Sequence[str], log: Path) -> tuple[Child, int]:
    """Start ``python -m module ARGUMENTS --report-fd N`` detached.

    Return the child and the read end of a pipe on which the daemon reports its
    progress. The pipe is closed when the daemon ends. All three standard streams are
    redirected, so that a caller with captured output does not hang.
    """
    reader, writer = os.pipe()
    try:
        argv = python_module(module, *arguments, "--report-fd", str(writer))
        child = spawn(argv, log, descriptors=(writer,))
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return child, reader


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs ``module`` with this interpreter."""
    return [sys.executable, *_interpreter_flags(), "-m", module, *arguments]


def _interpreter_flags() -> list[str]:
    flags = ["-P"] if sys.flags.safe_path else []
    return [*flags, "-X", "dev"] if sys.flags.dev_mode else flags


def end(pid: int, started: int | None, *, patience_seconds: float, signum: int = signal.SIGTERM) -> bool:
    """Send ``signum``, wait, then kill. Return whether the process is gone.

    The process is held by a pidfd from before its identification until after the
    signal, so the signal cannot reach another process.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(pid, started):
            return True
        for number, seconds in ((signum, patience_seconds), (signal.SIGKILL, 5.0)):
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                return True
            except PermissionError:
                return False
            if wait_for_exit(handle, pid, seconds):
                return True
        return False
    finally:
        os.close(handle)


def wait_for_exit(handle: int, pid: int, seconds: float) -> bool:
    """Wait until the process behind a pidfd has ended. A zombie counts as ended."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([handle], [], [], max(0.0, left))
        if ready or not is_alive(pid):
            return True
        if left <= 0:
            return False


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

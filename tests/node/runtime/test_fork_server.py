"""Fork server: its children equal separately started interpreters, and it is optional."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windlass.node.lifecycle.events import Exit
from windlass.node.runtime import attempt_files, syscalls
from windlass.node.runtime.helpers import ForkServer
from windlass.node.runtime.runner import AttemptSpec, ProcessRunner


def spec(folder: Path, *argv: str) -> AttemptSpec:
    folder.mkdir()
    record = {
        "attempt": 0,
        "argv": list(argv),
        "env": {"PATH": os.environ["PATH"]},
        "cwd": "/",
        "log": str(folder / "0.log"),
        "log_max_bytes": 10**7,
        "log_files": 3,
        "grace_seconds": 1,
        "mounts": [],
        "staging": str(folder / "root"),
    }
    return AttemptSpec(folder, record)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fork_server_of(folder: Path) -> int:
    """Its pid, a child of this process, once it is there."""

    def found() -> int:
        name = str(folder).encode()
        for pid in syscalls.children(os.getpid()):
            if _of_process(pid, "comm") == b"windlass-birth\n" and name in _of_process(pid, "cmdline"):
                return pid
        return 0

    until(lambda: found() > 0)
    return found()


def _of_process(pid: int, file: str) -> bytes:
    """Return the content of a file in ``/proc/PID``; empty if the process has ended, also during the read."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{file}").read_bytes()
    return b""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[ForkServer]:
    one = ForkServer()
    one.open(tmp_path)
    yield one
    one.close()


async def test_forked_shim_behaves_like_a_started_one(opened: ForkServer, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    handle = await ProcessRunner(opened).start(spec(folder, "sh", "-c", "ls /proc/$PPID/fd | wc -l; exit 3"))
    claim = {}
    until(lambda: claim.update(attempt_files.read(str(folder), attempt_files.CLAIM) or {}) or claim)
    with contextlib.suppress(ProcessLookupError):
        assert os.getsid(claim["pid"]) == claim["pid"]
    assert isinstance(await handle.started(), float)
    assert (await handle.ended()).code == 3
    assert claim["pid"] not in syscalls.children(os.getpid())  # it was forked, not started from here
    assert not (folder / "shim.err").exists()
    assert int((folder / "0.log").read_text().split()[-1]) < 20  # nothing of the server's own stays open
    until(lambda: syscalls.children(fork_server_of(tmp_path)) == [])


async def test_what_it_has_started_outlives_it(opened: ForkServer, tmp_path: Path) -> None:
    handle = await ProcessRunner(opened).start(spec(tmp_path / "a", "sleep", "1000"))
    assert isinstance(await handle.started(), float)
    pid = fork_server_of(tmp_path)
    opened.close()
    assert syscalls.start_time(pid) is None
    claim = attempt_files.read(str(tmp_path / "a"), attempt_files.CLAIM)
    assert attempt_files.is_running(claim)
    handle.stop(0)
    assert (await handle.ended()).signal == signal.SIGKILL


async def test_without_fork_server_interpreters_are_started(
    opened: ForkServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.kill(fork_server_of(tmp_path), signal.SIGKILL)
    for number in range(2):
        handle = await ProcessRunner(opened).start(spec(tmp_path / f"a{number}", "sh", "-c", "exit 4"))
        assert (await handle.ended()).code == 4
    assert len([one for one in caplog.records if "fork server" in one.message]) == 1


async def test_error_of_a_forked_shim_is_in_its_file(opened: ForkServer, tmp_path: Path) -> None:
    broken = spec(tmp_path / "a", "true")
    handle = await ProcessRunner(opened).start(AttemptSpec(broken.directory, {"no": "attempt"}))
    failure = await handle.started()
    assert isinstance(failure, Exit)
    assert "KeyError: 'attempt'" in failure.message
    assert "Traceback" in (tmp_path / "a" / "shim.err").read_text()


async def test_a_fork_that_fails_is_told_as_such(tmp_path: Path) -> None:
    """As where a limit of processes is reached: an interpreter of its own would fail as well."""
    alone, other = ForkServer(), socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    alone._connection = other[0]

    def answer() -> None:
        _, descriptors, _, _ = socket.recv_fds(other[1], 65_536, 1)
        for descriptor in descriptors:
            os.close(descriptor)
        other[1].send(str(-errno.EAGAIN).encode())

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(BlockingIOError):
        await ProcessRunner(alone).start(spec(tmp_path / "a", "true"))
    thread.join()
    other[1].close()
    alone.close()

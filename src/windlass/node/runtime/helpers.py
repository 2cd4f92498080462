"""Starting the agent's helpers and watching processes, the agent's own children or adopted ones."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import windlass
from windlass.kits import monotonic
from windlass.node.runtime import syscalls

_log = logging.getLogger("windlass.node")

_ROOT = str(Path(windlass.__file__).parent.parent)
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; sys.exit(main(sys.argv[2]))"
_POLL_SECONDS = 0.2
_NURSERY_SECONDS = 5.0
_children: set[int] = set()


def start_helper(module: str, argument: str, *, errors: Path | None = None) -> tuple[int, int]:
    """Run ``main(argument)`` of a module, given by its dotted name, in an interpreter and a session of its own.

    Isolated (``-I -S``), so that it starts in milliseconds and nothing of the user's site is in it.
    Returns its pid and the read end of its stdout. Raises ``OSError``.
    """
    return _heard(lambda out, err: _spawn(module, argument, out, err), errors)


def _heard(start: Callable[[int, int], int], errors: Path | None) -> tuple[int, int]:
    """The pid that ``start`` returns, given descriptors for stdout and stderr, and the read end of the former."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        errors_to = os.open(errors if errors is not None else os.devnull, flags, 0o600)
        try:
            return start(writer, errors_to), reader
        finally:
            os.close(errors_to)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)


def _spawn(module: str, argument: str, out: int, errors: int, given: int | None = None) -> int:
    """The pid of an interpreter that runs the module; ``given`` is its stdin."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _BOOT.format(module=module), _ROOT, argument],
        {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
        file_actions=[
            null if given is None else (os.POSIX_SPAWN_DUP2, given, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, errors, 2),
        ],
        setsid=True,
        setsigmask=(),
    )
    track(pid)
    return pid


class ForkServer:
    """The agent's end of a :mod:`~windlass.node.runtime.fork_server`. Closed, or when it does not answer, helpers are
    interpreters of their own: pods then start somewhat slower."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._pid = 0

    def open(self, folder: Path) -> None:
        """Start it, for the agent of that folder; it is ready when it has loaded what it is to fork."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                self._pid, reader = _heard(
                    lambda out, err: _spawn(
                        "windlass.node.runtime.fork_server", str(folder), out, err, its.fileno()
                    ),
                    folder / "nursery.err",
                )
            os.close(reader)
        except OSError as error:
            ours.close()
            _log.warning("pods start without a nursery: %s", error)
            return
        ours.settimeout(_NURSERY_SECONDS)
        self._connection = ours

    def close(self) -> None:
        """The process ends, and is waited for; what it has started goes on."""
        if self._connection is None:
            return
        self._connection.close()
        self._connection = None
        deadline = monotonic.monotonic() + _NURSERY_SECONDS
        while self._pid in _children and monotonic.monotonic() < deadline:
            collect(self._pid)
            monotonic.pause(0.001)

    def start_helper(self, module: str, argument: str, *, errors: Path) -> tuple[int, int]:
        """As :func:`start_helper`, of :data:`fork_server.MODULES`. Raises ``OSError``."""
        return _heard(
            lambda out, err: self._born(module, argument, out, err) or _spawn(module, argument, out, err),
            errors,
        )

    def _born(self, module: str, argument: str, out: int, errors: int) -> int:
        """The pid; 0 where nobody answers."""
        if self._connection is None:
            return 0
        try:
            request = json.dumps([module, argument]).encode()
            socket.send_fds(self._connection, [request], [out, errors])
            pid = int(self._connection.recv(64) or 0)
        except OSError as error:
            _log.warning("the nursery of pods is lost: %s", error)
            if self._pid in _children:
                os.kill(self._pid, signal.SIGKILL)
            pid = 0
        if pid > 0:
            return pid
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        self.close()  # before somebody else starts the same
        return 0


def track(pid: int) -> None:
    """Remember a child, so that :func:`sweep` collects it should nobody else wait for it."""
    _children.add(pid)


def sweep() -> None:
    """Collect every ended child that nobody waited for. Call now and then."""
    for pid in tuple(_children):
        collect(pid)


async def read_to_end(descriptor: int) -> bytes:
    """All that comes out of a pipe, which is closed afterwards."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    said = b""
    try:
        while True:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(descriptor, _resolve, ready)
            try:
                await ready
            finally:
                loop.remove_reader(descriptor)
            try:
                block = os.read(descriptor, 65536)
            except BlockingIOError:
                continue
            if not block:
                return said
            said += block
    finally:
        os.close(descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_exit(pid: int, started: int) -> None:
    """Until the process with that pid and start time is gone; collects it if it is a child of ours."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel without pidfd
        while syscalls.is_alive(pid, started):
            await asyncio.sleep(_POLL_SECONDS)
        collect(pid)
        return
    try:
        found = syscalls.start_time(pid)
        if found is not None and found != started:
            return  # the pid has been used again
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(handle, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_reader(handle)
    finally:
        os.close(handle)
    collect(pid)


def collect(pid: int) -> None:
    """Reap ``pid`` if it is a child of this process; others have their own parent for that."""
    try:
        found, _ = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        found = pid
    if found:
        _children.discard(pid)

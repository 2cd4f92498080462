"""Helper processes of the agent: start them, read from them, and wait for their end."""

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
_FORK_SERVER_SECONDS = 30.0
"""Timeout (seconds) for an answer of the fork server and for its end. On a busy machine it starts slowly."""
_children: set[int] = set()


def start_helper(module: str, argument: str, *, errors: Path | None = None) -> tuple[int, int]:
    """Run ``main(argument)`` of a module in a new interpreter with its own session.

    ``module``: dotted name. The interpreter is isolated (``-I -S``), so that it starts in milliseconds
    and without the user's site packages. Return the pid and the read end of its stdout. Raises
    ``OSError``.
    """
    return _with_output(lambda out: _spawn(module, argument, out, errors))


def _with_output(start: Callable[[int], int]) -> tuple[int, int]:
    """Return the pid that ``start`` returns, and the read end of its stdout.

    ``start`` gets a descriptor for stdout.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        return start(writer), reader
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)


def _spawn(module: str, argument: str, out: int, errors: Path | None, stdin: int | None = None) -> int:
    """Return the pid of an interpreter that runs the module. ``stdin``: its stdin, or none."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _BOOT.format(module=module), _ROOT, argument],
        {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
        file_actions=[
            null if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull if errors is None else str(errors), flags, 0o600),
        ],
        setsid=True,
        setsigmask=(),
    )
    track(pid)
    return pid


class ForkServer:
    """The agent's connection to a :mod:`~windlass.node.runtime.fork_server`.

    If the server is closed or does not respond, helpers are separate interpreters, and pods start
    somewhat slower.
    """

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._pid = 0

    def open(self, directory: Path) -> None:
        """Start the server for the agent of ``directory``."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._pid, reader = _with_output(
                    lambda out: _spawn(
                        "windlass.node.runtime.fork_server",
                        str(directory),
                        out,
                        directory / "fork-server.err",
                        theirs.fileno(),
                    )
                )
            os.close(reader)
        except OSError as error:
            ours.close()
            _log.warning("the fork server did not start, pods start slower: %s", error)
            return
        ours.settimeout(_FORK_SERVER_SECONDS)
        self._connection = ours

    def close(self) -> None:
        """End the server and wait for its end. Its children keep running."""
        if self._connection is None:
            return
        self._connection.close()
        self._connection = None
        deadline = monotonic.monotonic() + _FORK_SERVER_SECONDS
        while self._pid in _children and monotonic.monotonic() < deadline:
            reap(self._pid)
            monotonic.pause(0.001)

    def start_helper(self, module: str, argument: str, *, errors: Path) -> tuple[int, int]:
        """Start a helper of :data:`fork_server.MODULES` as :func:`start_helper` does. Raises ``OSError``.

        The file ``errors`` is missing if there was no error.
        """
        return _with_output(lambda out: self.start_on(module, argument, out, errors))

    def start_on(self, module: str, argument: str, output: int, errors: Path) -> int:
        """Start a helper with ``output`` as its stdout; return its pid. Raises ``OSError``."""
        return self._fork(module, argument, output, errors) or _spawn(module, argument, output, errors)

    def _fork(self, module: str, argument: str, out: int, errors: Path) -> int:
        """Return the pid of the forked helper, or 0 if the server is not available."""
        if self._connection is None:
            return 0
        try:
            request = json.dumps([module, argument, str(errors)]).encode()
            socket.send_fds(self._connection, [request], [out])
            pid = int(self._connection.recv(64) or 0)
        except OSError as error:
            _log.warning("the fork server is lost, pods start slower: %s", error)
            if self._pid in _children:
                os.kill(self._pid, signal.SIGKILL)
            pid = 0
        if pid > 0:
            return pid
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        self.close()  # before the fallback starts the same helper
        return 0


def track(pid: int) -> None:
    """Register a child, so that :func:`reap_all` reaps it if nothing else waits for it."""
    _children.add(pid)


def reap_all() -> None:
    """Reap every ended child. Call it periodically."""
    for pid in tuple(_children):
        reap(pid)


async def read_to_end(descriptor: int) -> bytes:
    """Return everything that is read from a pipe, and close it."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    data = b""
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
                return data
            data += block
    finally:
        os.close(descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_exit(pid: int, started: int) -> None:
    """Wait until the process with that pid and start time is gone. Reap it if it is a child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel without pidfd
        while syscalls.is_alive(pid, started):
            await asyncio.sleep(_POLL_SECONDS)
        reap(pid)
        return
    try:
        current = syscalls.start_time(pid)
        if current is not None and current != started:
            return  # the pid was reused
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(handle, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_reader(handle)
    finally:
        os.close(handle)
    reap(pid)


def reap(pid: int) -> None:
    """Reap ``pid`` if it is a child of this process. All others have a parent that does."""
    try:
        reaped, _ = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        reaped = pid
    if reaped:
        _children.discard(pid)

"""Starting the agent's helpers and watching processes, the agent's own children or adopted ones."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import windlass
from windlass.node import linux

_ROOT = str(Path(windlass.__file__).parent.parent)
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from windlass.node.{module} import main; sys.exit(main(sys.argv[2]))"
)
_POLL_SECONDS = 0.2
_children: set[int] = set()


def start_helper(module: str, argument: str, *, errors: Path | None = None) -> tuple[int, int]:
    """Run ``windlass.node.<module>.main(argument)`` in an interpreter and a session of its own.

    Isolated (``-I -S``), so that it starts in milliseconds and nothing of the user's site is in it.
    Returns its pid and the read end of its stdout. Raises ``OSError``.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    errors_to = str(errors) if errors is not None else os.devnull
    argv = [sys.executable, "-I", "-S", "-c", _BOOT.format(module=module), _ROOT, argument]
    try:
        pid = os.posix_spawn(
            sys.executable,
            argv,
            {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writer, 1),
                (os.POSIX_SPAWN_OPEN, 2, errors_to, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            ],
            setsid=True,
            setsigmask=(),
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    track(pid)
    return pid, reader


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
        while linux.is_alive(pid, started):
            await asyncio.sleep(_POLL_SECONDS)
        collect(pid)
        return
    try:
        found = linux.start_time(pid)
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

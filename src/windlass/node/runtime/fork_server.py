"""Fork server for pod supervisors and streams: an interpreter that has loaded their modules and forks them.

Most of the cost of a short pod is the start of two interpreters: those of its sandbox and of its
shim. A fork takes a tenth of that time. The server is a separate process, so its children inherit
neither threads nor memory of the agent. Each child has its own session and outlives both server and
agent. The server ends with the agent. If it is unavailable, interpreters are started instead.

A request is one packet: module, argument and the path of an error file as JSON, with a descriptor for
stdout. The response is the pid, or a negative error number. The error file is only created for an
error: most helpers have none, and a new file costs as much as a tenth of a short pod.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
from typing import TYPE_CHECKING, NamedTuple

from windlass.node.runtime import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable

MODULES = (
    "windlass.node.sandbox.sandbox",
    "windlass.node.runtime.shim",
    "windlass.node.streams.exec_session",
    "windlass.node.streams.port_session",
)
"""Modules loaded at the start. A child runs ``main`` of one of them."""
MAX_REQUEST_BYTES = 65_536
_REAP_MILLISECONDS = 1000


class _Request(NamedTuple):
    module: str
    argument: str
    errors: str


_NOTHING = _Request("", "", "")
"""Result of a look for requests in the server itself."""


def main(directory: str) -> int:
    """Serve the socket on stdin until its other end is closed.

    ``directory`` only identifies the server, and its children, in process lists.
    """
    syscalls.set_process_name("windlass-birth")
    loaded = {name: importlib.import_module(name) for name in MODULES}
    connection = socket.socket(fileno=os.dup(0))
    syscalls.boot_id()  # known to all children then
    gc.freeze()  # children share the memory of loaded modules
    while True:
        request = _next(connection)
        if request is None:
            os._exit(0)  # at once: its agent waits
        if request.module:
            connection.close()
            return _end(_run(loaded[request.module].main, request))


def _run(main: Callable[[str], int], request: _Request) -> int:
    """Return the exit status of ``main``. An exception is written to the error file and is status 1."""
    try:
        return main(request.argument)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        text = f"{end.code}\n"
    except BaseException:
        import traceback  # the server starts without it

        text = traceback.format_exc()
    with contextlib.suppress(OSError), open(request.errors, "a", encoding="utf-8") as stream:
        stream.write(text)
    return 1


def _end(status: int) -> int:
    """End a child at once if it has no other thread: the end of an interpreter takes as long as its work."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return status
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _next(connection: socket.socket) -> _Request | None:
    """Return the request in a new child.

    In the server itself it is :data:`_NOTHING`. None: the other end was closed.
    """
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    ready = poller.poll(_REAP_MILLISECONDS)
    _reap()
    if not ready:
        return _NOTHING
    try:
        request, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 1)
        if not request:
            return None
        pid = _fork()
        if pid == 0:
            _detach(*descriptors)
            return _Request(*json.loads(request))
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
    except (ConnectionResetError, BrokenPipeError):  # the agent was killed
        return None
    return _NOTHING


def _fork() -> int:
    """Fork. Return the pid, 0 in the child, or a negative error number."""
    try:
        return os.fork()
    except OSError as error:
        return -(error.errno or 1)


def _detach(out: int) -> None:
    """Detach the child: own session, and the descriptor of the request."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor, number in ((null, 0), (out, 1), (null, 2)):
        os.dup2(descriptor, number)
    os.close(null)
    os.close(out)


def _reap() -> None:
    """Reap ended children. A child of the request in progress is still there for the agent."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

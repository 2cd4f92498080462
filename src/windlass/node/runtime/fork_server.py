"""Fork server for pod supervisors and streams: an interpreter that has loaded their modules and forks them.

Most of the cost of a short pod is the start of two interpreters: those of its sandbox and of its
shim. A fork takes a tenth of that time. The server is a separate process, so its children inherit
neither threads nor memory of the agent. Each child has its own session and outlives both server and
agent. The server ends with the agent. If it is unavailable, interpreters are started instead.

A request is one packet: module and argument as JSON, with two descriptors for stdout and stderr.
The response is the pid, or a negative error number.
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

from windlass.node.runtime import syscalls

MODULES = (
    "windlass.node.sandbox.sandbox",
    "windlass.node.runtime.shim",
    "windlass.node.streams.exec_session",
    "windlass.node.streams.port_session",
)
"""Modules loaded at the start. A child runs ``main`` of one of them."""
_MAX_REQUEST_BYTES = 65_536
_REAP_MILLISECONDS = 1000


def main(directory: str) -> int:
    """Serve the socket on stdin until its other end is closed.

    ``directory`` only identifies the server, and its children, in process lists.
    """
    syscalls.set_process_name("windlass-birth")
    loaded = {name: importlib.import_module(name) for name in MODULES}
    connection = socket.socket(fileno=os.dup(0))
    gc.freeze()  # children share the memory of loaded modules
    while True:
        request = _next(connection)
        if request is None:
            os._exit(0)  # at once: its agent waits
        module, argument = request
        if module:
            connection.close()
            return loaded[module].main(argument)


def _next(connection: socket.socket) -> tuple[str, str] | None:
    """Return module and argument in a new child.

    In the server itself the module is empty. None: the other end was closed.
    """
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    ready = poller.poll(_REAP_MILLISECONDS)
    _reap()
    if not ready:
        return "", ""
    try:
        request, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 2)
        if not request:
            return None
        pid = _fork()
        if pid == 0:
            _detach(*descriptors)
            module, argument = json.loads(request)
            return module, argument
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
    except (ConnectionResetError, BrokenPipeError):  # the agent was killed
        return None
    return "", ""


def _fork() -> int:
    """Fork. Return the pid, 0 in the child, or a negative error number."""
    try:
        return os.fork()
    except OSError as error:
        return -(error.errno or 1)


def _detach(out: int, errors: int) -> None:
    """Detach the child: own session, and the descriptors of the request."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((null, 0), (out, 1), (errors, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _reap() -> None:
    """Reap ended children. A child of the request in progress is still there for the agent."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

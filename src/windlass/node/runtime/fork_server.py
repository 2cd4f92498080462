"""Processes that are born warm: a small interpreter that has loaded the supervisors of pods, and forks them.

Most of what a short pod costs is the start of two interpreters, its sandbox's and its container's shim: a
fork of one that is there takes a tenth of that. The nursery is a process of its own, so that nothing of the agent,
neither its threads nor its memory, is in what it forks. Its children are in a session of their own and outlive it as
they outlive the agent; it ends with the agent. Whoever cannot reach it starts an interpreter as before.

A request is one packet: the module and its argument as JSON, with two descriptors, for stdout and stderr. The answer is
the pid, or the negative number of an error.
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

MODULES = ("windlass.node.sandbox.sandbox", "windlass.node.runtime.shim")
"""Modules that are loaded at the start; ``main`` of each is run in a child."""
_LARGEST = 65_536
_COLLECT_MILLISECONDS = 1000


def main(folder: str) -> int:
    """Serve the socket that is stdin until its other end is closed. ``folder`` only tells people and tests whose
    nursery this is, and whose are the processes that it forks."""
    syscalls.set_process_name("windlass-birth")
    loaded = {name: importlib.import_module(name) for name in MODULES}
    connection = socket.socket(fileno=os.dup(0))
    gc.freeze()  # what is loaded stays shared with what is forked
    while True:
        born = _next(connection)
        if born is None:
            os._exit(0)  # at once: its agent waits
        module, argument = born
        if module:
            connection.close()
            return loaded[module].main(argument)


def _next(connection: socket.socket) -> tuple[str, str] | None:
    """In a new child: what it is to run. In the nursery itself an empty module, and ``None`` at the end."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    ready = poller.poll(_COLLECT_MILLISECONDS)
    _collect()
    if not ready:
        return "", ""
    try:
        request, descriptors, _, _ = socket.recv_fds(connection, _LARGEST, 2)
        if not request:
            return None
        pid = _fork()
        if pid == 0:
            _settle(*descriptors)
            module, argument = json.loads(request)
            return module, argument
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
    except (ConnectionResetError, BrokenPipeError):  # the agent was killed
        return None
    return "", ""


def _fork() -> int:
    """Its pid, 0 in the child, or the negative number of the error."""
    try:
        return os.fork()
    except OSError as error:
        return -(error.errno or 1)


def _settle(out: int, errors: int) -> None:
    """As a process that has been started alone."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((null, 0), (out, 1), (errors, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)


def _collect() -> None:
    """Children that have ended. One that was born for this moment's request is still there for who asked."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

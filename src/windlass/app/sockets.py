"""Listening sockets, bound by the supervisor and inherited by the server.

So a port in use is reported before anything starts. The other processes connect at once
(their requests wait in the backlog until the server responds). A restart of the server
rejects no connection.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.app.options import DEFAULT_PORT
from windlass.observe.listening import cannot_listen

_BACKLOG = 1024
LOOPBACK = "127.0.0.1"


def bind_tcp(port: int | None, last: int | None = None) -> socket.socket:
    """Listen on ``port`` of the loopback interface.

    Without a given port, the last one is used again (so that kubeconfigs stay valid),
    otherwise the default one, otherwise any free one.

    :raises WindlassError: the given port is not available
    """
    if port is not None:
        if not 0 <= port <= 65535:
            raise WindlassError(
                "WL-USE-400",
                f"--port {port} is not a port",
                evidence="ports are 0 (any free one) to 65535",
                remedies=("--port 0",),
            )
        try:
            return _listen(port)
        except OSError as error:
            raise _refused(port, error) from error
    for candidate in (last, DEFAULT_PORT, 0):
        if candidate is None:
            continue
        try:
            return _listen(candidate)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or candidate == 0:
                raise _refused(candidate, error) from error
    raise AssertionError("port 0 is always tried")


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _refused(port: int, error: OSError) -> WindlassError:
    return cannot_listen(LOOPBACK, port, error, "windlass up --port 0   (any free port)")


def bind_unix(path: Path) -> socket.socket:
    """Listen on a Unix socket, mode 0600. The caller holds the directory's lock.

    So an existing socket at ``path`` is stale.

    :raises WindlassError: something other than a socket exists at ``path``
    """
    try:
        existing = path.lstat()
    except FileNotFoundError:
        existing = None
    if existing is not None:
        if not stat.S_ISSOCK(existing.st_mode):
            raise WindlassError(
                "WL-STATE-409",
                f"{path} is in the way",
                evidence="a socket of Windlass belongs there, but another kind of file has this name",
                remedies=(f"mv {path} {path}.old",),
            )
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener

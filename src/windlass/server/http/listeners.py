"""HTTP on a TLS port and on a Unix socket, by uvicorn's protocol, in one event loop.

Uvicorn's own ``Server`` is left out: it owns signals, sockets and TLS of a whole process. Here the caller
owns the process, and each connection knows whose it is before its first request.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from windlass.api.errors import WindlassError
from windlass.kits.state import StateFolder
from windlass.server.http.asgi import Application
from windlass.server.http.protocol import ApiProtocol
from windlass.server.request.users import ADMIN, UserInfo

PORT_IN_USE = "WL-PORT-409"
CANNOT_LISTEN = "WL-SERVER-409"
LOOPBACK = "127.0.0.1"
_KEEP_ALIVE_SECONDS = 300
_DRAIN_SECONDS = 5.0
_BACKLOG = 1024


class Listeners:
    """Open with the ``listen_*`` methods, end with :meth:`close`."""

    def __init__(self, application: Application) -> None:
        self._state = ServerState()
        self._config = Config(
            application,  # type: ignore[arg-type]
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        self._servers: list[asyncio.AbstractServer] = []

    async def listen_tls(self, listener: socket.socket, context: ssl.SSLContext) -> int:
        """Serve TLS on a bound socket; returns its port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._factory(None), sock=listener, ssl=context, backlog=_BACKLOG)
        self._servers.append(server)
        return int(listener.getsockname()[1])

    async def listen_unix(self, listener: socket.socket) -> None:
        """Serve a bound Unix socket: whoever can open it is the administrator."""
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(self._factory(ADMIN), sock=listener, backlog=_BACKLOG)
        self._servers.append(server)

    def _factory(self, owner: UserInfo | None) -> Callable[[], asyncio.Protocol]:
        def make() -> asyncio.Protocol:
            return ApiProtocol(self._config, self._state, owner)

        return make

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    async def close(self) -> None:
        """Accept nobody more, let requests in progress finish for a few seconds, then end them.

        Streams must have been told to end before (``ApiServer.stop``).
        """
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DRAIN_SECONDS
        while (self._state.tasks or self._state.connections) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for task in list(self._state.tasks):
            task.cancel()
        for connection in list(self._state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=1.0)
        await asyncio.sleep(0)


def tls_context(state: StateFolder) -> ssl.SSLContext:
    """The server's side of TLS: its certificate, and client certificates of its own authority if offered."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(state.ca_cert))
    context.load_cert_chain(state.server_cert, state.server_key)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def bind_tcp(port: int, host: str = LOOPBACK) -> socket.socket:
    """A listening socket on ``host``; port 0 takes any free one. Raises :class:`WindlassError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise WindlassError(
                PORT_IN_USE,
                f"port {port} is in use",
                evidence=f"{host}:{port}: {error.strerror}",
                remedies=("windlass up --port 0", f"ss -ltnp 'sport = :{port}'"),
            ) from error
        raise WindlassError(
            CANNOT_LISTEN,
            f"cannot listen on {host}:{port}",
            evidence=error.strerror or str(error),
            remedies=("windlass up --port 0",),
        ) from error
    listener.setblocking(False)
    return listener


def bind_unix(path: Path) -> socket.socket:
    """A listening Unix socket of mode 0600; replaces a dead one. Raises :class:`WindlassError`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            _require_dead(path)
            path.unlink()
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise WindlassError(
            CANNOT_LISTEN,
            f"cannot listen on the Unix socket {path}",
            evidence=error.strerror or str(error),
            remedies=(f"ls -l {path}", "windlass status"),
        ) from error
    except WindlassError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _require_dead(path: Path) -> None:
    probe: Any = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(str(path))
    except OSError:
        return
    finally:
        probe.close()
    raise WindlassError(
        PORT_IN_USE,
        f"another server listens on {path}",
        evidence="a connection to the socket was accepted",
        remedies=("windlass status", "windlass down"),
    )

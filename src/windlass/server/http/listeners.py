"""HTTP listeners of the API server: a TLS port and a Unix socket, in one event loop."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

from windlass.api.errors import WindlassError
from windlass.kits.state import StateFolder
from windlass.observe.http_server import BACKLOG, HttpServer, ServerLimits
from windlass.observe.listening import PORT, cannot_listen
from windlass.server.apiserver import ApiServer
from windlass.server.auth.authentication import Authenticator
from windlass.server.http.asgi import Application
from windlass.server.request.users import ADMIN

CANNOT_LISTEN = "WL-SERVER-409"
LOOPBACK = "127.0.0.1"
_DRAIN_SECONDS = 5
"""Timeout (seconds) of requests in progress when the server ends."""


class ApiListeners:
    """Sockets of the API server; open with the ``listen_*`` methods, end with :meth:`close`."""

    def __init__(self, api: ApiServer, authenticator: Authenticator) -> None:
        self._api = api
        self._authenticator = authenticator
        self._server = HttpServer(ServerLimits(drain=_DRAIN_SECONDS))

    async def listen_tls(self, listener: socket.socket, context: ssl.SSLContext) -> int:
        """Serve TLS on a bound socket; return its port."""
        port = int(listener.getsockname()[1])
        app = Application(self._api, self._authenticator)
        await self._server.listen(app, [listener], context, websockets=True)
        return port

    async def listen_unix(self, listener: socket.socket) -> None:
        """Serve a bound Unix socket; its clients are the administrator."""
        app = Application(self._api, self._authenticator, ADMIN)
        await self._server.listen(app, [listener], websockets=True)

    async def close(self) -> None:
        """Accept no connections, let requests in progress finish for a while, then abort them.

        Streams must have been told to end before (``ApiServer.stop``).
        """
        await self._server.close()


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
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for its connections
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise cannot_listen(host, port, error, "windlass up --port 0   (any free port)") from error
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
        listener.listen(BACKLOG)
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
        PORT,
        f"another server listens on {path}",
        evidence="a connection to the socket was accepted",
        remedies=("windlass status", "windlass down"),
    )

"""HTTP server of ASGI applications in the event loop of the caller.

Uvicorn serves the requests, through its public interface. It does not own the process
here: it handles no signals, and waits for an event instead of polling for its end. One
method of its protocol is overridden, because uvicorn does not hand the application the
client's certificate.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakSet

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
PEER = "windlass.peer"
"""Key of the connection's :class:`Peer` in the state of a request."""
BACKLOG = 1024
"""Maximum number of connections that wait to be accepted."""
_MAX_MESSAGE_BYTES = 4 * 2**20
"""Maximum message of a WebSocket in bytes."""
_CANCEL_SECONDS = 1.0
"""Timeout (seconds) of requests that were cancelled when the server was closed."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of one server; times in seconds.

    ``idle``: timeout between a response and the next request on the same connection.
    ``head``: timeout from a connection to its first request, and in addition to ``idle``
    for later ones; a client that sends a request slowly is disconnected, too. None: no
    such timeout.
    ``connections``: above this number requests are answered with 503. None: no maximum.
    ``drain``: time for requests in progress when the server is closed.
    """

    idle: int = 300
    head: float | None = None
    connections: int | None = None
    drain: int = 5


class Peer:
    """Client of one connection."""

    __slots__ = ("__weakref__", "certificate", "deadline", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        tls = transport.get_extra_info("ssl_object")
        self.transport = transport
        self.certificate: Mapping[str, Any] | None = None if tls is None else tls.getpeercert()
        self.deadline: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """Close the connection without sending what is buffered."""
        self.transport.abort()

    def expect_request(self, seconds: float) -> None:
        """Abort unless a request arrives in time."""
        self.deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def request_arrived(self) -> None:
        """Cancel the deadline of :meth:`expect_request`."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


class JoiningTransport:
    """Transport that sends what is written in one turn of the event loop in one piece.

    Uvicorn writes the head and the body of a response one after the other. Two system
    calls, and two records under TLS, would cost more than the rest of a small response.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
            self._transport.write(data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _ExpectedUpgrades(logging.Filter):
    """Drops uvicorn's reports of upgrades that the application refuses in words."""

    _TEXTS = ("Unsupported upgrade request.", "ASGI callable returned without completing handshake.")

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg not in self._TEXTS


_expected_upgrades = _ExpectedUpgrades()


class HttpServer:
    """Listeners of one or more applications; open with :meth:`listen`, end with :meth:`close`."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self._limits = limits or ServerLimits()
        self._peers: WeakSet[Peer] = WeakSet()
        self._servers: list[tuple[_Server, asyncio.Task[None]]] = []

    async def listen(
        self,
        app: App,
        listeners: Sequence[socket.socket],
        tls: ssl.SSLContext | None = None,
        *,
        websockets: bool = False,
    ) -> None:
        """Serve ``app`` on listening sockets, which are closed with the server.

        The limits hold for these sockets together. ``websockets``: ``app`` serves upgrades.
        """
        limits = self._limits
        config = uvicorn.Config(
            cast(Any, app if limits.head is None else _with_deadlines(app, limits.idle + limits.head)),
            http=_protocol(self._connected),
            ws=_websocket_protocol() if websockets else "none",
            ws_per_message_deflate=False,
            ws_max_size=_MAX_MESSAGE_BYTES,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=limits.idle,
            timeout_graceful_shutdown=limits.drain,
            limit_concurrency=limits.connections,
            ssl_context_factory=None if tls is None else lambda config, default: tls,
        )
        if websockets:
            logging.getLogger("uvicorn.error").addFilter(_expected_upgrades)
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=list(listeners)))
        self._servers.append((server, task))
        while not server.started and not task.done():
            await asyncio.sleep(0)
        if task.done():
            task.result()

    async def close(self) -> None:
        """Accept no connections, let requests in progress finish for a while, then abort them.

        Responses that do not end by themselves must have been told to end before.
        """
        for server, _ in self._servers:
            server.stop()
        await asyncio.gather(*(task for _, task in self._servers))
        tasks = [task for server, _ in self._servers for task in server.server_state.tasks]
        if tasks:  # cancelled: their time was up
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
        for peer in list(self._peers):
            peer.abort()
        await asyncio.sleep(0)

    def _connected(self, peer: Peer) -> None:
        self._peers.add(peer)
        if self._limits.head is not None:
            peer.expect_request(self._limits.head)


class _Server(uvicorn.Server):
    """Uvicorn's server as a part of a process that handles signals itself."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self._stopped.wait()


def _protocol(connected: Callable[[Peer], None]) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, extended by a :class:`Peer` in the state of its requests."""

    class Protocol(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(cast(Any, JoiningTransport(transport, asyncio.get_running_loop())))
            peer = Peer(transport)
            self.app_state = {**self.app_state, PEER: peer}
            connected(peer)

    return Protocol


_TUNNEL, _TUNNEL_TOKEN = b"SPDY/3.1+", b"SPDY-3.1+"
"""Beginning of the subprotocols of kubectl port-forward, and its form as a token.

The package websockets refuses a subprotocol with a slash, as RFC 6455 says.
"""


def _websocket_protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's protocol of WebSockets, which accepts kubectl's names of subprotocols."""
    # Imported here: only the API server needs the package websockets.
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class WebSocketProtocol(WebSocketsSansIOProtocol):
        def data_received(self, data: bytes) -> None:
            if not self.handshake_initiated:
                data = data.replace(_TUNNEL, _TUNNEL_TOKEN)
            super().data_received(data)

    return WebSocketProtocol


def offered_subprotocols(scope: Scope) -> tuple[str, ...]:
    """Return the subprotocols that the client of a WebSocket offers, as it has written them."""
    token, written = _TUNNEL_TOKEN.decode(), _TUNNEL.decode()
    return tuple(name.replace(token, written) for name in scope["subprotocols"])


def _with_deadlines(app: App, seconds: float) -> App:
    """Return ``app`` with a timeout between a response and the next complete request head."""

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        peer: Peer = scope["state"][PEER]
        peer.request_arrived()
        try:
            await app(scope, receive, send)
        finally:
            peer.expect_request(seconds)

    return limited


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets on all addresses of ``host``, or of this machine if it is empty.

    Port 0 takes any free one, the same for all addresses. Raises ``OSError``.
    """
    found: list[socket.socket] = []
    flags = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host or None, port, **flags):
            try:
                listener = socket.socket(family, kind, protocol)
            except OSError:
                continue  # a kernel without IPv6
            found.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], found[0].getsockname()[1] or port, *address[2:]))
            listener.listen(BACKLOG)
    except OSError:
        for listener in found:
            listener.close()
        raise
    if not found:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return found

"""``/metrics``, ``/healthz`` and ``/readyz`` of a process that serves nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from windlass.api.errors import WindlassError
from windlass.observe.http_server import HttpServer, Receive, Scope, Send, ServerLimits, bind
from windlass.observe.listening import cannot_listen
from windlass.observe.metrics import Collected, exposition

ADDRESS = "WL-METRICS-400"
LIMITS = ServerLimits(idle=10, head=10.0, connections=256, drain=1)
"""A scrape or a probe takes one connection, which ends with the response."""
_TEXT = "text/plain; charset=utf-8"


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[V6]:PORT`` or ``:PORT`` (all addresses).

    Raises :class:`WindlassError`.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise WindlassError(
            ADDRESS,
            f"{text!r} is not an address to listen on",
            remedies=("write HOST:PORT, for instance 127.0.0.1:8080",),
        )
    return host.strip("[]"), int(port)


def not_ready(ready: bool, unknown: Sequence[str]) -> str:
    """Return why an instance is not ready, empty if it is.

    ``unknown``: kinds that it has not read completely yet.
    """
    if ready:
        return ""
    if unknown:
        return f"not known yet: {', '.join(dict.fromkeys(unknown))}"
    return "not the leader, and the leader is unknown: the lease was not read recently"


class Endpoint:
    """Server of ``/metrics``, ``/healthz`` and ``/readyz``.

    ``waits()`` returns why this process is not ready, empty if it is. ``/healthz``
    responds as long as the event loop of the process runs.
    """

    def __init__(
        self, source: CollectorRegistry, waits: Callable[[], str], limits: ServerLimits = LIMITS
    ) -> None:
        self._source = source
        self._waits = waits
        self._server = HttpServer(limits)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises :class:`WindlassError` if that is impossible."""
        try:
            listeners = bind(host, port)
        except OSError as error:
            remedy = "choose another address with --metrics-bind"
            raise cannot_listen(host, port, error, remedy, code=ADDRESS) from error
        bound = int(listeners[0].getsockname()[1])
        await self._server.listen(self._serve, listeners)
        return bound

    async def serve_on(self, listener: socket.socket) -> None:
        """Serve on a listening Unix socket, which is closed with the endpoint."""
        await self._server.listen(self._serve, [listener])

    async def stop(self) -> None:
        await self._server.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, kind, body = await self._response(scope["method"], scope["path"])
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _response(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET\n"
        match path:
            case "/metrics":
                collected = Collected(self._source.collect())  # in the thread that changes the values
                return 200, *await asyncio.to_thread(exposition, collected)
            case "/healthz" | "/livez":
                return 200, _TEXT, b"ok\n"
            case "/readyz":
                if reason := self._waits():
                    return 503, _TEXT, f"not ready: {reason}\n".encode()
                return 200, _TEXT, b"ok\n"
        return 404, _TEXT, b"not found\n"

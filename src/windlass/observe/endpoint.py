"""``/metrics``, ``/healthz`` and ``/readyz`` of a process that serves nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from windlass.api.errors import WindlassError
from windlass.observe.metrics import Collected, exposition

ADDRESS = "WL-METRICS-400"
_HEAD_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[V6]:PORT`` or ``:PORT`` (all addresses). Raises :class:`WindlassError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise WindlassError(
            ADDRESS,
            f"{text!r} is not an address to listen on",
            remedies=("write HOST:PORT, for instance 127.0.0.1:8080",),
        )
    return host.strip("[]"), int(port)


def not_ready(ready: bool, unknown: Sequence[str]) -> str:
    """Why an instance is not ready, empty if it is. ``unknown``: kinds that it has not read completely yet."""
    if ready:
        return ""
    if unknown:
        return f"not known yet: {', '.join(dict.fromkeys(unknown))}"
    return "it does not lead, and has not read of late who does"


class Endpoint:
    """``waits()`` answers ``/readyz``: why this process is not ready, empty if it is. It answers ``/healthz`` as long
    as its event loop turns."""

    def __init__(self, source: CollectorRegistry, waits: Callable[[], str]) -> None:
        self._source = source
        self._waits = waits
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises :class:`WindlassError` where that is not possible."""
        try:
            self._server = await asyncio.start_server(self._serve, host or None, port)
        except OSError as error:
            raise WindlassError(
                ADDRESS,
                f"cannot listen on {host or '*'}:{port}: {error.strerror or error}",
                remedies=("choose another address with --metrics-bind",),
            ) from error
        return self._server.sockets[0].getsockname()[1]

    async def serve_on(self, listener: socket.socket) -> None:
        """Answer on a Unix socket that listens already; it is closed with the endpoint."""
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # whoever asked has gone, or asks nonsense: the connection is closed
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        method, target = (words[0], words[1]) if len(words) == 3 else (b"", b"")
        path = target.split(b"?", 1)[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", _TEXT, b"only GET\n")
        match path:
            case "/metrics":
                told = Collected(self._source.collect())  # here, where all of it is kept
                kind, body = await asyncio.to_thread(exposition, told)
                return _response("200 OK", kind, body)
            case "/healthz" | "/livez":
                return _response("200 OK", _TEXT, b"ok\n")
            case "/readyz":
                if not (words := self._waits()):
                    return _response("200 OK", _TEXT, b"ok\n")
                return _response("503 Service Unavailable", _TEXT, f"not ready: {words}\n".encode())
        return _response("404 Not Found", _TEXT, b"not found\n")


def _response(status: str, kind: str, body: bytes) -> bytes:
    headers = f"content-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return f"HTTP/1.1 {status}\r\n{headers}".encode("latin-1") + body

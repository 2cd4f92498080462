"""Small gRPC over Unix sockets (HTTP/2 without TLS), for the device plugin API.

It needs the package h2 of the extra ``grpc``. Messages are bytes: their fields are read
and written by the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from windlass.node.probes.grpc_probe import CODES, RpcError, require_http2

_READ_BYTES = 1 << 16
_MAX_MESSAGE_BYTES = 16 << 20
_PREFIX = 5
Handler = Callable[[bytes], AsyncIterator[bytes]]
"""Handler of a method: yields its responses, one for a method that does not stream."""


def framed(message: bytes) -> bytes:
    """Return an uncompressed message with its length."""
    return b"\0" + struct.pack(">I", len(message)) + message


def split(buffer: bytearray) -> list[bytes]:
    """Remove the complete messages from a buffer and return them. Raises ``ValueError``."""
    found = []
    while len(buffer) >= _PREFIX:
        size = int.from_bytes(buffer[1:_PREFIX], "big")
        if buffer[0] or size > _MAX_MESSAGE_BYTES:
            raise ValueError("a message is compressed or too long")
        if len(buffer) < _PREFIX + size:
            break
        found.append(bytes(buffer[_PREFIX : _PREFIX + size]))
        del buffer[: _PREFIX + size]
    return found


async def call(path: str, method: str, message: bytes, timeout_seconds: float = 10.0) -> bytes:
    """Return the response of a method that does not stream. Raises :class:`RpcError`."""
    try:
        async with asyncio.timeout(timeout_seconds):
            async for response in stream(path, method, message):
                return response
    except TimeoutError as error:
        raise RpcError("DeadlineExceeded", f"{method} of {path} did not answer") from error
    raise RpcError("Internal", f"{method} of {path} sent no message")


async def stream(path: str, method: str, message: bytes) -> AsyncIterator[bytes]:
    """Yield the responses of a method until its end. Raises :class:`RpcError`."""
    require_http2()
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.exceptions import H2Error

    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise RpcError("Unavailable", f"{path}: {error.strerror or error}") from error
    wire = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    try:
        wire.initiate_connection()
        number = wire.get_next_available_stream_id()
        names = ((":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", method))
        wire.send_headers(number, [*names, ("te", "trailers"), ("content-type", "application/grpc")])
        wire.send_data(number, framed(message), end_stream=True)
        async for response in _responses(wire, reader, writer):
            yield response
    except (OSError, EOFError, ValueError, H2Error) as error:
        raise RpcError("Unavailable", str(error) or "the connection was closed") from error
    finally:
        writer.transport.abort()


async def _responses(
    wire: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    from h2 import events

    buffer, headers, ended = bytearray(), dict[str, str](), False
    while not ended:
        writer.write(wire.data_to_send())
        data = await reader.read(_READ_BYTES)
        if not data:
            raise EOFError("the connection was closed")
        for event in wire.receive_data(data):
            if isinstance(event, events.ResponseReceived | events.TrailersReceived):
                headers.update((str(name), str(value)) for name, value in event.headers or ())
            elif isinstance(event, events.DataReceived):
                buffer += event.data or b""
                wire.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
            elif isinstance(event, events.StreamReset | events.ConnectionTerminated):
                raise EOFError("the server closed the stream")
            elif isinstance(event, events.StreamEnded):
                ended = True
        for response in split(buffer):
            yield response
    writer.write(wire.data_to_send())
    code = int(headers.get("grpc-status", "2"))
    if code:
        name = CODES[code] if code < len(CODES) else f"Code({code})"
        raise RpcError(name, unquote(headers.get("grpc-message", "")))


class RpcServer:
    """Server of some methods on a Unix socket. ``handlers``: path → handler."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, path: str) -> None:
        require_http2()
        self._server = await asyncio.start_unix_server(self._accept, path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await _Connection(self._handlers, reader, writer).serve()
        finally:
            self._connections.discard(task)
            writer.transport.abort()


class _Connection:
    """One client of a server."""

    def __init__(
        self, handlers: Mapping[str, Handler], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self._handlers = handlers
        self._reader, self._writer = reader, writer
        self._wire = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._methods: dict[int, str] = {}
        self._bodies: dict[int, bytearray] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        from h2 import events
        from h2.exceptions import H2Error

        self._wire.initiate_connection()
        self._flush()
        try:
            while data := await self._reader.read(_READ_BYTES):
                for event in self._wire.receive_data(data):
                    if isinstance(event, events.RequestReceived) and event.stream_id:
                        self._methods[event.stream_id] = dict(event.headers or ()).get(":path", "")  # type: ignore[arg-type]
                        self._bodies[event.stream_id] = bytearray()
                    elif isinstance(event, events.DataReceived) and event.stream_id in self._bodies:
                        self._bodies[event.stream_id] += event.data or b""
                        self._wire.acknowledge_received_data(
                            event.flow_controlled_length or 0, event.stream_id
                        )
                    elif isinstance(event, events.StreamEnded) and event.stream_id:
                        task = asyncio.ensure_future(self._answer(event.stream_id))
                        self._tasks[event.stream_id] = task
                    elif isinstance(event, events.StreamReset) and event.stream_id in self._tasks:
                        self._tasks[event.stream_id].cancel()
                self._flush()
        except (OSError, H2Error):
            pass  # the client is gone, or does not speak HTTP/2
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _flush(self) -> None:
        if data := self._wire.data_to_send():
            self._writer.write(data)

    async def _answer(self, number: int) -> None:
        from h2.exceptions import H2Error

        method = self._methods.pop(number, "")
        messages = split(self._bodies.pop(number, bytearray()))
        handler = self._handlers.get(method)
        code, why = 0, ""
        with contextlib.suppress(H2Error):
            self._wire.send_headers(number, [(":status", "200"), ("content-type", "application/grpc")])
            if handler is None:
                code, why = CODES.index("Unimplemented"), f"unknown method {method}"
            else:
                try:
                    async for response in handler(messages[0] if messages else b""):
                        self._wire.send_data(number, framed(response))
                        self._flush()
                except RpcError as error:
                    code, why = CODES.index(error.code), error.message
            self._wire.send_headers(
                number, [("grpc-status", str(code)), ("grpc-message", quote(why))], end_stream=True
            )
            self._flush()

"""Requests and responses, independent of any HTTP library.

Two transports implement :class:`Transport`: HTTP (``client.http``) and, for tests, the
in-process one of ``server``. The in-process transport enters the server after HTTP
decoding. So its requests pass authentication's result, authorisation, admission and
validation like all others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec


class Request(msgspec.Struct, frozen=True):
    """HTTP request.

    ``path``: without the query.
    ``query``: the text after ``?``, not decoded.
    Header names are lower case.
    ``subprotocols``: those that a client offers for an upgrade to a WebSocket. None: the
    request is not such an upgrade.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    subprotocols: tuple[str, ...] | None = None


class WebSocket(Protocol):
    """Connection after an upgrade."""

    async def receive(self) -> bytes | None:
        """Return the next message; None if the client has left."""
        ...

    async def send(self, message: bytes) -> None:
        """Send a message; it returns when the client takes more. No error if the client has left."""
        ...


class Upgrade(msgspec.Struct, frozen=True):
    """Acceptance of an upgrade. ``serve`` runs until the connection shall be closed."""

    subprotocol: str
    serve: Callable[[WebSocket], Awaitable[None]]


class ByteStream(Protocol):
    """Async iterator of bytes. A broken stream raises ``client.errors.Unreachable``."""

    def __aiter__(self) -> Any: ...

    def __anext__(self) -> Awaitable[bytes]: ...

    def aclose(self) -> Awaitable[Any]: ...


class Response(msgspec.Struct):
    """HTTP response: a whole ``body``, or a ``stream`` of chunks (watch, followed log).

    The consumer of a stream must exhaust it or call ``aclose``. Header names are lower
    case. The values of a repeated header are joined by ``", "``. ``upgrade``: set with
    status 101.
    """

    status: int
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    stream: ByteStream | None = None
    upgrade: Upgrade | None = None


async def whole(response: Response, most: int | None = None) -> bytes:
    """Return the whole body, of a stream as well.

    Raises ``client.errors.Unreachable`` if the stream breaks, and :class:`TooLong` for
    a body of more than ``most`` bytes.
    """
    if response.stream is None:
        if most is not None and len(response.body) > most:
            raise TooLong(most)
        return response.body
    size, chunks = 0, []
    try:
        async for chunk in response.stream:
            chunks.append(chunk)
            size += len(chunk)
            if most is not None and size > most:
                raise TooLong(most)
    finally:
        await response.stream.aclose()
    return b"".join(chunks)


class TooLong(ValueError):
    """Response with more bytes than accepted."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the answer is longer than {most} bytes")


class Transport(Protocol):
    """Transport that sends one request.

    Raises ``client.errors.Unreachable`` if there is no response.
    """

    async def request(self, request: Request) -> Response: ...

    async def close(self) -> None: ...

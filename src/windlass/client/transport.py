"""What a request and an answer are, below any HTTP library.

Two transports implement :class:`Transport`: HTTP (``client.http``) and, for tests, the in-process one
that ``server`` provides. The in-process transport enters the server after HTTP decoding, so it
passes authentication's result, authorisation, admission and validation like any other caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec


class Request(msgspec.Struct, frozen=True):
    """``path`` without query; ``query`` as it stands after ``?``, undecoded; header names lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""


class ByteStream(Protocol):
    """What async generators of bytes are. A stream that breaks raises ``client.errors.Unreachable``."""

    def __aiter__(self) -> Any: ...

    def __anext__(self) -> Awaitable[bytes]: ...

    def aclose(self) -> Awaitable[Any]: ...


class Response(msgspec.Struct):
    """Either a whole ``body`` or a ``stream`` of byte chunks (watch, followed log).

    Whoever takes a stream must exhaust it or call its ``aclose``. Header names are lower case; the
    values of a repeated header are joined by ``", "``.
    """

    status: int
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    stream: ByteStream | None = None


class Transport(Protocol):
    """Sends one request. Raises ``client.errors.Unreachable`` when no answer can be had."""

    async def request(self, request: Request) -> Response: ...

    async def close(self) -> None: ...

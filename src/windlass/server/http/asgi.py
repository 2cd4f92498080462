"""The ASGI application: HTTP requests become :class:`Request`, answers become bytes on the wire.

A stream ends as soon as its client leaves (``http.disconnect``), and a client that does not read for
long is cut off, so that no watch outlives its reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

from windlass.api.errors import StatusError, failure
from windlass.client.transport import ByteStream, Request, Response
from windlass.server.apiserver import ApiServer
from windlass.server.auth.authentication import Authenticator
from windlass.server.presentation import responses

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
IDENTITY = "windlass.identity"
ABORT = "windlass.abort"
"""Keys of the connection's state: who it belongs to (or ``None``), and how to cut it off."""
EXCHANGE = "windlass.exchange"
"""Key of the request's state: an :class:`Exchange`, from a server that offers the short way."""
UNIQUE = frozenset(("audit-id",))
"""Headers of answers whose value is never the same twice."""
_STALL_SECONDS = 60.0
_PATIENCE = 4
"""A body up to this many times the limit is read to its end, so that the client is there for the refusal."""
_BODILESS = ("GET", "HEAD", "OPTIONS")


class Exchange(Protocol):
    """The short way for requests and answers that are whole. ``fields``: headers, names in lower case."""

    fields: Mapping[str, str]

    def whole_body(self) -> bytes | None:
        """Takes the body if all of it has come; ``None``: it has to be received piece by piece."""
        ...

    def respond(self, status: int, headers: Mapping[str, str], body: bytes, *, closing: bool = False) -> bool:
        """Sends a whole answer, unless there is something to wait for first: then ``False``.

        ``closing``: the connection ends with it.
        """
        ...


class Disconnected(Exception):
    """The client left before its request was complete."""


class Application:
    """ASGI 3, HTTP only."""

    def __init__(self, api: ApiServer, authenticator: Authenticator) -> None:
        self._api = api
        self._authenticator = authenticator
        self._limit = api.options.body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange | None = scope["state"].pop(EXCHANGE, None)
        headers: Mapping[str, str]
        if exchange is None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        else:
            headers = exchange.fields
        closing = False
        try:
            user = self._authenticator.user(scope["state"].get(IDENTITY), headers.get("authorization"))
            body = b""
            method = scope["method"]
            if method not in _BODILESS or headers.get("content-length", "0") != "0":
                whole = exchange.whole_body() if exchange is not None else None
                body = await self._body(headers, receive) if whole is None else self._checked(whole)
            path = scope["raw_path"].decode("latin-1")
            request = Request(method, path, scope["query_string"].decode("latin-1"), headers, body)
        except Disconnected:
            return
        except StatusError as error:
            response, closing = responses.rejection(error), True
        else:
            response = await self._api.handle(request, user)
        if not _respond(exchange, response, closing=closing):
            await _answer(scope, receive, send, response, closing=closing)

    def _checked(self, body: bytes) -> bytes:
        if len(body) > self._limit:
            raise self._too_large()
        return body

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The whole body. Raises 413, and :class:`Disconnected`."""
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._limit * _PATIENCE:
            raise self._too_large()
        pieces: list[bytes] = []
        total = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            piece = message.get("body", b"")
            total += len(piece)
            if total <= self._limit:
                pieces.append(piece)
            elif total > self._limit * _PATIENCE:
                raise self._too_large()
            if not message.get("more_body"):
                if total > self._limit:
                    raise self._too_large()
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self) -> StatusError:
        return failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {self._limit}")


def _headers(response: Response, *, closing: bool) -> list[tuple[bytes, bytes]]:
    # Warnings may hold any text; clients read header bytes as UTF-8 where they are not ASCII.
    headers = [
        (name.encode("latin-1"), value.encode("utf-8", "replace")) for name, value in response.headers.items()
    ]
    if closing:
        headers.append((b"connection", b"close"))
    if response.stream is None and response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    return headers


def _respond(exchange: Exchange | None, response: Response, *, closing: bool) -> bool:
    """The short way, where it can be taken."""
    if exchange is None or response.stream is not None:
        return False
    return exchange.respond(response.status, response.headers, response.body, closing=closing)


async def _answer(scope: Scope, receive: Receive, send: Send, response: Response, *, closing: bool) -> None:
    headers = _headers(response, closing=closing)
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if response.stream is None:
        await send({"type": "http.response.body", "body": response.body})
    else:
        await _stream(scope, receive, send, response.stream)


async def _stream(scope: Scope, receive: Receive, send: Send, stream: ByteStream) -> None:
    pump = _Pump(send, stream)
    pumping = asyncio.ensure_future(pump.run())
    gone = asyncio.ensure_future(_left(receive))
    guard = asyncio.ensure_future(pump.stalled())
    try:
        await asyncio.wait((pumping, gone, guard), return_when=asyncio.FIRST_COMPLETED)
        failed = pumping.done() and pumping.exception() is not None
        if failed or guard.done():
            # What was sent cannot be taken back: a broken connection tells the client that it is not all.
            abort = scope["state"].get(ABORT)
            if abort is not None:
                abort()
        if failed:
            pumping.result()
    finally:
        for task in (pumping, gone, guard):
            task.cancel()
        await asyncio.gather(pumping, gone, guard, return_exceptions=True)
        await stream.aclose()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Pump:
    """Sends what the stream gives, and knows since when a chunk has not been taken."""

    def __init__(self, send: Send, stream: ByteStream) -> None:
        self._send = send
        self._stream = stream
        self._sent = 0
        self._sending = False

    async def run(self) -> None:
        send = self._send
        async for chunk in self._stream:
            self._sending = True
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._sending = False
            self._sent += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stalled(self) -> None:
        """Return when one and the same chunk has been waiting from one look to the next."""
        seen = -1
        while not (self._sending and seen == self._sent):
            seen = self._sent if self._sending else -1
            await asyncio.sleep(_STALL_SECONDS)

"""The ASGI application: HTTP requests become :class:`Request`, answers become bytes on the wire.

An upgrade to a WebSocket is a request like any other, until it is accepted.

A stream ends as soon as its client leaves (``http.disconnect``), and a client that does not read for
long is cut off, so that no watch outlives its reader.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import StatusError, failure
from windlass.client.batching import BATCH_PATH
from windlass.client.transport import ByteStream, Request, Response, whole
from windlass.observe.http_server import PEER, Peer, Receive, Scope, Send, offered_subprotocols
from windlass.server.apiserver import ApiServer
from windlass.server.auth.authentication import Authenticator, user_of_certificate
from windlass.server.http.batches import handle_batch
from windlass.server.presentation import responses
from windlass.server.request.users import UserInfo

_STALL_SECONDS = 60.0
_PATIENCE = 4
"""A body up to this many times the limit is read to its end, so that the client is there for the refusal."""
_BODILESS = ("GET", "HEAD", "OPTIONS")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that would end a header."""


class Disconnected(Exception):
    """The client left before its request was complete."""


class Application:
    """ASGI 3: HTTP and WebSockets."""

    def __init__(self, api: ApiServer, authenticator: Authenticator, owner: UserInfo | None = None) -> None:
        """``owner``: user of all connections, whatever credentials a request has."""
        self._api = api
        self._authenticator = authenticator
        self._owner = owner
        self._limit = api.options.body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        peer: Peer = scope["state"][PEER]
        closing = False
        try:
            owner = self._owner or user_of_certificate(peer.certificate)
            user = self._authenticator.user(owner, headers.get("authorization"))
            body = b""
            method = scope["method"]
            if method not in _BODILESS or headers.get("content-length", "0") != "0":
                body = await self._body(headers, receive)
            path = scope["raw_path"].decode("latin-1")
            request = Request(method, path, scope["query_string"].decode("latin-1"), headers, body)
        except Disconnected:
            return
        except StatusError as error:
            response, closing = responses.rejection(error), True
        else:
            response = await self._handle(request, user)
        await _answer(peer, receive, send, response, closing=closing)

    async def _handle(self, request: Request, user: UserInfo) -> Response:
        """Handle a request, or a batch of requests of the components that run as the owner."""
        if self._owner is not None and request.path == BATCH_PATH and request.method == "POST":
            return await handle_batch(self._api, request.body, user)
        return await self._api.handle(request, user)

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        peer: Peer = scope["state"][PEER]
        await receive()
        try:
            owner = self._owner or user_of_certificate(peer.certificate)
            user = self._authenticator.user(owner, headers.get("authorization"))
        except StatusError as error:
            response = responses.rejection(error)
        else:
            request = Request(
                "GET",
                scope["raw_path"].decode("latin-1"),
                scope["query_string"].decode("latin-1"),
                headers,
                subprotocols=offered_subprotocols(scope),
            )
            response = await self._api.handle(request, user)
        if response.upgrade is None:
            body = await whole(response)
            begin = {"type": "websocket.http.response.start", "status": response.status}
            await send({**begin, "headers": _headers(response, closing=True)})
            await send({"type": "websocket.http.response.body", "body": body})
            return
        await send({"type": "websocket.accept", "subprotocol": response.upgrade.subprotocol or None})
        socket = _AsgiWebSocket(receive, send)
        await response.upgrade.serve(socket)
        await socket.close()

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


class _AsgiWebSocket:
    """Implements :class:`windlass.client.transport.WebSocket`."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._left = False

    async def receive(self) -> bytes | None:
        if self._left:
            return None
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._left = True
            return None
        return message.get("bytes") or (message.get("text") or "").encode()

    async def send(self, message: bytes) -> None:
        await self._deliver({"type": "websocket.send", "bytes": message})

    async def close(self) -> None:
        await self._deliver({"type": "websocket.close", "code": 1000})

    async def _deliver(self, event: dict[str, Any]) -> None:
        if self._left:
            return
        try:
            await self._send(event)
        except OSError:  # uvicorn's ClientDisconnected
            self._left = True


def _headers(response: Response, *, closing: bool) -> list[tuple[bytes, bytes]]:
    # Warnings may hold any text; clients read header bytes as UTF-8 where they are not ASCII.
    headers = [
        (name.encode("latin-1"), value.encode("utf-8", "replace")) for name, value in response.headers.items()
    ]
    for name, value in headers:
        if _CONTROL.search(value):  # here, so that there is an answer: uvicorn would close the connection
            raise RuntimeError(f"the value of header {name!r} contains control characters")
    if closing:
        headers.append((b"connection", b"close"))
    if response.stream is None and response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    return headers


async def _answer(peer: Peer, receive: Receive, send: Send, response: Response, *, closing: bool) -> None:
    headers = _headers(response, closing=closing)
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if response.stream is None:
        await send({"type": "http.response.body", "body": response.body})
    else:
        await _stream(peer, receive, send, response.stream)


async def _stream(peer: Peer, receive: Receive, send: Send, stream: ByteStream) -> None:
    pump = _Pump(send, stream)
    pumping = asyncio.ensure_future(pump.run())
    gone = asyncio.ensure_future(_left(receive))
    guard = asyncio.ensure_future(pump.stalled())
    try:
        await asyncio.wait((pumping, gone, guard), return_when=asyncio.FIRST_COMPLETED)
        failed = pumping.done() and pumping.exception() is not None
        if failed or guard.done():
            # What was sent cannot be taken back: a broken connection tells the client that it is not all.
            peer.abort()
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

"""HTTP API of the driver, as an ASGI application."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.items.driver.messages import CommitRequest, LeaseRequest, RetryRequest
from windlass.observe.http_server import Receive, Scope, Send

if TYPE_CHECKING:
    from windlass.items.driver.service import Driver

MAX_BODY_BYTES = 256 * 2**20
"""Maximum size of a request in bytes."""
_encode = msgspec.json.Encoder().encode
Handler = Callable[[bytes, str], Awaitable[Any]]


class DriverApi:
    """ASGI application. ``token``: bearer token of all requests; empty for none."""

    def __init__(self, driver: Driver, token: str) -> None:
        self._expected = f"Bearer {token}".encode() if token else b""
        lease = msgspec.json.Decoder(LeaseRequest).decode
        commit = msgspec.json.Decoder(CommitRequest).decode
        retry = msgspec.json.Decoder(RetryRequest).decode
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/register"): lambda body, query: driver.register(lease(body)),
            ("POST", "/v1/lease"): lambda body, query: driver.lease(lease(body)),
            ("POST", "/v1/heartbeat"): lambda body, query: driver.heartbeat(lease(body)),
            ("POST", "/v1/commit"): lambda body, query: driver.commit(commit(body)),
            ("POST", "/v1/fail"): lambda body, query: driver.give_back(lease(body)),
            ("POST", "/v1/retry"): lambda body, query: driver.retry(retry(body or b"{}")),
            ("GET", "/v1/status"): lambda body, query: driver.status(),
            ("GET", "/v1/deadletters"): lambda body, query: driver.dead_letters(_limit(query)),
            ("GET", "/healthz"): lambda body, query: driver.healthy(),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        code, answer = await self._answer(scope, receive)
        body = _encode(answer)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, Any]:
        body = await _body(receive)
        if body is None:
            return 413, {"error": f"the request has more than {MAX_BODY_BYTES} bytes"}
        if self._expected and scope["path"] != "/healthz":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                return 401, {"error": "the request needs the bearer token of the job"}
        handler = self._routes.get((scope["method"], scope["path"]))
        if handler is None:
            return 404, {"error": f"{scope['method']} {scope['path']} is not known"}
        try:
            return 200, await handler(body, scope["query_string"].decode())
        except (msgspec.DecodeError, ValueError) as error:
            return 400, {"error": str(error)}
        except NotReady as error:
            return 503, {"error": str(error)}


class NotReady(RuntimeError):
    """A request that can be answered only after the admission."""


async def _body(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            return None
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


def _limit(query: str) -> int:
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == "limit" and value.isdigit():
            return int(value)
    return 1000

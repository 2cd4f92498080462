"""HTTP API of the driver, as an ASGI application."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from windlass.items.driver.messages import CommitRequest, EndRequest, LeaseRequest, QueryRequest, RetryRequest
from windlass.items.driver.scaler import ScalerRequest
from windlass.observe.http_server import Receive, Scope, Send

if TYPE_CHECKING:
    from windlass.items.driver.service import Driver

MAX_BODY_BYTES = 256 * 2**20
"""Maximum size of a request in bytes."""
STAGES_PATH = "/stages/"
"""Beginning of the paths for workers of a stage: ``/stages/NAME/v1/lease``."""
_encode = msgspec.json.Encoder().encode
Handler = Callable[[bytes, str], Awaitable[Any]]


class DriverApi:
    """ASGI application. ``token``: bearer token of all requests; empty for none."""

    def __init__(self, driver: Driver, token: str) -> None:
        self._expected = f"Bearer {token}".encode() if token else b""
        retry = msgspec.json.Decoder(RetryRequest).decode
        self._stages = {name: _of_workers(desk) for name, desk in driver.desks.items()}
        scale = msgspec.json.Decoder(ScalerRequest).decode
        end = msgspec.json.Decoder(EndRequest).decode
        queries = msgspec.json.Decoder(QueryRequest).decode
        self._routes: dict[tuple[str, str], Handler] = {
            **_of_workers(driver),
            ("POST", "/v1/retry"): lambda body, query: driver.retry(retry(body or b"{}")),
            ("POST", "/v1/end"): lambda body, query: driver.end(end(body or b"{}")),
            ("POST", "/v1/metrics"): lambda body, query: _metrics(queries(body)),
            ("POST", "/v1/scaling"): lambda body, query: driver.scaler.recommend(scale(body)),
            ("GET", "/v1/status"): lambda body, query: driver.status(peek=_peeks(query)),
            ("GET", "/v1/groups"): lambda body, query: driver.groups(),
            ("GET", "/v1/deadletters"): lambda body, query: driver.dead_letters(_limit(query)),
            ("GET", "/v1/contexts"): lambda body, query: driver.contexts(_limit(query), _wanted(query)),
            ("GET", "/healthz"): lambda body, query: driver.healthy(),
        }

    def _handler(self, method: str, path: str) -> Handler | None:
        if path.startswith(STAGES_PATH):
            name, _, rest = path.removeprefix(STAGES_PATH).partition("/")
            return self._stages.get(name, {}).get((method, f"/{rest}"))
        return self._routes.get((method, path))

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
        handler = self._handler(scope["method"], scope["path"])
        if handler is None:
            return 404, {"error": f"{scope['method']} {scope['path']} is not known"}
        try:
            return 200, await handler(body, scope["query_string"].decode())
        except (msgspec.DecodeError, ValueError) as error:
            return 400, {"error": str(error)}
        except NotReady as error:
            return 503, {"error": str(error)}


def _of_workers(desk: Driver) -> dict[tuple[str, str], Handler]:
    """Return the requests of workers."""
    lease = msgspec.json.Decoder(LeaseRequest).decode
    commit = msgspec.json.Decoder(CommitRequest).decode
    return {
        ("POST", "/v1/register"): lambda body, query: desk.register(lease(body)),
        ("POST", "/v1/lease"): lambda body, query: desk.lease(lease(body)),
        ("POST", "/v1/heartbeat"): lambda body, query: desk.heartbeat(lease(body)),
        ("POST", "/v1/commit"): lambda body, query: desk.commit(commit(body)),
        ("POST", "/v1/fail"): lambda body, query: desk.give_back(lease(body)),
    }


class NotReady(RuntimeError):
    """A request that can be answered only after the admission."""


def _peeks(query: str) -> bool:
    """Return whether the reader is another one than that for which the driver waits at its end."""
    return parse_qs(query).get("peek", [""])[0] == "true"


async def _metrics(request: QueryRequest) -> dict[str, Any]:
    from windlass.items.driver.prometheus import query_all  # on use: HTTP costs the start of each driver

    return await asyncio.to_thread(query_all, request)


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


def _wanted(query: str) -> str:
    return (parse_qs(query).get("id") or [""])[0]


def _limit(query: str) -> int:
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == "limit" and value.isdigit():
            return int(value)
    return 1000

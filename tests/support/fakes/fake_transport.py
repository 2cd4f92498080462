"""A transport without a server: a function answers requests; watch streams are fed by hand."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from windlass.api.errors import StatusError
from windlass.client.transport import Request, Response

Answer = Response | Exception
Handler = Callable[[Request], "Answer | Awaitable[Answer]"]


class FedStream:
    """A body stream that the test feeds. ``closed`` tells whether the reader let go of it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False

    def feed(self, data: bytes) -> None:
        self._queue.put_nowait(data)

    def event(self, kind: str, obj: Any) -> None:
        self.feed(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")

    def end(self, error: Exception | None = None) -> None:
        self._queue.put_nowait(error)

    def __aiter__(self) -> FedStream:
        return self

    async def __anext__(self) -> bytes:
        if self.closed:
            raise StopAsyncIteration
        item = await self._queue.get()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item

    async def aclose(self) -> None:
        self.closed = True


class FakeTransport:
    """``requests`` are all that came. The handler returns a Response, or an exception to raise."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self.closed = False

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.handler(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, StatusError):
            return failure_response(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


def script(*answers: Answer) -> Handler:
    """A handler that gives these answers in turn."""
    left = list(answers)

    def handler(request: Request) -> Answer:
        assert left, f"no answer is left for {request.method} {request.path}?{request.query}"
        return left.pop(0)

    return handler


def ok(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    all_headers = {"content-type": "application/json", **(headers or {})}
    return Response(status, all_headers, msgspec.json.encode(body))


def failure_response(error: StatusError) -> Response:
    headers = {"content-type": "application/json", **error.headers}
    return Response(error.code, headers, msgspec.json.encode(error.status))


def page(items: list[Any], rv: str = "1", token: str = "") -> Response:
    metadata = {"resourceVersion": rv, "continue": token} if token else {"resourceVersion": rv}
    return ok({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})


def streaming(stream: FedStream) -> Response:
    return Response(200, {"content-type": "application/json"}, stream=stream)


def query_of(request: Request) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(request.query, keep_blank_values=True).items()}

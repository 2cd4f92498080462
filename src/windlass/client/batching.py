"""Transport that sends writes together which are requested at the same time.

The embedded server takes several requests in one HTTP request on its Unix socket
(``POST /windlass.dev/batch``). It handles each like a request of its own: with the same
authorization, admission, validation and status. One HTTP exchange costs both sides more
than the write in it, so the components of single-node mode send their writes this way.

- A write that is requested alone is sent as it is, at once.
- At most :data:`IN_FLIGHT` exchanges run at once. Writes that are requested meanwhile
  wait, and are sent together.
- Reads are sent as they are, since a response may be a long list or a stream.
- Requests of one batch have no order, like those of different connections.
- If an exchange fails, each of its requests fails the same way.
- A server that does not know batches (404) gets all requests one by one from then on.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from windlass.client.transport import Request, Response, Transport

BATCH_PATH = "/windlass.dev/batch"
MEDIA_TYPE = "application/vnd.windlass.batch+msgpack"
MOST_REQUESTS = 16
"""Maximum number of requests of a batch. The server handles them in one turn of its loop,
so more would delay reads of other clients."""
MOST_BYTES = 512 * 1024
"""Maximum size (bytes) of the bodies of a batch. A larger request is sent alone."""
IN_FLIGHT = 4
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class BatchedRequest(msgspec.Struct, array_like=True, frozen=True):
    """One request of a batch. The fields are those of :class:`Request`."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class BatchedResponse(msgspec.Struct, array_like=True, frozen=True):
    """Response to one request of a batch, at the same position."""

    status: int
    headers: dict[str, str]
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_responses = msgspec.msgpack.Decoder(list[BatchedResponse])
_Waiting = tuple[Request, asyncio.Future[Response]]


class BatchingTransport:
    """``client.transport.Transport`` on top of another one. It belongs to one event loop."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._waiting: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flush_due = False
        self._understood = True

    async def request(self, request: Request) -> Response:
        """Send a request and return its response. Raises what the transport below raises."""
        if (
            not self._understood
            or request.method not in _WRITES
            or request.subprotocols is not None
            or len(request.body) > MOST_BYTES
        ):
            return await self._transport.request(request)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        self._waiting.append((request, future))
        if not self._flush_due:
            self._flush_due = True
            loop.call_soon(self._flush)
        return await future

    async def close(self) -> None:
        """Close the transport below. Requests in flight end with ``Unreachable``."""
        await self._transport.close()

    def _flush(self) -> None:
        self._flush_due = False
        while self._waiting and len(self._tasks) < IN_FLIGHT:
            batch = self._take()
            if batch:
                task = asyncio.get_running_loop().create_task(self._send(batch), name="batch")
                self._tasks.add(task)
                task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._flush()

    def _take(self) -> list[_Waiting]:
        """Return the next batch. Requests that were cancelled while they waited are dropped."""
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < MOST_REQUESTS:
            request, future = self._waiting[0]
            if not future.done():
                size += len(request.body)
                if batch and size > MOST_BYTES:
                    break
                batch.append((request, future))
            self._waiting.popleft()
        return batch

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            responses = await self._exchange([request for request, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # each caller gets it, as if it had sent its request alone
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), response in zip(batch, responses, strict=True):
            if isinstance(response, BaseException):
                if not future.done():
                    future.set_exception(response)
            elif not future.done():
                future.set_result(response)

    async def _exchange(self, requests: list[Request]) -> list[Response | BaseException]:
        if len(requests) == 1:
            return [await self._transport.request(requests[0])]
        body = _encode(
            [BatchedRequest(one.method, one.path, one.query, dict(one.headers), one.body) for one in requests]
        )
        response = await self._transport.request(
            Request("POST", BATCH_PATH, headers={"content-type": MEDIA_TYPE}, body=body)
        )
        if response.status == 404:
            self._understood = False
            return await asyncio.gather(
                *(self._transport.request(one) for one in requests), return_exceptions=True
            )
        if response.status != 200:
            return [response for _ in requests]
        return [Response(one.status, one.headers, one.body) for one in _responses.decode(response.body)]

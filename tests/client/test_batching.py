"""Writes that are requested at the same time travel in one exchange."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from windlass.client import errors
from windlass.client.batching import (
    BATCH_PATH,
    IN_FLIGHT,
    MOST_BYTES,
    MOST_REQUESTS,
    BatchedRequest,
    BatchedResponse,
    BatchingTransport,
)
from windlass.client.errors import Unreachable
from windlass.client.transport import Request, Response

_decode = msgspec.msgpack.Decoder(list[BatchedRequest]).decode


class Server:
    """Transport that answers each request with its path, and batches if ``understands``."""

    def __init__(self, understands: bool = True) -> None:
        self.understands = understands
        self.exchanges: list[list[str]] = []
        """Paths of the requests of each exchange."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Unreachable | None = None
        self.status = 200
        self.closed = False

    async def request(self, request: Request) -> Response:
        batch = request.path == BATCH_PATH
        requests = _decode(request.body) if batch and self.understands else [request]
        self.exchanges.append([one.path for one in requests])
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if not batch:
            return Response(201, {"from": "single"}, request.path.encode())
        if not self.understands:
            return Response(404, {}, b"404 page not found\n")
        if self.status != 200:
            return Response(self.status, {"retry-after": "1"}, b"{}")
        answers = [BatchedResponse(201, {"from": "batch"}, one.path.encode()) for one in requests]
        return Response(200, {}, msgspec.msgpack.encode(answers))

    async def close(self) -> None:
        self.closed = True


def post(number: int, body: bytes = b"{}") -> Request:
    return Request("POST", f"/api/v1/{number}", headers={"content-type": "application/json"}, body=body)


async def send(transport: BatchingTransport, *requests: Request) -> list[Response | BaseException]:
    return await asyncio.gather(*(transport.request(one) for one in requests), return_exceptions=True)


async def test_a_write_alone_is_sent_as_it_is() -> None:
    server = Server()
    response = await BatchingTransport(server).request(post(1))
    assert (response.status, response.headers, response.body) == (201, {"from": "single"}, b"/api/v1/1")
    assert server.exchanges == [["/api/v1/1"]]


async def test_writes_at_the_same_time_share_an_exchange_and_get_their_own_responses() -> None:
    server = Server()
    responses = await send(BatchingTransport(server), *(post(i) for i in range(MOST_REQUESTS + 5)))
    assert [one.body for one in responses if isinstance(one, Response)] == [
        f"/api/v1/{i}".encode() for i in range(MOST_REQUESTS + 5)
    ]
    assert [len(paths) for paths in server.exchanges] == [MOST_REQUESTS, 5]


async def test_reads_and_large_writes_are_sent_alone() -> None:
    server = Server()
    large = post(3, b"x" * (MOST_BYTES + 1))
    await send(BatchingTransport(server), Request("GET", "/list"), post(1), post(2), large)
    assert sorted(map(len, server.exchanges)) == [1, 1, 2]
    assert ["/list"] in server.exchanges
    assert ["/api/v1/3"] in server.exchanges


async def test_bodies_of_a_batch_are_limited() -> None:
    server = Server()
    half = b"x" * (MOST_BYTES // 2)
    await send(BatchingTransport(server), *(post(i, half) for i in range(5)))
    assert [len(paths) for paths in server.exchanges] == [2, 2, 1]


async def test_writes_wait_while_all_exchanges_are_in_flight() -> None:
    server = Server()
    transport = BatchingTransport(server)
    server.gate.clear()
    first: list[asyncio.Task[Response]] = []
    for number in range(IN_FLIGHT):
        first.append(asyncio.create_task(transport.request(post(number))))
        await asyncio.sleep(0.01)
    rest = [asyncio.create_task(transport.request(post(100 + number))) for number in range(3)]
    await asyncio.sleep(0.01)
    assert len(server.exchanges) == IN_FLIGHT
    rest[1].cancel()
    server.gate.set()
    await asyncio.gather(*first, rest[0], rest[2])
    assert server.exchanges[IN_FLIGHT:] == [["/api/v1/100", "/api/v1/102"]], "a cancelled write is not sent"


async def test_each_write_of_a_failed_exchange_fails_the_same_way() -> None:
    server = Server()
    server.failure = errors.disconnected("here", "it broke", processed=True)
    found = await send(BatchingTransport(server), post(1), post(2))
    assert [isinstance(one, Unreachable) and one.processed for one in found] == [True, True]
    server.failure, server.status = None, 503
    found = await send(BatchingTransport(server), post(1), post(2))
    assert [isinstance(one, Response) and (one.status, one.headers) for one in found] == [
        (503, {"retry-after": "1"})
    ] * 2


async def test_a_server_without_batches_gets_requests_one_by_one() -> None:
    server = Server(understands=False)
    transport = BatchingTransport(server)
    found = await send(transport, post(1), post(2))
    assert [isinstance(one, Response) and one.body for one in found] == [b"/api/v1/1", b"/api/v1/2"]
    await send(transport, post(3), post(4))
    assert [paths for paths in server.exchanges if paths == [BATCH_PATH]] == [[BATCH_PATH]]
    assert len(server.exchanges) == 5


@pytest.mark.usefixtures("no_leaks")
async def test_a_cancelled_caller_leaves_the_others() -> None:
    server = Server()
    transport = BatchingTransport(server)
    server.gate.clear()
    tasks = [asyncio.create_task(transport.request(post(number))) for number in range(3)]
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    server.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [Response, asyncio.CancelledError, Response]
    await transport.close()
    assert server.closed

"""Metrics over HTTP, on a process that serves nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from windlass.api.errors import WindlassError
from windlass.observe import metrics
from windlass.observe.endpoint import Endpoint, not_ready, parse_address
from windlass.observe.http_server import ServerLimits
from windlass.observe.scheduling import SchedulerMetrics


class Served:
    def __init__(self) -> None:
        self.registry = metrics.registry()
        self.ready = False
        self.unknown = ["queues", "podgroups"]
        self.endpoint = Endpoint(self.registry, lambda: not_ready(self.ready, self.unknown))
        self.port = 0

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split(" ")[1]), body


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    made.port = await made.endpoint.start("127.0.0.1", 0)
    yield made
    await made.endpoint.stop()


async def test_paths(served: Served) -> None:
    status, body = await served.get("/metrics")
    assert status == 200
    assert "process_cpu_seconds_total" in body
    assert await served.get("/healthz") == (200, "ok\n")
    assert await served.get("/readyz") == (503, "not ready: not known yet: queues, podgroups\n")
    served.unknown = []
    assert "the leader is unknown" in (await served.get("/readyz"))[1]
    served.ready = True
    assert await served.get("/readyz?verbose") == (200, "ok\n")
    assert (await served.get("/secret"))[0] == 404
    assert (await served.get("/metrics", "POST"))[0] == 405


def test_what_was_collected_is_told_once() -> None:
    registry = metrics.registry()
    told = metrics.Collected(registry.collect())
    assert b"process_cpu_seconds_total" in metrics.exposition(told)[1]
    assert metrics.exposition(told)[1] == b""


async def test_reasons_and_queues_that_are_over_read_zero(served: Served) -> None:
    figures = SchedulerMetrics(served.registry)
    figures.waiting({"WaitingForQuota": 2, "BehindInQueue": 1})
    figures.queue("q", {"allocated": {"nvidia.com/gpu": 2500, "cpu": 1500}})
    figures.waiting({"WaitingForQuota": 0, "BehindInQueue": 1})
    figures.queue("q", {"allocated": {"cpu": 500}})
    _, body = await served.get("/metrics")
    assert 'windlass_scheduler_pending_groups{reason="WaitingForQuota"} 0.0' in body
    assert 'windlass_scheduler_pending_groups{reason="BehindInQueue"} 1.0' in body
    assert 'queue="q",resource="cpu",state="allocated"} 0.5' in body
    assert 'queue="q",resource="nvidia.com/gpu",state="allocated"} 0.0' in body
    figures.queue_gone("q")
    _, body = await served.get("/metrics")
    assert 'queue="q"' not in body


async def test_an_address_in_use_is_said(served: Served) -> None:
    other = Endpoint(served.registry, lambda: "")
    with pytest.raises(WindlassError, match=f"port {served.port} is in use"):
        await other.start("127.0.0.1", served.port)


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\n"])
async def test_connection_without_a_whole_request_is_closed(begun: bytes) -> None:
    endpoint = Endpoint(metrics.registry(), lambda: "", ServerLimits(head=0.2))
    port = await endpoint.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    await endpoint.stop()


@pytest.mark.usefixtures("no_leaks")
async def test_client_that_does_not_read_is_disconnected() -> None:
    registry = metrics.registry()
    figures = SchedulerMetrics(registry)
    for number in range(20_000):  # more than the buffers of the sockets hold
        figures.queue(f"queue-{number:060}", {"allocated": {"cpu": 1, "memory": 1}})
    endpoint = Endpoint(registry, lambda: "", ServerLimits(idle=0, head=1.0))
    port = await endpoint.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await asyncio.sleep(1.5)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await asyncio.wait_for(reader.readexactly(length), 60)
    writer.close()
    await endpoint.stop()


@pytest.mark.usefixtures("no_leaks")
async def test_above_the_maximum_of_connections_requests_are_refused() -> None:
    endpoint = Endpoint(metrics.registry(), lambda: "", ServerLimits(head=60.0, connections=3))
    port = await endpoint.start("127.0.0.1", 0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]

    async def probe() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    assert (await probe()).startswith(b"HTTP/1.1 503 ")
    for _, writer in silent:
        writer.close()
    async with asyncio.timeout(60):
        while not (await probe()).startswith(b"HTTP/1.1 200 "):
            await asyncio.sleep(0.01)
    await endpoint.stop()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":9", ("", 9)), ("[::1]:8080", ("::1", 8080))],
)
def test_addresses(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize("text", ["", "80", "host:", "host:99999", "host:x"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(WindlassError, match="not an address"):
        parse_address(text)

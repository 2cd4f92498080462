"""Server of the bind guard, and the label that selects it."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubeobjects import pod
from scheduler_api import SchedulerApi
from throwaway_certificates import Authority

from windlass.api.annotations import LEADER
from windlass.api.errors import WindlassError, failure
from windlass.api.resources import PODS
from windlass.kits.clock import FakeClock
from windlass.observe.http_server import ServerLimits
from windlass.scheduler.commit import bind_webhook
from windlass.scheduler.commit.bind_webhook import Evaluate, GuardServer, WebhookRequest
from windlass.scheduler.leader.leader_label import LeaderLabel


def secret(folder: Path) -> Authority:
    authority = Authority()
    pair = authority.server("127.0.0.1")
    (folder / "tls.crt").write_bytes(pair.cert)
    (folder / "tls.key").write_bytes(pair.key)
    (folder / "token").write_text("word\n")
    return authority


def review(**request: Any) -> bytes:
    asked = {"uid": "1", "object": {"metadata": {"name": "p"}}, **request}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    ).encode()


async def test_requests_over_one_connection(tmp_path: Path) -> None:
    authority = secret(tmp_path)
    answers: list[str | None] = ["", "no room", None]
    asked: list[WebhookRequest] = []

    async def judge(question: WebhookRequest) -> str | None:
        asked.append(question)
        return answers.pop(0)

    server = GuardServer(judge, tmp_path)
    port = await server.start("127.0.0.1", 0)
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)

    async def post(path: str, body: bytes) -> tuple[int, bytes]:
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split(" ")[1]), await reader.readexactly(size)

    try:
        status, body = await post("/bind/word?timeout=3s", review(name="p", namespace="n", dryRun=True))
        assert (status, json.loads(body)["response"]) == (200, {"uid": "1", "allowed": True})
        assert (asked[0].name, asked[0].namespace, asked[0].dry_run) == ("p", "n", True)
        status, body = await post("/bind/word", review())
        assert json.loads(body)["response"]["status"]["message"] == "no room"
        assert (await post("/bind/other", review()))[0] == 404
        assert (await post("/bind/word", b"{"))[0] == 400
        assert (await post("/bind/word", review()))[0] == 503
        assert len(asked) == 3
        assert await reader.read() == b""  # the next request is for the leader of that time
    finally:
        writer.close()
        await server.stop()


@asynccontextmanager
async def serving(
    folder: Path, limits: ServerLimits, evaluate: Evaluate
) -> AsyncIterator[Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]]:
    """Guard server; yields a function that connects to it."""
    trust = ssl.create_default_context(cadata=secret(folder).pem.decode())
    server = GuardServer(evaluate, folder, limits)
    port = await server.start("127.0.0.1", 0)
    writers = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writers.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        for writer in writers:
            writer.close()
        await server.stop()


async def allow(request: WebhookRequest) -> str | None:
    return ""


def request_bytes(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"POST /bind/word HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode() + body


async def status_of(reader: asyncio.StreamReader) -> int:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).lower()
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    await reader.readexactly(int(length.split(b" ")[1]))
    return int(head.split(b" ")[1])


async def test_connection_that_stays_idle_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, ServerLimits(idle=1, head=10.0), allow) as connect:
        reader, writer = await connect()
        for _ in range(2):
            writer.write(request_bytes(review()))
            assert await status_of(reader) == 200
        assert await asyncio.wait_for(reader.read(), 10) == b""


@pytest.mark.parametrize("begun", [b"", b"POST /bind/word HTTP/1.1\r\n"])
async def test_connection_without_a_whole_request_is_closed(tmp_path: Path, begun: bytes) -> None:
    async with serving(tmp_path, ServerLimits(head=0.2), allow) as connect:
        reader, writer = await connect()
        writer.write(begun)
        (ended,) = await asyncio.gather(asyncio.wait_for(reader.read(), 10), return_exceptions=True)
        assert ended == b"" or isinstance(ended, ConnectionResetError)


@pytest.mark.parametrize(
    ("body", "length", "status"), [(b"{", 100, 408), (b" " * 2000, 2000, 413), (b" " * 2000, 9000, 413)]
)
async def test_body_that_is_slow_or_too_large_is_refused(
    tmp_path: Path, body: bytes, length: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bind_webhook, "_BODY_SECONDS", 0.3)
    monkeypatch.setattr(bind_webhook, "MAX_BODY_BYTES", 1000)
    async with serving(tmp_path, bind_webhook.LIMITS, allow) as connect:
        reader, writer = await connect()
        writer.write(request_bytes(body, length))
        assert await status_of(reader) == status
        assert await asyncio.wait_for(reader.read(), 10) == b""


async def test_above_the_maximum_of_connections_requests_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, ServerLimits(head=10.0, connections=3), allow) as connect:
        admitted = [await connect() for _ in range(2)]
        reader, writer = await connect()
        writer.write(request_bytes(review()))
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 503 ")
        for reader, writer in admitted:
            writer.write(request_bytes(review()))
            assert await status_of(reader) == 200


async def test_server_ends_although_a_check_does_not(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def never(request: WebhookRequest) -> str | None:
        begun.set()
        await asyncio.Event().wait()
        return None

    async with serving(tmp_path, ServerLimits(drain=1), never) as connect:
        _, writer = await connect()
        writer.write(request_bytes(review()))
        await asyncio.wait_for(begun.wait(), 10)


async def test_a_missing_certificate_is_reported(tmp_path: Path) -> None:
    async def judge(question: WebhookRequest) -> str | None:
        return ""

    with pytest.raises(WindlassError) as caught:
        await GuardServer(judge, tmp_path).start("127.0.0.1", 0)
    assert caught.value.code == "WL-GUARD-400"


async def test_the_leaders_pod_is_labeled(fake_clock: FakeClock) -> None:
    api = SchedulerApi(fake_clock)
    api.add(pod("me"))

    def made(pod: str) -> LeaderLabel:
        return LeaderLabel(api, pod, "default", clock=fake_clock, rng=random.Random(1))  # type: ignore[arg-type]

    mark = made("me")
    await mark.write(leads=True)
    labels = api.stored[PODS]["default/me"]["metadata"]["labels"]
    assert (labels[LEADER], labels["windlass.dev/leads"]) == ("true", "true")
    await mark.write(leads=False)
    labels = api.stored[PODS]["default/me"]["metadata"]["labels"]
    assert LEADER not in labels
    assert "windlass.dev/leads" not in labels
    await made("nobody").write(leads=True)
    await made("").write(leads=True)


async def test_a_failed_label_is_written_again(fake_clock: FakeClock) -> None:
    """Otherwise the API server would not ask while this pod leads."""
    api = SchedulerApi(fake_clock)
    api.add(pod("me"))
    problems = [failure(500, "InternalError", "etcd"), failure(409, "Conflict", "x"), failure(403, "", "y")]
    api.reject = lambda verb, *_: problems.pop() if problems else None
    mark = LeaderLabel(api, "me", "default", clock=fake_clock, rng=random.Random(1))  # type: ignore[arg-type]
    before = asyncio.create_task(mark.write(leads=False))
    await fake_clock.advance(0)
    after = asyncio.create_task(mark.write(leads=True))
    for _ in range(20):
        await fake_clock.advance(0.5)
    assert before.done()
    assert after.done()
    assert not problems
    assert api.stored[PODS]["default/me"]["metadata"]["labels"][LEADER] == "true"

"""gRPC health checks against servers that are written down frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from windlass.kits.clock import SystemClock
from windlass.node.lifecycle.probe_results import Probe, ProbeKind
from windlass.node.probes.handlers import Actions, HandlerOutcome, ProbeResult
from windlass.node.sandbox.pod_network import NO_ISOLATION, Network

HERE = "127.0.0.1"
DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS, PADDED, PRIORITY = 1, 4, 8, 32


def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def message(status: int) -> bytes:
    body = bytes((8, status)) if status else b""
    return b"\0" + struct.pack(">I", len(body)) + body


FIRST = frame(SETTINGS, 0, b"", 0) + frame(
    HEADERS, END_HEADERS, b"\x20\x88" + literal("content-type", "application/grpc")
)
OK = frame(HEADERS, END_HEADERS | END_STREAM, literal("grpc-status", "0"))


@contextlib.asynccontextmanager
async def serving(*answers: bytes, hang: bool = False) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers what it has to say and hangs up; yields its port, and all that it was told."""
    told: list[bytes] = []
    over = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            told.append(await reader.read(4096))
            for answer in answers:
                writer.write(answer)
                await writer.drain()
                await asyncio.sleep(0)
            if hang:
                await over.wait()
        writer.close()

    server = await asyncio.start_server(handle, HERE, 0)
    try:
        yield server.sockets[0].getsockname()[1], told
    finally:
        over.set()
        server.close()


def made(tmp_path: Path, port: int, service: str = "", seconds: float = 20.0) -> tuple[Actions, Probe]:
    network = Network(tmp_path, NO_ISOLATION)
    actions = Actions(network, SystemClock(), attempt=lambda _: tmp_path, address=lambda: HERE)
    probe = Probe(ProbeKind.READINESS, "grpc", {"port": port, "service": service}, timeout_seconds=seconds)
    return actions, probe


async def ask(tmp_path: Path, port: int, *, service: str = "", seconds: float = 20.0) -> HandlerOutcome:
    actions, probe = made(tmp_path, port, service, seconds)
    return await actions.check({"name": "m"}, probe)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (1, HandlerOutcome(ProbeResult.PASSED, "service healthy")),
        (2, HandlerOutcome(ProbeResult.FAILED, 'service unhealthy (responded with "NOT_SERVING")')),
        (0, HandlerOutcome(ProbeResult.FAILED, 'service unhealthy (responded with "UNKNOWN")')),
        (9, HandlerOutcome(ProbeResult.FAILED, 'service unhealthy (responded with "9")')),
    ],
)
async def test_only_serving_is_healthy(tmp_path: Path, status: int, outcome: HandlerOutcome) -> None:
    async with serving(FIRST + frame(DATA, 0, message(status)) + OK) as (port, _):
        assert await ask(tmp_path, port) == outcome


async def test_without_h2_the_probe_errors_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "h2"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "h2", None)
    actions, probe = made(tmp_path, 1)
    with caplog.at_level("WARNING", "windlass.node"):
        outcomes = [await actions.check({"name": "m"}, probe) for _ in range(2)]
    why = "grpc probes need the package h2, which is not installed: pip install 'h2>=4.1'"
    assert outcomes == [HandlerOutcome(ProbeResult.ERRORED, why)] * 2
    assert [record.getMessage() for record in caplog.records] == [f"pod {HERE}: {why}"]


async def test_the_request_is_one_call_in_clear_text(tmp_path: Path) -> None:
    async with serving(FIRST + frame(DATA, 0, message(1)) + OK) as (port, told):
        await ask(tmp_path, port, service="llm")
    asked = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
    heard = asked.receive_data(told[0])
    (head,) = (event for event in heard if isinstance(event, RequestReceived))
    assert dict(head.headers) == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": f"{HERE}:{port}",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "kube-probe/1.36",
    }
    (body,) = (event for event in heard if isinstance(event, DataReceived))
    assert body.data == b"\0\0\0\0\5\x0a\3llm"
    assert any(isinstance(event, StreamEnded) for event in heard)


async def test_frames_come_in_pieces_padded_and_with_others_between(tmp_path: Path) -> None:
    body, trailer = message(1), literal("grpc-status", "0")
    answers = [
        frame(SETTINGS, 0, b"", 0) + frame(PING, 0, b"12345678", 0) + frame(8, 0, b"\0\0\1\0", 0),
        frame(HEADERS, END_HEADERS | PADDED | PRIORITY, b"\2" + b"\0\0\0\0\x10" + b"\x88" + b"xx"),
        frame(DATA, PADDED, b"\3" + body[:4] + b"xxx") + frame(DATA, 0, body[4:])[:7],
        frame(DATA, 0, body[4:])[7:] + frame(HEADERS, END_STREAM, trailer[:5]),
        frame(CONTINUATION, END_HEADERS, trailer[5:]),
    ]
    async with serving(*answers) as (port, _):
        assert (await ask(tmp_path, port)).result is ProbeResult.PASSED


async def test_calls_that_fail_say_with_which_code(tmp_path: Path) -> None:
    trailers = literal("grpc-status", "12") + literal("grpc-message", "unknown%20service")
    async with serving(frame(HEADERS, END_HEADERS | END_STREAM, b"\x88" + trailers)) as (port, _):
        why = (
            "this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service"
        )
        assert await ask(tmp_path, port) == HandlerOutcome(ProbeResult.FAILED, f"error: {why}")
    trailers = literal("grpc-status", "5") + literal("grpc-message", "no")
    async with serving(FIRST + frame(HEADERS, END_HEADERS | END_STREAM, trailers)) as (port, _):
        why = "error: health rpc probe failed: rpc error: code = NotFound desc = no"
        assert await ask(tmp_path, port) == HandlerOutcome(ProbeResult.FAILED, why)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak HTTP/2"),
        (b"", "code = Unavailable"),
        (FIRST + frame(RESET, 0, b"\0\0\0\2"), "closed the stream"),
        (FIRST + frame(DATA, END_STREAM, message(1)), "no grpc-status"),
        (FIRST + OK, "not one plain message"),
        (FIRST + frame(DATA, 0, b"\1" + message(1)[1:]) + OK, "not one plain message"),
        (FIRST + frame(DATA, 0, b"\0\0\0\0\1\x88") + OK, "is incomplete"),
        (FIRST + frame(HEADERS, END_HEADERS | END_STREAM, b"\0\x0b"), "code = Unavailable"),
    ],
)
async def test_what_is_no_answer_has_failed(tmp_path: Path, answer: bytes, words: str) -> None:
    async with serving(answer) as (port, _):
        outcome = await ask(tmp_path, port)
    assert outcome.result is ProbeResult.FAILED
    assert words in outcome.output


async def test_time_runs_out_before_and_after_the_connection(tmp_path: Path) -> None:
    async with serving(FIRST, hang=True) as (port, _):
        outcome = await ask(tmp_path, port, seconds=1)
        assert outcome == HandlerOutcome(ProbeResult.FAILED, "timeout: health rpc did not complete within 1s")
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
    outcome = await ask(tmp_path, port, seconds=0.2)
    assert outcome.output.startswith(f'timeout: failed to connect service "{HERE}:{port}"')

"""The short way of small answers says the same on the wire as the long one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loopclock import LoopClock
from uvicorn.config import Config
from uvicorn.server import ServerState

from windlass.server.http.asgi import EXCHANGE, IDENTITY
from windlass.server.http.protocol import ApiProtocol, Cycle
from windlass.server.request.users import ADMIN

KNOWN = b"POST /known HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
REQUEST = b"GET /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nX-Thing: One\r\n\r\n"


class Wire(asyncio.Transport):
    """Takes down what is written."""

    def __init__(self) -> None:
        super().__init__({})
        self.data = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.data += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


class App:
    """Answers with what it was asked, by the short way, or by ASGI's own."""

    def __init__(self, *, short: bool = True, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.short = short
        self.headers = headers
        self.seen: list[dict[str, Any]] = []
        self.bodies: list[bytes | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = scope["state"].pop(EXCHANGE)
        self.seen.append({**scope, "fields": dict(exchange.fields)})
        self.bodies.append(exchange.whole_body())
        body = scope["raw_path"]
        if self.short and exchange.respond(200, dict(self.headers), body):
            return
        headers = [(name.encode(), value.encode()) for name, value in self.headers]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def connect(app: App, keep_alive_seconds: float = 5) -> tuple[ApiProtocol, Wire]:
    config = Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_keep_alive=keep_alive_seconds,  # type: ignore[arg-type]
    )
    config.load()
    protocol, wire = ApiProtocol(config, ServerState(), ADMIN), Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "request_bytes",
    [
        REQUEST,
        REQUEST * 3,
        b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /a HTTP/1.0\r\n\r\n",
        b"GET http://h/a?b#c HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
async def test_both_ways_say_the_same(request_bytes: bytes) -> None:
    said = []
    for short in (True, False):
        protocol, wire = connect(App(short=short, headers=(("x-a", "b"),)))
        protocol.data_received(request_bytes)
        await settle()
        said.append((wire.data, wire.closed))
        protocol.connection_lost(ConnectionResetError())
    assert said[0] == said[1]
    assert said[0][0].startswith(b"HTTP/1.1 200 OK\r\n")


async def test_the_application_sees_url_headers_and_owner() -> None:
    app = App()
    protocol, wire = connect(app)
    protocol.data_received(REQUEST)
    await settle()
    [scope] = app.seen
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"x=1")
    assert scope["headers"] == [(b"host", b"h"), (b"x-thing", b"One")]
    assert scope["fields"] == {"host": "h", "x-thing": "One"}
    assert scope["state"][IDENTITY] is ADMIN
    assert wire.data.endswith(b"\r\n\r\n/a%20b")
    protocol.connection_lost(ConnectionResetError())


@pytest.mark.parametrize(
    "request_bytes",
    [
        REQUEST,
        b"GET / HTTP/1.1\r\n\r\n",
        b"HEAD /a?b=c&d HTTP/1.1\r\nHost: h\r\nConnection: Keep-Alive\r\n\r\n",
        b"POST /a%2Fb HTTP/1.1\r\nHOST: h\r\nContent-Length: 3\r\nX:  two words \r\n\r\nabc",
        b"DELETE /a? HTTP/1.1\r\nContent-Length: 0\r\nX-A: 1\r\nx-a: 2\r\n\r\n",
    ],
)
async def test_header_lines_that_are_known_are_not_parsed_again(
    request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    protocol, wire = connect(app)
    protocol.data_received(request_bytes)
    await settle()
    first, wire.data = wire.data, b""
    monkeypatch.setattr(protocol, "parser", None)
    protocol.data_received(request_bytes)
    await settle()
    assert wire.data == first
    assert app.seen[1] == app.seen[0]
    assert app.bodies[1] == app.bodies[0]
    assert app.seen[0]["fields"] == app.seen[1]["fields"]
    protocol.connection_lost(ConnectionResetError())


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"GET /a HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nX: y\r\n\r\n",
        b"GET /a HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
        b"GET /a#b HTTP/1.1\r\nHost: h\r\nX-B: never\r\n\r\n",
        b"GET http://h/a HTTP/1.1\r\nHost: h\r\nX-B: nowhere\r\n\r\n",
    ],
)
async def test_what_is_out_of_the_ordinary_is_always_parsed(
    request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: Any) -> None:
        raise AssertionError("the short way was taken")

    monkeypatch.setattr(Cycle, "whole", short)
    answers = []
    for _ in range(2):
        protocol, wire = connect(App())
        protocol.data_received(request_bytes)
        await settle()
        answers.append(wire.data)
        protocol.connection_lost(ConnectionResetError())
    assert answers[0] == answers[1] != b""


@pytest.mark.parametrize("cut", [10, 30, len(KNOWN) - 4, len(KNOWN) - 1])
async def test_known_lines_and_a_body_that_comes_in_two_pieces(cut: int) -> None:
    app = App()
    protocol, wire = connect(app)
    protocol.data_received(KNOWN)
    await settle()
    first, wire.data = wire.data, b""
    protocol.data_received(KNOWN[:cut])
    await settle()
    protocol.data_received(KNOWN[cut:])
    await settle()
    assert wire.data == first
    protocol.data_received(KNOWN + KNOWN)  # and two in one piece
    await settle()
    assert wire.data == first * 3
    protocol.connection_lost(ConnectionResetError())


async def test_an_invalid_request_is_not_excused_by_known_lines() -> None:
    protocol, wire = connect(App())
    protocol.logger.disabled = True
    protocol.data_received(KNOWN)
    await settle()
    wire.data = b""
    protocol.data_received(KNOWN.replace(b"POST", b"P0ST"))
    await settle()
    protocol.logger.disabled = False
    assert wire.data.startswith(b"HTTP/1.1 400 ")
    assert wire.closed
    protocol.connection_lost(ConnectionResetError())


async def test_a_body_that_has_not_come_yet_is_not_taken() -> None:
    app = App()
    protocol, _ = connect(app)
    protocol.data_received(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
    await settle()
    assert app.bodies == [None]
    protocol.connection_lost(ConnectionResetError())


async def test_a_value_cannot_smuggle_a_header_in() -> None:
    protocol, wire = connect(App(headers=(("warning", "a\r\nset-cookie: b"),)))
    protocol.logger.disabled = True
    protocol.data_received(REQUEST)
    await settle()
    protocol.logger.disabled = False
    assert wire.data.startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in wire.data
    protocol.connection_lost(ConnectionResetError())


async def test_a_client_that_does_not_read_is_waited_for() -> None:
    protocol, wire = connect(App())
    protocol.pause_writing()
    protocol.data_received(REQUEST)
    await settle()
    assert wire.data == b""
    protocol.resume_writing()
    await settle()
    assert wire.data.endswith(b"/a%20b")
    protocol.connection_lost(ConnectionResetError())


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    clock = LoopClock()
    protocol, wire = connect(App(), keep_alive_seconds=800)
    for _ in range(2):
        protocol.data_received(REQUEST)
        await settle()
        await clock.forward(450)
    assert not wire.closed
    protocol.data_received(b"GET /a HTTP/1.1\r\n")  # the rest of this request is slow to come
    await clock.forward(900)
    assert not wire.closed
    protocol.data_received(b"Host: h\r\n\r\n")
    await settle()
    await clock.forward(450)
    assert not wire.closed
    await clock.forward(450)
    assert wire.closed
    protocol.connection_lost(None)

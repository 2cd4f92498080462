"""The embedded uvicorn server: requests and responses on the wire, deadlines, limits, its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from throwaway_certificates import Authority

from windlass.observe.http_server import PEER, App, HttpServer, JoiningTransport, ServerLimits, bind

pytestmark = pytest.mark.usefixtures("no_leaks")
HOST = "127.0.0.1"
REQUEST = b"GET /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nX-Thing: One\r\n\r\n"


class Echo:
    """Application that responds with the path and the body of the request."""

    def __init__(self, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.headers = headers
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(dict(scope))
        body = scope["raw_path"]
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        headers = [*self.headers, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    def __init__(self, port: int, trust: ssl.SSLContext | None) -> None:
        self.port = port
        self._trust = trust
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Streams:
        streams = await asyncio.open_connection(HOST, self.port, ssl=self._trust)
        self._writers.append(streams[1])
        return streams

    async def leave(self) -> None:
        for writer in self._writers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def serving(
    app: App,
    limits: ServerLimits | None = None,
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[Served]:
    server = HttpServer(limits)
    (listener,) = bind(HOST, 0)
    port = listener.getsockname()[1]
    await server.listen(app, [listener], tls)
    served = Served(port, trust)
    try:
        yield served
    finally:
        await served.leave()
        await server.close()


async def respond(streams: Streams, request: bytes, number: int = 1) -> bytes:
    """Send, and return ``number`` responses as they are on the wire."""
    reader, writer = streams
    writer.write(request)
    found = b""
    for _ in range(number):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        found += head + (b"" if request.startswith(b"HEAD") else await reader.readexactly(length))
    return found


async def until_closed(streams: Streams, seconds: float = 60) -> bytes:
    return await asyncio.wait_for(streams[0].read(), seconds)


# ---------------------------------------------------------------------- on the wire


@pytest.mark.parametrize(
    ("request_bytes", "body"),
    [
        (REQUEST, b"/a%20b"),
        (b"GET /a HTTP/1.0\r\n\r\n", b"/a"),
        (b"GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n", b"/a"),
        (b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", b"/aabc"),
        (
            b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            b"/aabc",
        ),
        (b"GET /a HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nX: y\r\n\r\n", b"/a"),
    ],
)
async def test_requests(request_bytes: bytes, body: bytes) -> None:
    async with serving(Echo()) as served:
        answer = await respond(await served.connect(), request_bytes)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n" + body)


async def test_requests_on_one_connection_and_in_one_piece() -> None:
    async with serving(Echo()) as served:
        streams = await served.connect()
        one = await respond(streams, REQUEST)
        assert await respond(streams, REQUEST) == one
        assert await respond(streams, REQUEST * 3, 3) == one * 3


async def test_a_head_request_has_no_body() -> None:
    async with serving(Echo()) as served:
        streams = await served.connect()
        assert (await respond(streams, b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n")).endswith(b"\r\n\r\n")
        assert (await respond(streams, REQUEST)).endswith(b"/a%20b")


async def test_a_client_that_waits_for_permission_to_send_its_body() -> None:
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    async with serving(Echo()) as served:
        reader, writer = await served.connect()
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await respond((reader, writer), b"abc")).endswith(b"/aabc")


@pytest.mark.parametrize("cut", [1, 10, 30, 55, 57])
async def test_a_request_that_arrives_in_two_pieces(cut: int) -> None:
    whole = b"POST /known HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
    async with serving(Echo()) as served:
        streams = await served.connect()
        streams[1].write(whole[:cut])
        await asyncio.sleep(0.02)
        assert (await respond(streams, whole[cut:])).endswith(b"/knownabc")


async def test_the_application_sees_the_url_the_headers_and_the_peer() -> None:
    app = Echo()
    async with serving(app) as served:
        await respond(await served.connect(), REQUEST)
    [scope] = app.scopes
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"x=1")
    assert scope["headers"] == [(b"host", b"h"), (b"x-thing", b"One")]
    assert scope["state"][PEER].certificate is None


async def test_the_application_sees_the_certificate_of_the_client(tmp_path: Path) -> None:
    authority = Authority()
    server, client = authority.server(HOST), authority.client("ann", "team")
    for name, pair in (("server", server), ("client", client)):
        (tmp_path / name).write_bytes(pair.cert + pair.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem.decode())
    tls.load_cert_chain(tmp_path / "server")
    tls.verify_mode = ssl.CERT_OPTIONAL
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    trust.load_cert_chain(tmp_path / "client")
    app = Echo()
    async with serving(app, tls=tls, trust=trust) as served:
        await respond(await served.connect(), REQUEST * 2, 2)
    subjects = [scope["state"][PEER].certificate["subject"] for scope in app.scopes]
    assert subjects == [((("commonName", "ann"),), (("organizationName", "team"),))] * 2
    assert app.scopes[0]["scheme"] == "https"


@pytest.mark.parametrize(
    "request_bytes", [b"P0ST /a HTTP/1.1\r\nHost: h\r\n\r\n", b"\x16\x03\x01 no HTTP\r\n\r\n"]
)
async def test_an_invalid_request_is_refused(request_bytes: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Echo()) as served:
        streams = await served.connect()
        streams[1].write(request_bytes)
        assert (await until_closed(streams)).startswith(b"HTTP/1.1 400 ")


async def test_a_value_cannot_smuggle_a_header(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Echo(headers=((b"warning", b"a\r\nset-cookie: b"),))) as served:
        streams = await served.connect()
        streams[1].write(REQUEST)
        assert await until_closed(streams) == b""


def test_head_and_body_are_sent_in_one_piece() -> None:
    class Wire(asyncio.Transport):
        def __init__(self) -> None:
            super().__init__()
            self.sent: list[bytes] = []
            self.closed = False

        def write(self, data: Any) -> None:
            self.sent.append(data)

        def is_closing(self) -> bool:
            return self.closed

        def close(self) -> None:
            self.closed = True

    async def write(*steps: Callable[[JoiningTransport], None]) -> list[bytes]:
        wire = Wire()
        joined = JoiningTransport(wire, asyncio.get_running_loop())
        for step in steps:
            step(joined)
        await asyncio.sleep(0)
        return wire.sent

    def piece(data: bytes) -> Callable[[JoiningTransport], None]:
        return lambda transport: transport.write(data)

    assert asyncio.run(write(piece(b"a"), piece(b"b"))) == [b"ab"]
    assert asyncio.run(write(piece(b"a"))) == [b"a"]
    assert asyncio.run(write(piece(b"a"), piece(b"b"), piece(b"c"))) == [b"ab", b"c"]
    assert asyncio.run(write(piece(b"a"), lambda transport: transport.close())) == [b"a"]
    assert asyncio.run(write(piece(b"a"), lambda transport: transport.close(), piece(b"b"))) == [b"a"]


# ---------------------------------------------------------------------- deadlines and limits


async def test_an_idle_connection_is_closed() -> None:
    async with serving(Echo(), ServerLimits(idle=1)) as served:
        streams = await served.connect()
        await respond(streams, REQUEST)
        assert await until_closed(streams) == b""


@pytest.mark.parametrize("begun", [b"", b"GET /a HTTP/1.1\r\n"])
async def test_a_connection_without_a_request_is_closed(begun: bytes) -> None:
    async with serving(Echo(), ServerLimits(head=0.1)) as served:
        streams = await served.connect()
        streams[1].write(begun)
        assert await until_closed(streams) == b""


async def test_a_slow_second_request_is_closed() -> None:
    async with serving(Echo(), ServerLimits(idle=5, head=0.5)) as served:
        streams = await served.connect()
        await respond(streams, REQUEST)
        streams[1].write(b"GET /a HTTP/1.1\r\n")
        assert await until_closed(streams) == b""


async def test_a_request_that_takes_long_is_not_interrupted() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.7)
        await Echo()(scope, receive, send)

    async with serving(slow, ServerLimits(idle=5, head=0.5)) as served:
        streams = await served.connect()
        for _ in range(2):
            assert (await respond(streams, REQUEST)).endswith(b"/a%20b")


async def test_above_the_maximum_of_connections_requests_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Echo(), ServerLimits(connections=3)) as served:
        admitted = [await served.connect() for _ in range(2)]
        for streams in admitted:
            assert (await respond(streams, REQUEST)).startswith(b"HTTP/1.1 200 ")
        refused = await served.connect()
        assert (await respond(refused, REQUEST)).startswith(b"HTTP/1.1 503 ")
        assert await until_closed(refused) == b""
        await served.leave()
        while not (await respond(await served.connect(), REQUEST)).startswith(b"HTTP/1.1 200 "):
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- life of the server


async def test_signals_are_left_to_the_process() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(Echo()) as served:
        await respond(await served.connect(), REQUEST)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_the_end_waits_for_requests_in_progress_but_not_for_idle_connections() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await release.wait()
        await Echo()(scope, receive, send)

    server = HttpServer(ServerLimits(drain=30))
    (listener,) = bind(HOST, 0)
    port = listener.getsockname()[1]
    await server.listen(slow, [listener])
    idle = await asyncio.open_connection(HOST, port)
    busy = await asyncio.open_connection(HOST, port)
    busy[1].write(REQUEST)
    await begun.wait()
    closing = asyncio.create_task(server.close())
    assert await until_closed(idle) == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, port)
    assert not closing.done()
    release.set()
    assert (await until_closed(busy)).endswith(b"\r\n\r\n/a%20b")
    await closing
    for _, writer in (idle, busy):
        writer.close()


async def test_what_does_not_end_in_time_is_aborted(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def never(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    server = HttpServer(ServerLimits(drain=0))
    (listener,) = bind(HOST, 0)
    await server.listen(never, [listener])
    streams = await asyncio.open_connection(HOST, listener.getsockname()[1])
    streams[1].write(REQUEST)
    await begun.wait()
    await server.close()
    assert not (await until_closed(streams)).startswith(b"HTTP/1.1 200 ")
    streams[1].close()


def test_bind_listens_on_all_addresses_of_a_host() -> None:
    found = bind("", 0)
    try:
        assert len({listener.getsockname()[1] for listener in found}) == 1
        with socket.create_connection((HOST, found[0].getsockname()[1])):
            pass
        with pytest.raises(OSError, match="in use"):
            bind("", found[0].getsockname()[1])
    finally:
        for listener in found:
            listener.close()

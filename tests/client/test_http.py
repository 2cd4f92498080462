from __future__ import annotations

import asyncio
import json
import select
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from loop_clock import LoopClock
from raw_server import CHUNKED_HEAD, Peer, RawServer
from threaded_server import Caller, serving
from throwaway_certificates import Authority

from windlass.api.errors import WindlassError
from windlass.client import errors, kubeconfig
from windlass.client.connection import Connection, over_socket
from windlass.client.errors import Unreachable
from windlass.client.http import HttpOptions, HttpTransport
from windlass.client.transport import Request, Response
from windlass.client.watch_batching import FEW_PIECES
from windlass.kits.clock import FakeClock

GET = Request("GET", "/api/v1/pods")
WATCH = Request("GET", "/api/v1/pods", "watch=true")
POST = Request("POST", "/api/v1/pods", body=b"{}")

pytestmark = pytest.mark.usefixtures("no_leaks")


async def serve_forever(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.answer(f"{peer.number}".encode())


async def using(
    server: RawServer, test: Callable[[HttpTransport], Awaitable[None]], options: HttpOptions | None = None
) -> None:
    transport = HttpTransport(Connection(server.url, token="secret"), options=options)
    try:
        await test(transport)
    finally:
        await transport.close()


async def read_all(response: Response) -> bytes:
    assert response.stream is not None
    return b"".join([chunk async for chunk in response.stream])


async def test_one_connection_serves_requests_one_after_the_other() -> None:
    async def test(transport: HttpTransport) -> None:
        for _ in range(5):
            response = await transport.request(GET)
            assert (response.status, response.body) == (200, b"0")
        assert transport.connections == 1

    async with RawServer(serve_forever) as server:
        await using(server, test)
        assert len(server.peers) == 1
        head = server.peers[0].heads[0]
        assert "authorization: Bearer secret" in head
        assert "accept-encoding: identity" in head


async def test_requests_at_the_same_time_use_at_most_the_limit_of_connections() -> None:
    async def test(transport: HttpTransport) -> None:
        answers = await asyncio.gather(*[transport.request(GET) for _ in range(40)])
        assert all(answer.status == 200 for answer in answers)
        assert transport.connections == 3

    async with RawServer(serve_forever) as server:
        await using(server, test, HttpOptions(limit=3))
        assert len(server.peers) == 3


async def test_streams_do_not_take_slots() -> None:
    async def behaviour(peer: Peer) -> None:
        head, _ = await peer.request()
        if "watch=true" in head:
            await peer.send(CHUNKED_HEAD)
            await peer.until_gone()
        else:
            await peer.answer()
            await serve_forever(peer)

    async def test(transport: HttpTransport) -> None:
        watches = [await transport.request(Request("GET", "/w", "watch=true")) for _ in range(5)]
        assert (await transport.request(GET)).status == 200
        for watch in watches:
            assert watch.stream is not None
            await watch.stream.aclose()
        await asyncio.sleep(0)
        assert transport.connections == 1

    async with RawServer(behaviour) as server:
        await using(server, test, HttpOptions(limit=1))


async def test_a_stream_read_to_its_end_gives_its_connection_back() -> None:
    async def behaviour(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(CHUNKED_HEAD)
            for part in (b"one\n", b"two\n"):
                await peer.chunk(part)
            await peer.chunk(b"")

    async def test(transport: HttpTransport) -> None:
        for _ in range(3):
            assert await read_all(await transport.request(GET)) == b"one\ntwo\n"
        assert transport.connections == 1

    async with RawServer(behaviour) as server:
        await using(server, test)


@pytest.mark.parametrize("request_", [GET, WATCH])
async def test_a_reader_that_does_not_read_holds_the_sender_back(request_: Request) -> None:
    sent = 0
    total = 64 << 20

    async def behaviour(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        while sent < total:
            await peer.chunk(b"x" * (1 << 18))
            sent += 1 << 18
        await peer.chunk(b"")
        await peer.until_gone()

    async def test(transport: HttpTransport) -> None:
        response = await transport.request(request_)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert sent < 32 << 20  # socket buffers and the high-water mark, not all of it
        assert len(await read_all(response)) == total

    async with RawServer(behaviour) as server:
        await using(server, test, HttpOptions(breath_seconds=0.001))


async def test_a_cancelled_request_closes_its_connection() -> None:
    arrived = asyncio.Event()

    async def behaviour(peer: Peer) -> None:
        await peer.request()
        if peer.number == 0:
            arrived.set()
            await peer.until_gone()
        else:
            await peer.answer(b"fresh")

    async def test(transport: HttpTransport) -> None:
        asking = asyncio.create_task(transport.request(GET))
        await arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert transport.connections == 0
        assert (await transport.request(GET)).body == b"fresh"

    async with RawServer(behaviour) as server:
        await using(server, test)
        await asyncio.wait_for(server.peers[0].gone.wait(), 30)


async def test_cancelling_a_waiter_for_a_slot_loses_no_slot() -> None:
    async def behaviour(peer: Peer) -> None:
        while True:
            await peer.request()
            await asyncio.sleep(0.02)
            await peer.answer()

    async def test(transport: HttpTransport) -> None:
        first = asyncio.create_task(transport.request(GET))
        others = [asyncio.create_task(transport.request(GET)) for _ in range(10)]
        await asyncio.sleep(0.005)
        for task in others[::2]:
            task.cancel()
        done = await asyncio.gather(first, *others, return_exceptions=True)
        assert sum(isinstance(item, Response) for item in done) == 6
        assert (await transport.request(GET)).status == 200

    async with RawServer(behaviour) as server:
        await using(server, test, HttpOptions(limit=1))


async def test_leaving_a_stream_closes_its_connection() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        await peer.chunk(b"first\n")
        await peer.until_gone()

    async def test(transport: HttpTransport) -> None:
        response = await transport.request(GET)
        assert response.stream is not None
        assert await response.stream.__anext__() == b"first\n"
        await response.stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await response.stream.__anext__()
        assert transport.connections == 0

    async with RawServer(behaviour) as server:
        await using(server, test)
        await asyncio.wait_for(server.peers[0].gone.wait(), 30)


@pytest.mark.parametrize(("request_", "again"), [(GET, True), (POST, False)])
async def test_a_connection_that_ends_while_idle(request_: Request, again: bool) -> None:
    """The server closes after it has read the second request: only what may be repeated is."""

    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.answer()
        if peer.number == 0:
            await peer.request()
            return  # close without an answer
        await serve_forever(peer)

    async def test(transport: HttpTransport) -> None:
        await transport.request(GET)
        if again:
            assert (await transport.request(request_)).status == 200
            return
        with pytest.raises(Unreachable) as caught:
            await transport.request(request_)
        assert caught.value.processed

    async with RawServer(behaviour) as server:
        await using(server, test)
        assert len(server.peers) == (2 if again else 1)


async def test_a_connection_known_to_be_closed_is_not_used_even_for_a_post() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.answer()

    async def test(transport: HttpTransport) -> None:
        await transport.request(POST)
        while transport.connections:
            await asyncio.sleep(0.001)
        assert (await transport.request(POST)).status == 200

    async with RawServer(behaviour) as server:
        await using(server, test)
        assert server.requests == 2


async def test_a_close_that_the_loop_had_no_time_to_see_is_seen_before_a_post() -> None:
    """The server ends the idle connection while this side computes; the next POST must not meet it."""

    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.answer({})

    with serving(behaviour) as url:
        transport = HttpTransport(Connection(url))
        await transport.request(POST)
        (held,) = transport._open
        assert held._transport is not None
        sock = held._transport.get_extra_info("socket")
        select.select([sock], [], [], 60)  # blocks the loop until the close is there
        time.sleep(0.02)
        assert not held.closed
        assert (await transport.request(POST)).status == 200
        await transport.close()


async def test_a_fresh_connection_that_breaks_is_not_tried_again() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()

    async def test(transport: HttpTransport) -> None:
        with pytest.raises(Unreachable) as caught:
            await transport.request(GET)
        assert caught.value.processed

    async with RawServer(behaviour) as server:
        await using(server, test)
        assert server.requests == 1


async def test_an_answer_that_breaks_in_the_middle() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async def test(transport: HttpTransport) -> None:
        with pytest.raises(Unreachable, match="in the middle of the response"):
            await transport.request(GET)

    async with RawServer(behaviour) as server:
        await using(server, test)


async def test_a_stream_that_breaks_gives_what_came_and_then_the_error() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        await peer.chunk(b"first\n")

    async def test(transport: HttpTransport) -> None:
        response = await transport.request(GET)
        assert response.stream is not None
        assert await response.stream.__anext__() == b"first\n"
        with pytest.raises(Unreachable):
            await response.stream.__anext__()

    async with RawServer(behaviour) as server:
        await using(server, test)


async def test_a_body_that_ends_with_the_connection_and_connection_close() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it")

    async def test(transport: HttpTransport) -> None:
        assert await read_all(await transport.request(GET)) == b"all of it"
        assert transport.connections == 0

    async with RawServer(behaviour) as server:
        await using(server, test)


async def test_no_answer_in_time() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.until_gone()

    async def test(transport: HttpTransport) -> None:
        with pytest.raises(Unreachable, match="took more than"):
            await transport.request(GET)

    async with RawServer(behaviour) as server:
        await using(server, test, HttpOptions(response_seconds=0.1, sweep_seconds=0.02))


PIECES = 300


async def pieces_of(connection: Connection, breath_seconds: float, pieces: int) -> list[bytes]:
    """What a reader of :func:`telling` gets at a time, until it has all of them."""
    transport = HttpTransport(connection, options=HttpOptions(breath_seconds=breath_seconds))
    try:
        response = await transport.request(WATCH)
        assert response.stream is not None
        found: list[bytes] = []
        while sum(map(len, found)) < 5 * pieces:
            found.append(await anext(response.stream))
        await response.stream.aclose()
    finally:
        await transport.close()
    assert b"".join(found) == b"".join(b"%04d\n" % number for number in range(pieces))
    return found


def telling(pieces: int) -> Callable[[Peer], Awaitable[None]]:
    """A server whose watch tells so many pieces, one by one."""

    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        for number in range(pieces):
            await peer.chunk(b"%04d\n" % number)
            await asyncio.sleep(0.001)
        await peer.until_gone()

    return behaviour


async def test_a_watch_whose_news_come_thick_is_read_many_at_a_time() -> None:
    async with RawServer(telling(PIECES)) as server:
        assert len(await pieces_of(Connection(server.url), 0.5, PIECES)) < PIECES / 3


async def test_a_few_pieces_of_a_watch_are_read_at_once_however_long_a_breath_is() -> None:
    async with RawServer(telling(FEW_PIECES)) as server:
        async with asyncio.timeout(50):  # a breath, were there one, would last for 100
            assert await pieces_of(Connection(server.url), 100.0, FEW_PIECES)


async def test_a_watch_that_pours_is_read_as_fast_as_it_comes() -> None:
    """Whoever is read too slowly is cut off by the server, and has to list everything anew."""
    block, blocks = b"x" * 65536, 400

    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        for _ in range(blocks):
            await peer.chunk(block)
        await peer.until_gone()

    async with RawServer(behaviour) as server, asyncio.timeout(50):
        transport = HttpTransport(Connection(server.url), options=HttpOptions(breath_seconds=100.0))
        try:
            response = await transport.request(WATCH)
            assert response.stream is not None
            read = 0
            while read < blocks * len(block):
                read += len(await anext(response.stream))
            await response.stream.aclose()
        finally:
            await transport.close()


async def test_a_slow_answer_that_keeps_coming_is_not_cut() -> None:
    clock = LoopClock()

    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        for _ in range(4):
            await clock.forward(300)
            await peer.send(b"x")

    async def test(transport: HttpTransport) -> None:
        assert (await transport.request(GET)).body == b"xxxx"

    async with RawServer(behaviour) as server:
        await using(server, test, HttpOptions(response_seconds=1000.0, sweep_seconds=20))


@pytest.mark.parametrize(("query", "cut"), [("", True), ("watch=true", False), ("follow=true", False)])
async def test_a_streamed_answer_that_stalls_is_cut_unless_it_may_be_silent(query: str, cut: bool) -> None:
    clock, begun = LoopClock(), asyncio.Event()

    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        await peer.chunk(b"half of a list")
        await begun.wait()
        for _ in range(3):
            await clock.forward(1000)
        await peer.chunk(b"the rest")
        await peer.chunk(b"")
        await peer.until_gone()

    async def test(transport: HttpTransport) -> None:
        response = await transport.request(Request("GET", "/x", query))
        begun.set()
        if cut:
            with pytest.raises(Unreachable, match="took more than"):
                await read_all(response)
        else:
            assert await read_all(response) == b"half of a listthe rest"

    async with RawServer(behaviour) as server:
        await using(server, test, HttpOptions(response_seconds=1000.0, sweep_seconds=20))


async def test_not_http() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        await peer.until_gone()

    async def test(transport: HttpTransport) -> None:
        with pytest.raises(Unreachable) as caught:
            await transport.request(GET)
        assert caught.value.code == errors.PROTOCOL

    async with RawServer(behaviour) as server:
        await using(server, test)


async def test_closing_ends_what_is_in_flight() -> None:
    async def behaviour(peer: Peer) -> None:
        await peer.request()
        await peer.until_gone()

    async with RawServer(behaviour) as server:
        transport = HttpTransport(Connection(server.url))
        task = asyncio.create_task(transport.request(GET))
        while not transport.connections:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        await transport.close()
        with pytest.raises(Unreachable, match="the client was closed"):
            await task
        with pytest.raises(Unreachable, match="the client was closed"):
            await transport.request(GET)


async def test_nobody_listens() -> None:
    async with RawServer(serve_forever) as server:
        url = server.url
    transport = HttpTransport(Connection(url))
    with pytest.raises(Unreachable, match="connection refused") as caught:
        await transport.request(POST)
    assert caught.value.refused
    assert not caught.value.processed
    assert caught.value.remedies


async def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    transport = HttpTransport(over_socket(path))
    with pytest.raises(Unreachable, match="not running: there is no socket") as caught:
        await transport.request(GET)
    assert (caught.value.code, caught.value.remedies[0]) == (errors.NOT_RUNNING, "windlass up")
    async with RawServer(serve_forever, path=path):
        assert (await transport.request(GET)).status == 200
        await transport.close()
    transport = HttpTransport(over_socket(path))
    with pytest.raises(Unreachable, match="no process listens on the socket"):
        await transport.request(GET)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


class TestTls:
    def context(self, authority: Authority, tmp_path: Path, *hosts: str, client: bool = False):
        pair = authority.server(*hosts)
        (tmp_path / "s.pem").write_bytes(pair.cert + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "s.pem")
        if client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=authority.pem.decode())
        return context

    async def ask(self, connection: Connection) -> Response:
        transport = HttpTransport(connection)
        try:
            return await transport.request(GET)
        finally:
            await transport.close()

    async def test_verified(self, authority: Authority, tmp_path: Path) -> None:
        tls = self.context(authority, tmp_path, "127.0.0.1")
        async with RawServer(serve_forever, tls=tls) as server:
            assert (await self.ask(Connection(server.url, ca_data=authority.pem))).status == 200
            assert (await self.ask(Connection(server.url, insecure=True))).status == 200

    async def test_a_watch_whose_news_come_thick(self, authority: Authority, tmp_path: Path) -> None:
        tls = self.context(authority, tmp_path, "127.0.0.1")
        async with RawServer(telling(PIECES), tls=tls) as server:
            connection = Connection(server.url, ca_data=authority.pem)
            assert len(await pieces_of(connection, 0.5, PIECES)) < PIECES / 3

    async def test_client_certificate(self, authority: Authority, tmp_path: Path) -> None:
        tls = self.context(authority, tmp_path, "127.0.0.1", client=True)
        pair = authority.client("alice", "dev")
        async with RawServer(serve_forever, tls=tls) as server:
            connection = Connection(
                server.url, ca_data=authority.pem, client_cert=pair.cert, client_key=pair.key
            )
            assert (await self.ask(connection)).status == 200
            with pytest.raises(Unreachable):
                await self.ask(Connection(server.url, ca_data=authority.pem))

    async def test_a_client_certificate_that_is_renewed_in_its_files(
        self, authority: Authority, tmp_path: Path
    ) -> None:
        """Connections that are kept open would go on with the old one, beyond its end."""
        tls = self.context(authority, tmp_path, "127.0.0.1", client=True)
        cert, key = tmp_path / "crt", tmp_path / "key"

        def renew(user: str, *, half: bool = False) -> None:
            pair = authority.client(user)
            cert.write_bytes(pair.cert)
            if not half:
                key.write_bytes(pair.key)

        async def say_who(peer: Peer) -> None:
            subject = peer.writer.get_extra_info("peercert")["subject"]
            while True:
                await peer.request()
                await peer.answer(dict(entry[0] for entry in subject)["commonName"].encode())

        renew("first")
        async with RawServer(say_who, tls=tls) as server:
            user = {"client-certificate": "crt", "client-key": "key"}
            cluster = {"server": server.url, "certificate-authority-data": b64encode(authority.pem).decode()}
            config = {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
            (tmp_path / "config").write_text(json.dumps(config))
            clock = FakeClock()
            transport = HttpTransport(kubeconfig.load(tmp_path / "config"), clock=clock)
            seen = []
            for change in (None, "half", "whole", "gone"):
                if change == "half":
                    renew("second", half=True)  # its key comes in a moment
                elif change == "whole":
                    renew("second")
                elif change == "gone":
                    cert.unlink()
                clock.jump(61)
                seen.append((await transport.request(GET)).body)
            assert seen == [b"first", b"first", b"second", b"second"]
            assert transport.connections == 1
            await transport.close()

    async def test_unknown_authority(self, authority: Authority, tmp_path: Path) -> None:
        tls = self.context(authority, tmp_path, "127.0.0.1")
        async with RawServer(serve_forever, tls=tls) as server:
            with pytest.raises(Unreachable, match="not signed by the authority") as caught:
                await self.ask(Connection(server.url, ca_data=Authority("other").pem))
            assert caught.value.code == errors.TLS

    async def test_wrong_name_and_its_remedy(self, authority: Authority, tmp_path: Path) -> None:
        tls = self.context(authority, tmp_path, "gpu-box")
        async with RawServer(serve_forever, tls=tls) as server:
            with pytest.raises(Unreachable, match="for another host") as caught:
                await self.ask(Connection(server.url, ca_data=authority.pem))
            assert "tls-server-name" in caught.value.remedies[0]
            named = Connection(server.url, ca_data=authority.pem, tls_server_name="gpu-box")
            assert (await self.ask(named)).status == 200

    async def test_no_tls_on_the_port(self, authority: Authority) -> None:
        async def behaviour(peer: Peer) -> None:
            await peer.reader.read(100)
            await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with RawServer(behaviour) as server:
            url = server.url.replace("http:", "https:")
            with pytest.raises(Unreachable, match="does not speak TLS") as caught:
                await self.ask(Connection(url, ca_data=authority.pem))
            assert caught.value.code == errors.TLS

    async def test_broken_certificates_are_named(self) -> None:
        broken = Connection("https://127.0.0.1:1", ca_data=b"no pem", source="/home/u/.kube/config")
        with pytest.raises(WindlassError, match=r"certificate-authority.* in /home/u/.kube/config"):
            await self.ask(broken)


class TestTokens:
    async def test_a_token_file_is_read_anew_when_it_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("old\n")

        async def behaviour(peer: Peer) -> None:
            while True:
                head, _ = await peer.request()
                if "Bearer new" in head:
                    await peer.answer(b"welcome")
                else:
                    file.write_text("new\n")
                    await peer.answer(b"{}", "401 Unauthorized")

        async with RawServer(behaviour) as server:
            transport = HttpTransport(Connection(server.url, token_file=str(file)))
            assert (await transport.request(GET)).body == b"welcome"
            assert server.requests == 2
            await transport.close()

    async def test_a_static_token_that_is_refused_is_not_tried_twice(self) -> None:
        async def behaviour(peer: Peer) -> None:
            while True:
                await peer.request()
                await peer.answer(b"{}", "401 Unauthorized")

        async with RawServer(behaviour) as server:
            transport = HttpTransport(Connection(server.url, token="bad"))
            assert (await transport.request(GET)).status == 401
            assert server.requests == 1
            await transport.close()

    def test_tokens_are_not_sent_in_the_clear(self) -> None:
        assert not Connection("http://gpu.example.com:8080", token="t").may_send_secrets
        assert Connection("http://127.0.0.1:8080", token="t").may_send_secrets
        assert Connection("https://gpu.example.com", token="t").may_send_secrets

    def test_secrets_are_not_shown(self) -> None:
        shown = repr(Connection(token="tok-1", password="pw-2", client_key=b"key-3"))
        assert "tok-1" not in shown
        assert "pw-2" not in shown
        assert "key-3" not in shown


def test_a_path_prefix_of_the_server_is_kept() -> None:
    assert Connection("https://rancher/k8s/clusters/c-1/").path_prefix == "/k8s/clusters/c-1"
    assert Connection("https://host:6443").path_prefix == ""

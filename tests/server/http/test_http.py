"""Over sockets: TLS and Unix, identities, limits, streams that end, faults at the start."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from windlass.api.errors import WindlassError
from windlass.client.transport import Request, Response
from windlass.kits import rng
from windlass.kits.clock import FakeClock, SystemClock
from windlass.kits.state import StateFolder
from windlass.observe.listening import PORT
from windlass.server.auth import pki, renewal
from windlass.server.core import ServerOptions
from windlass.server.http import listeners
from windlass.server.http.listeners import bind_tcp, bind_unix, tls_context
from windlass.server.main import Running, ServeConfig, running, serve
from windlass.server.request.users import UserInfo
from windlass.store import errors as store_errors
from windlass.store.families import StoreOptions

MAPS = "/api/v1/namespaces/default/configmaps"


def make_state(folder: Path) -> StateFolder:
    state = StateFolder(folder)
    state.prepare(allow_network=True)
    return state


def configure(state: StateFolder, **options: object) -> ServeConfig:
    store = StoreOptions(synchronous="OFF", allow_network=True)
    return ServeConfig(state, store=store, options=ServerOptions(**options))  # type: ignore[arg-type]


@pytest.fixture
async def server(tmp_path: Path, no_leaks: None) -> AsyncIterator[tuple[Running, StateFolder]]:
    state = make_state(tmp_path / "s")
    async with running(
        configure(state, bookmark_seconds=0.2), clock=SystemClock(), rng=rng.system()
    ) as started:
        yield started, state


class Http:
    """A connection that speaks just enough HTTP/1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def unix(state: StateFolder) -> Http:
        return Http(*await asyncio.open_unix_connection(str(state.socket)))

    @staticmethod
    async def tls(started: Running, state: StateFolder, *, certificate: bool = False) -> Http:
        context = ssl.create_default_context(cafile=str(state.ca_cert))
        if certificate:
            context.load_cert_chain(state.admin_cert, state.admin_key)
        return Http(*await asyncio.open_connection("127.0.0.1", started.port, ssl=context))

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: x"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body and "transfer_encoding" not in headers:
            lines.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)).decode()
        first, *rest = raw.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in rest)
        return int(first.split()[1]), headers

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join([chunk async for chunk in self.chunks()])
        return status, headers, await self.reader.readexactly(int(headers.get("content-length", "0")))

    async def chunk(self) -> bytes:
        size = int(await asyncio.wait_for(self.reader.readline(), 60), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        await self.send(method, path, body, **headers)
        status, _, data = await self.answer()
        return status, data

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


Started = tuple[Running, StateFolder]


class TestIdentity:
    async def test_the_unix_socket_is_the_administrators(self, server: Started) -> None:
        http = await Http.unix(server[1])
        assert server[1].socket.stat().st_mode & 0o777 == 0o600
        status, body = await http.request("GET", "/api/v1/namespaces")
        assert status == 200
        found = [item["metadata"]["name"] for item in json.loads(body)["items"]]
        assert found == ["default", "kube-node-lease", "kube-public", "kube-system"]
        await http.close()

    async def test_a_token(self, server: Started) -> None:
        http = await Http.tls(*server)
        token = pki.read_token(server[1])
        assert (await http.request("GET", MAPS, authorization=f"Bearer {token}"))[0] == 200
        await http.close()
        http = await Http.tls(*server)
        status, body = await http.request("GET", MAPS, authorization="Bearer wrong")
        assert (status, json.loads(body)["reason"]) == (401, "Unauthorized")
        await http.close()

    async def test_a_client_certificate(self, server: Started) -> None:
        http = await Http.tls(*server, certificate=True)
        assert (await http.request("GET", MAPS))[0] == 200
        review = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        status, body = await http.request("POST", path, review, content_type="application/json")
        assert (status, json.loads(body)["status"]["userInfo"]["username"]) == (201, "windlass-admin")
        await http.close()

    async def test_anonymous_user_reads_health_pages_only(self, server: Started) -> None:
        http = await Http.tls(*server)
        assert await http.request("GET", "/readyz") == (200, b"ok")
        status, body = await http.request("GET", MAPS)
        assert status == 403
        assert b"system:anonymous" in body
        await http.close()


class TestBodies:
    async def test_a_connection_is_kept(self, server: Started) -> None:
        http = await Http.unix(server[1])
        for number in range(5):
            body = json.dumps({"metadata": {"name": f"m{number}"}}).encode()
            status, _ = await http.request("POST", MAPS, body, content_type="application/json")
            assert status == 201
        await http.close()

    async def test_a_chunked_body(self, server: Started) -> None:
        http = await Http.unix(server[1])
        body = json.dumps({"metadata": {"name": "m"}}).encode()
        framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n"
        status, _ = await http.request("POST", MAPS, framed, transfer_encoding="chunked")
        assert status == 201
        await http.close()

    async def test_far_too_large(self, server: Started) -> None:
        http = await Http.unix(server[1])
        http.writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n" % MAPS.encode())
        status, headers, _ = await http.answer()
        assert (status, headers["connection"]) == (413, "close")
        await http.close()

    @pytest.mark.parametrize("chunked", [False, True])
    async def test_too_large(self, server: Started, chunked: bool) -> None:
        http = await Http.unix(server[1])
        body = b"x" * (3 * 2**20 + 1)
        if chunked:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            sending = asyncio.ensure_future(http.send("POST", MAPS, body, transfer_encoding="chunked"))
        else:
            sending = asyncio.ensure_future(http.send("POST", MAPS, body))
        status, headers, data = await http.answer()
        assert (status, headers["connection"]) == (413, "close")
        assert json.loads(data)["message"] == "Request entity too large: limit is 3145728"
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await http.close()

    async def test_client_that_disconnects_during_a_request(self, server: Started) -> None:
        before = len(asyncio.all_tasks())
        http = await Http.unix(server[1])
        http.writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nabc" % MAPS.encode())
        await http.writer.drain()
        await asyncio.sleep(0.05)
        await http.close()
        await _until(lambda: len(asyncio.all_tasks()) <= before)

    async def test_invalid_http_is_rejected(self, server: Started) -> None:
        http = await Http.unix(server[1])
        http.writer.write(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert (await http.head())[0] == 400
        await http.close()

    async def test_warnings_may_hold_any_text(self, server: Started) -> None:
        http = await Http.unix(server[1])
        body = json.dumps({"metadata": {"name": "m"}, "größe\n": 1}, ensure_ascii=False).encode()
        await http.send("POST", MAPS, body, content_type="application/json")
        status, headers, _ = await http.answer()
        assert status == 201
        assert headers["warning"].startswith("299 - ")
        await http.close()

    async def test_header_value_with_a_line_break_is_not_sent(
        self, server: Started, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def handle(request: Request, user: UserInfo) -> Response:
            return Response(200, {"warning": "a\r\nset-cookie: b"}, b"")

        monkeypatch.setattr(server[0].api, "handle", handle)
        http = await Http.unix(server[1])
        await http.send("GET", MAPS)
        status, headers, _ = await http.answer()
        assert status == 500
        assert "set-cookie" not in headers
        await http.close()


async def _until(condition, seconds: float = 60.0) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


class TestStreams:
    async def test_headers_come_at_once(self, server: Started) -> None:
        http = await Http.unix(server[1])
        rv = server[0].store.rv
        await http.send("GET", f"{MAPS}?watch=1&resourceVersion={rv}")
        status, headers = await http.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        other = await Http.unix(server[1])
        body = json.dumps({"metadata": {"name": "m"}}).encode()
        assert (await other.request("POST", MAPS, body))[0] == 201
        assert json.loads(await http.chunk())["type"] == "ADDED"
        await http.close()
        await other.close()

    async def test_bookmarks_and_the_end(self, server: Started) -> None:
        http = await Http.unix(server[1])
        await http.send("GET", f"{MAPS}?watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=3")
        status, _, data = await http.answer()
        kinds = [json.loads(line)["type"] for line in data.splitlines()]
        assert status == 200
        assert set(kinds) == {"BOOKMARK"}
        assert len(kinds) >= 2
        await http.close()

    @pytest.mark.parametrize("over", ["unix", "tls"])
    async def test_a_watch_ends_with_its_client(self, server: Started, over: str) -> None:
        started, state = server
        watches = []
        for _ in range(10):
            http = (
                await Http.unix(state) if over == "unix" else await Http.tls(started, state, certificate=True)
            )
            await http.send("GET", f"{MAPS}?watch=1")
            await http.head()
            watches.append(http)
        await _until(lambda: started.api.core.open_watches == 10)
        for http in watches:
            http.writer.transport.abort()
        await _until(lambda: started.api.core.open_watches == 0 and not started.store.watchers())

    async def test_a_long_list_is_streamed(self, server: Started) -> None:
        started, state = server
        for start in range(0, 3000, 500):
            await asyncio.gather(
                *(
                    started.store.create(
                        "configmaps",
                        "default",
                        f"m{n}",
                        {"metadata": {"name": f"m{n}", "namespace": "default"}},
                    )
                    for n in range(start, start + 500)
                )
            )
        http = await Http.unix(state)
        await http.send("GET", MAPS)
        status, headers, data = await http.answer()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        assert len(json.loads(data)["items"]) == 3000
        assert (await http.request("GET", "/readyz")) == (200, b"ok")
        await http.close()

    async def test_a_reader_that_stalls_is_cut_off(
        self, server: Started, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started, state = server
        monkeypatch.setattr("windlass.server.http.asgi._STALL_SECONDS", 0.3)
        http = await Http.unix(state)
        http.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await http.send("GET", f"{MAPS}?watch=1")
        await _until(lambda: started.api.core.open_watches == 1)
        for number in range(40):
            obj = {"metadata": {"name": f"m{number}"}, "data": {"pad": "x" * 100_000}}
            await started.store.create("configmaps", "default", f"m{number}", obj)
        await _until(lambda: started.api.core.open_watches == 0)
        await http.close()


class TestEnd:
    async def test_it_ends_although_watches_are_open(
        self, tmp_path: Path, no_leaks: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The end does not wait until requests in progress would be cut off."""
        monkeypatch.setattr(listeners, "_DRAIN_SECONDS", 200)
        state = make_state(tmp_path / "s")
        loop = asyncio.get_running_loop()
        async with running(configure(state), clock=SystemClock(), rng=rng.system()) as started:
            watch = await Http.unix(state)
            await watch.send("GET", f"{MAPS}?watch=1")
            await watch.head()
            idle = await Http.tls(started, state, certificate=True)
            assert (await idle.request("GET", MAPS))[0] == 200
            begin = loop.time()
        assert loop.time() - begin < 100
        assert await watch.chunk() == b""
        assert await idle.reader.read() == b""
        await watch.close()
        await idle.close()

    async def test_serve_ends_when_it_is_cancelled(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(
            serve(configure(state), clock=SystemClock(), rng=rng.system(), ready=ready.set_result)
        )
        started = await ready
        http = await Http.unix(state)
        body = json.dumps({"metadata": {"name": "m"}}).encode()
        assert (await http.request("POST", MAPS, body))[0] == 201
        await http.close()
        rv = started.store.rv
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        config = replace(configure(state), port=started.port)  # its Service in the store names the port
        async with running(config, clock=SystemClock(), rng=rng.system()) as again:
            assert again.store.rv == rv
            assert again.store.get("configmaps", "default", "m") is not None

    async def test_serve_raises_when_the_store_fails(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(
            serve(configure(state), clock=SystemClock(), rng=rng.system(), ready=ready.set_result)
        )
        store = (await ready).store
        await store.on_database(lambda database: database._connection.execute("DROP TABLE log_main"))
        http = await Http.unix(state)
        status, data = await http.request("POST", MAPS, json.dumps({"metadata": {"name": "m"}}).encode())
        assert (status, store_errors.FAILED.encode() in data) == (500, True)
        with pytest.raises(WindlassError) as told:
            await asyncio.wait_for(task, 60)
        assert told.value.code == store_errors.FAILED
        await http.close()


class TestRenewal:
    """A control plane that runs for years: its certificate never expires, and no client is cut off."""

    async def test_certificates_are_renewed_under_a_running_server(
        self, tmp_path: Path, no_leaks: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(renewal, "LOOK_SECONDS", 0.05)
        state, clock = make_state(tmp_path / "s"), SystemClock()
        async with running(configure(state), clock=clock, rng=rng.system()) as started:
            old = await Http.tls(started, state)
            assert (await old.request("GET", "/readyz"))[0] == 200
            # As if all had been made 350 days ago: fifteen days are left of them.
            pki.ensure(state, FakeClock(clock.now() - 350 * 86_400))
            ends = state.server_cert.read_bytes()
            while state.server_cert.read_bytes() == ends:
                await asyncio.sleep(0.01)
            while pki_of(state.kubeconfig) != state.ca_cert.read_bytes():
                await asyncio.sleep(0.01)
            fresh = await Http.tls(started, state)
            presented = fresh.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert ssl.PEM_cert_to_DER_cert(state.server_cert.read_text()) == presented
            for connection in (old, fresh):
                assert (await connection.request("GET", "/readyz"))[0] == 200
                await connection.close()

    def test_certificates_are_renewed_only_when_they_expire(
        self, tmp_path: Path, fake_clock: FakeClock
    ) -> None:
        state = make_state(tmp_path / "s")
        pki.ensure(state, fake_clock)
        context = tls_context(state)
        assert not renewal.renew(state, fake_clock, context, "https://127.0.0.1:1")
        fake_clock.jump(340 * 86_400)
        assert renewal.renew(state, fake_clock, context, "https://127.0.0.1:1")
        assert not renewal.renew(state, fake_clock, context, "https://127.0.0.1:1")

    async def test_failed_renewal_is_logged_and_retried(
        self, tmp_path: Path, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        state = make_state(tmp_path / "s")
        pki.ensure(state, fake_clock)
        context, key = tls_context(state), state.ca_key.read_bytes()
        work = asyncio.create_task(renewal.keep_fresh(state, fake_clock, context, "https://127.0.0.1:1"))
        await asyncio.sleep(0)
        state.ca_key.write_text("none")
        fake_clock.jump(340 * 86_400)
        await fake_clock.advance(renewal.LOOK_SECONDS)
        assert "certificates not renewed" in caplog.text
        before = state.server_cert.read_bytes()
        state.ca_key.write_bytes(key)
        await fake_clock.advance(renewal.LOOK_SECONDS)
        assert state.server_cert.read_bytes() != before
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def pki_of(kubeconfig: Path) -> bytes:
    """The authority that a kubeconfig names."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    return base64.b64decode(cluster["certificate-authority-data"])


class TestStart:
    async def refused(self, config: ServeConfig) -> WindlassError:
        with pytest.raises(WindlassError) as told:
            async with running(config, clock=SystemClock(), rng=rng.system()):
                pass
        assert told.value.remedies
        return told.value

    async def test_a_port_in_use(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        with bind_tcp(0) as taken:
            port = taken.getsockname()[1]
            error = await self.refused(ServeConfig(state, port=port))
        assert error.code == PORT
        assert str(port) in error.message

    async def test_a_socket_in_use(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        with bind_unix(state.socket):
            error = await self.refused(configure(state))
        assert error.code == PORT

    async def test_a_socket_of_a_dead_server(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        bind_unix(state.socket).close()
        async with running(configure(state), clock=SystemClock(), rng=rng.system()):
            http = await Http.unix(state)
            assert (await http.request("GET", "/readyz"))[0] == 200
            await http.close()

    async def test_a_file_in_the_way_of_the_socket(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        state.socket.write_text("precious")
        error = await self.refused(configure(state))
        assert str(state.socket) in error.message
        assert state.socket.read_text() == "precious"

    async def test_a_database_in_use(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        async with running(configure(state), clock=SystemClock(), rng=rng.system()):
            state.socket.unlink()
            error = await self.refused(configure(state))
        assert error.code == store_errors.LOCKED

    async def test_a_damaged_database(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        state.database.write_bytes(b"no database" * 1000)
        assert (await self.refused(configure(state))).code == store_errors.DAMAGED

    async def test_sockets_of_the_caller(self, tmp_path: Path, no_leaks: None) -> None:
        state = make_state(tmp_path / "s")
        tcp, unix = bind_tcp(0), bind_unix(state.socket)
        port = tcp.getsockname()[1]
        config = ServeConfig(state, tcp=tcp, unix=unix, store=StoreOptions(synchronous="OFF"))
        async with running(config, clock=SystemClock(), rng=rng.system()) as started:
            assert started.port == port
            assert started.url == f"https://127.0.0.1:{port}"
            assert json.dumps(started.url).strip('"') in state.kubeconfig.read_text()

    def test_a_port_without_permission(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(self: socket.socket, address: object) -> None:
            raise PermissionError(13, os.strerror(13))

        monkeypatch.setattr(socket.socket, "bind", refuse)
        with pytest.raises(WindlassError, match="no permission to listen"):
            bind_tcp(80)

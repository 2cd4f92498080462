"""Proxies: which one is chosen, how both clients pass through it, and what they say when they cannot."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from http_proxy import proxying
from threaded_server import Caller, serving
from throwaway_certificates import Authority

from windlass.api.errors import WindlassError
from windlass.client import errors, proxies
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection, over_socket
from windlass.client.errors import Unreachable
from windlass.client.http import HttpOptions, HttpTransport
from windlass.client.transport import Request, Response

pytestmark = pytest.mark.usefixtures("no_leaks")
GET = Request("GET", "/api/v1/pods", "limit=1", {"accept": "*/*"})
VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxy_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def ask_blocking(connection: Connection, requests: int = 1) -> Response:
    with BlockingClient(connection, timeout_seconds=5.0) as client:
        return [client.request(GET) for _ in range(requests)][-1]


def ask_async(connection: Connection, requests: int = 1) -> Response:
    async def ask() -> Response:
        transport = HttpTransport(connection, options=HttpOptions(connect_seconds=5.0))
        try:
            return [await transport.request(GET) for _ in range(requests)][-1]
        finally:
            await transport.close()

    return asyncio.run(ask())


Ask = Callable[..., Response]
both = pytest.mark.parametrize("ask", [ask_blocking, ask_async])


class Far(NamedTuple):
    """A server that only the proxy can reach, by its name ``api.test``."""

    connection: Connection
    hosts: dict[str, tuple[str, int]]


def answer_all(caller: Caller) -> None:
    while True:
        head, _ = caller.request()
        caller.answer({"line": head.split("\r\n")[0], "auth": "proxy-authorization" in head})


def _far(url: str, **settings: bytes) -> Far:
    port = int(url.rpartition(":")[2])
    server = f"{url.partition('://')[0]}://api.test:{port}"
    return Far(Connection(server, **settings), {f"api.test:{port}": ("127.0.0.1", port)})  # type: ignore[arg-type]


@pytest.fixture
def far_tls(tmp_path: Path) -> Iterator[Far]:
    authority = Authority()
    pair = authority.server("api.test")
    (tmp_path / "pem").write_bytes(pair.cert + pair.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "pem")
    with serving(answer_all, tls=tls) as url:
        yield _far(url, ca_data=authority.pem)


@pytest.fixture
def far_plain() -> Iterator[Far]:
    with serving(answer_all) as url:
        yield _far(url)


# ---------------------------------------------------------------------- through the proxy


@both
def test_tls_passes_through_a_tunnel(ask: Ask, far_tls: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxying(far_tls.hosts) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        answer = ask(far_tls.connection, 3)
    assert answer.status == 200
    assert b"GET /api/v1/pods?limit=1 HTTP/1.1" in answer.body
    (place,) = far_tls.hosts
    assert proxy.heads == [f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n\r\n"]


@both
def test_plain_http_is_sent_to_the_proxy(ask: Ask, far_plain: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxying(far_plain.hosts) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        answer = ask(far_plain.connection)
    assert b"GET /api/v1/pods?limit=1 HTTP/1.1" in answer.body
    (place,) = far_plain.hosts
    assert proxy.heads[0].startswith(f"GET http://{place}/api/v1/pods?limit=1 HTTP/1.1\r\n")
    assert f"host: {place}\r\n" in proxy.heads[0]


@both
def test_proxy_url_of_the_kubeconfig_is_used_for_loopback_too(
    ask: Ask, far_tls: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for by name; the environment decides only where it is missing."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    port = far_tls.connection.address[1]
    with proxying({f"127.0.0.1:{port}": ("127.0.0.1", port)}) as proxy:
        near = Connection(
            f"https://127.0.0.1:{port}",
            ca_data=far_tls.connection.ca_data,
            tls_server_name="api.test",
            proxy_url=proxy.url,
        )
        assert ask(near).status == 200
    assert len(proxy.heads) == 1


@both
def test_credentials_in_the_address_go_to_the_proxy_only(
    ask: Ask, far_tls: Far, far_plain: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    with proxying(far_tls.hosts | far_plain.hosts, authorization=expected) as proxy:
        address = proxy.url.replace("//", "//me:p%40ss@")
        monkeypatch.setenv("HTTPS_PROXY", address)
        monkeypatch.setenv("HTTP_PROXY", address)
        assert b'"auth": false' in ask(far_tls.connection).body
        assert ask(far_plain.connection).status == 200
        assert len(proxy.heads) == 2
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        for name, far in (("HTTPS_PROXY", far_tls), ("HTTP_PROXY", far_plain)):
            with pytest.raises(Unreachable, match="407 Proxy Authentication Required") as raised:
                ask(far.connection)
            assert raised.value.code == errors.PROXY_REFUSED
            assert f"put the credentials into {name}: http://USER:PASSWORD@HOST:PORT" in raised.value.remedies


@both
def test_the_certificate_of_the_server_is_checked_through_the_proxy(ask: Ask, far_tls: Far) -> None:
    with proxying(far_tls.hosts) as proxy:
        stranger = Connection(far_tls.connection.server, ca_data=Authority().pem, proxy_url=proxy.url)
        with pytest.raises(Unreachable, match="not signed by the authority"):
            ask(stranger)


async def test_watches_pass_through_the_proxy() -> None:
    def behaviour(caller: Caller) -> None:
        head, _ = caller.request()
        assert "watch=true" in head
        caller.chunks(b"first\n", b"second\n")

    with serving(behaviour) as url:
        far = _far(url)
        with proxying(far.hosts) as proxy:
            connection = Connection(far.connection.server, proxy_url=proxy.url)
            transport = HttpTransport(connection)
            watch = await transport.request(Request("GET", "/api/v1/pods", "watch=true"))
            assert watch.stream is not None
            assert b"".join([chunk async for chunk in watch.stream]) == b"first\nsecond\n"
            await transport.close()
    assert len(proxy.heads) == 1


# ---------------------------------------------------------------------- when it fails


@both
@pytest.mark.parametrize(
    ("answer", "code"),
    [("403 Forbidden", errors.PROXY_REFUSED), ("502 Bad Gateway", errors.PROXY_UNREACHABLE)],
)
def test_a_proxy_that_refuses(
    ask: Ask, answer: str, code: str, far_tls: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxying(far_tls.hosts, answer=answer) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(Unreachable) as raised:
            ask(far_tls.connection)
    error = raised.value
    assert error.code == code
    assert error.message == f"the proxy {proxy.url} does not connect to {far_tls.connection.server}: {answer}"
    assert error.evidence == "the proxy's address was read from HTTPS_PROXY"
    assert error.remedies == (
        "ask for access to api.test on the proxy",
        "export NO_PROXY=api.test, if api.test is reached directly",
    )


def test_a_proxy_that_is_busy_is_asked_again(far_tls: Far) -> None:
    with proxying(far_tls.hosts, answer="503 Service Unavailable") as proxy:
        connection = Connection(
            far_tls.connection.server, ca_data=far_tls.connection.ca_data, proxy_url=proxy.url
        )
        with BlockingClient(connection) as client:

            def later(seconds: float) -> None:
                proxy.answer = ""

            client._clock.pause = later  # type: ignore[method-assign]
            client.call(GET)
    assert len(proxy.heads) == 2


@both
@pytest.mark.parametrize("secure", [True, False])
def test_a_proxy_that_is_not_there(ask: Ask, secure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variable = "HTTPS_PROXY" if secure else "HTTP_PROXY"
    monkeypatch.setenv(variable, f"http://me:secret@127.0.0.1:{port}")
    server = f"{'https' if secure else 'http'}://api.test:6443"
    with pytest.raises(Unreachable) as raised:
        ask(Connection(server))
    error = raised.value
    assert (error.code, error.refused, error.processed) == (errors.PROXY_UNREACHABLE, True, False)
    assert error.message.startswith(
        f"cannot connect to the proxy http://127.0.0.1:{port}, through which {server} is reached: "
    )
    assert error.evidence == f"the proxy's address was read from {variable}"
    assert "secret" not in str(error)


@both
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "it closed the connection"),
        (b"220 mail.example ESMTP\r\n\r\n", "it does not speak HTTP: '220 mail.example ESMTP'"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * (1 << 17), "its answer does not end"),
    ],
)
def test_a_proxy_that_does_not_answer_as_one(ask: Ask, said: bytes, words: str) -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        if said:
            caller.sock.sendall(said)

    with serving(behaviour) as url:
        connection = Connection("https://api.test:6443", proxy_url=url, source="/etc/kubeconfig")
        with pytest.raises(Unreachable) as raised:
            ask(connection)
    assert words in raised.value.message
    assert raised.value.evidence == "the proxy's address was read from proxy-url in /etc/kubeconfig"
    assert raised.value.remedies[-1] == "remove proxy-url if api.test is reached directly"


def test_a_proxy_that_is_silent_is_given_up() -> None:
    async def ask(url: str) -> None:
        transport = HttpTransport(
            Connection("https://api.test:6443", proxy_url=url), options=HttpOptions(connect_seconds=0.05)
        )
        try:
            await transport.request(GET)
        finally:
            await transport.close()

    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.request()  # until the client leaves

    with serving(behaviour) as url:
        with pytest.raises(Unreachable, match=r"cannot connect to the proxy .*: no answer within 0.05 s"):
            asyncio.run(ask(url))
        blocking = BlockingClient(Connection("https://api.test:6443", proxy_url=url), timeout_seconds=0.05)
        with blocking, pytest.raises(Unreachable, match=r"the proxy .* does not connect to .*: timed out"):
            blocking.request(GET)


# ---------------------------------------------------------------------- which proxy


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://a.example", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://a.example", {"https_proxy": "p:3128"}, "http://p:3128"),
        ("https://a.example", {"HTTPS_PROXY": "http://one", "https_proxy": "http://two"}, "http://one:80"),
        ("https://a.example", {"HTTP_PROXY": "http://p:3128"}, None),
        ("http://a.example", {"HTTP_PROXY": "http://p:3128"}, "http://p:3128"),
        ("http://a.example", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.example, a.example"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "no_proxy": "a.example"}, None),
        ("https://a.example", {"HTTPS_PROXY": "", "https_proxy": ""}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://[fd00::1]:8"}, "http://[fd00::1]:8"),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://localhost", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://a.example", {"HTTPS_PROXY": "socks5://p:1", "NO_PROXY": "a.example"}, None),
    ],
)
def test_the_environment_chooses(server: str, environ: dict[str, str], expected: str | None) -> None:
    found = proxies.choose(Connection(server), environ)
    assert (found.url if found else None) == expected


def test_a_unix_socket_uses_no_proxy() -> None:
    environ = {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}
    assert proxies.choose(over_socket("/run/windlass.sock"), environ) is None


@pytest.mark.parametrize(
    ("host", "entry", "bypassed"),
    [
        ("a.example", "a.example", True),
        ("x.a.example", "a.example", True),
        ("xa.example", "a.example", False),
        ("a.example", ".a.example", False),
        ("x.a.example", ".a.example", True),
        ("x.a.example", "*.a.example", True),
        ("a.example", "*.a.example", False),
        ("A.Example", "a.EXAMPLE", True),
        ("a.example", "a.example:6443", True),
        ("a.example", "a.example:443", False),
        ("a.example", "*", True),
        ("a.example", ",,b.example", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:6443", True),
        ("10.1.2.3", "10.1.2.3:1", False),
        ("fd00::5", "fd00::/8", True),
        ("fd00::5", "[fd00::5]:6443", True),
        ("fd00::5", "fd00::5", True),
        ("a.example", "10.0.0.0/40", False),
        ("127.0.0.9", "", True),
        ("::1", "", True),
        ("localhost", "", True),
        ("localhost.example", "", False),
    ],
)
def test_no_proxy(host: str, entry: str, bypassed: bool) -> None:
    """The cases are those of Go's ``httpproxy``, which client-go uses."""
    assert proxies.bypasses(host, 6443, entry) is bypassed


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("socks5://p:1080", "socks5:// proxies are not supported"),
        ("https://p:3128", "https:// proxies are not supported"),
        ("http://p:port", "Port could not be cast"),
        ("http://", "the host is missing"),
        ("http://me:secret@p:99999", "Port out of range"),
    ],
)
def test_an_address_that_is_not_one(address: str, why: str) -> None:
    with pytest.raises(WindlassError) as raised:
        proxies.choose(Connection("https://a.example"), {"HTTPS_PROXY": address})
    error = raised.value
    assert error.code == errors.PROXY_ADDRESS
    assert error.message.startswith(f"HTTPS_PROXY does not hold the address of a proxy: {why}")
    assert error.remedies[0] == "set HTTPS_PROXY to http://HOST:PORT"
    assert "secret" not in f"{error} {error.evidence}"

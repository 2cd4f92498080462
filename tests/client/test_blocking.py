from __future__ import annotations

import errno
import json
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from threaded_server import Caller, serving
from throwaway_certificates import Authority

from windlass.api.errors import StatusError
from windlass.api.resources import PODS
from windlass.client import errors
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection, over_socket
from windlass.client.errors import Unreachable

pytestmark = pytest.mark.usefixtures("no_leaks")

POD = {"metadata": {"name": "p", "namespace": "ns"}}


def client_of(url: str, **settings: float) -> BlockingClient:
    return BlockingClient(Connection(url, token="secret"), user_agent="windlass-cli", **settings)  # type: ignore[arg-type]


def test_verbs_over_one_connection() -> None:
    seen: list[tuple[str, bytes]] = []

    def behaviour(caller: Caller) -> None:
        assert caller.number == 0
        while True:
            seen.append(caller.request())
            caller.answer(POD)

    with serving(behaviour) as url, client_of(url) as client:
        assert client.get(PODS, "p", "ns") == POD
        client.create(PODS, POD)
        client.update(PODS, POD, subresource="status")
        client.patch(PODS, "p", {"a": 1}, "ns", subresource="status")
        client.delete(PODS, "p", "ns", grace_seconds=0)
        client.bind("ns", "p", "n", uid="u")
    lines = [head.split("\r\n")[0] for head, _ in seen]
    assert lines == [
        "GET /api/v1/namespaces/ns/pods/p HTTP/1.1",
        "POST /api/v1/namespaces/ns/pods HTTP/1.1",
        "PUT /api/v1/namespaces/ns/pods/p/status HTTP/1.1",
        "PATCH /api/v1/namespaces/ns/pods/p/status HTTP/1.1",
        "DELETE /api/v1/namespaces/ns/pods/p HTTP/1.1",
        "POST /api/v1/namespaces/ns/pods/p/binding HTTP/1.1",
    ]
    assert "authorization: Bearer secret" in seen[0][0]
    assert "user-agent: windlass-cli" in seen[0][0]
    assert json.loads(seen[4][1])["gracePeriodSeconds"] == 0


def test_who_is_acted_as_is_said_with_every_request() -> None:
    seen: list[str] = []

    def behaviour(caller: Caller) -> None:
        for _ in range(2):
            seen.append(caller.request()[0])
            caller.answer(POD)

    headers = (("impersonate-user", "alice"), ("impersonate-group", "a"), ("impersonate-group", "b"))
    with serving(behaviour) as url, BlockingClient(Connection(url, impersonate=headers)) as client:
        client.get(PODS, "p", "ns")
        client.delete(PODS, "p", "ns")
    for head in seen:
        assert {f"{name}: {value}" for name, value in headers} <= set(head.split("\r\n"))


def test_lists_are_put_together() -> None:
    def behaviour(caller: Caller) -> None:
        head, _ = caller.request()
        assert "limit=500" in head
        caller.answer({"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [POD]})
        head, _ = caller.request()
        assert "continue=t" in head
        caller.answer({"metadata": {"resourceVersion": "7"}, "items": [POD]})

    with serving(behaviour) as url, client_of(url) as client:
        result = client.list(PODS, "ns")
        assert (len(result.items), result.resource_version) == (2, "7")
        assert result.items[0]["kind"] == "Pod"


def test_watch_and_its_end() -> None:
    events = [
        json.dumps({"type": "ADDED", "object": POD}).encode() + b"\n",
        json.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "old"}}).encode()
        + b"\n",
    ]

    def behaviour(caller: Caller) -> None:
        head, _ = caller.request()
        assert "watch=true" in head
        whole = b"".join(events)
        caller.chunks(whole[:10], whole[10:70], whole[70:])

    with serving(behaviour) as url, client_of(url) as client:
        watch = client.watch(PODS, "ns", resource_version="5")
        assert next(watch) == ("ADDED", POD)
        with pytest.raises(StatusError, match="old"):
            next(watch)


def test_logs_stream_and_the_client_goes_on_with_another_connection() -> None:
    def behaviour(caller: Caller) -> None:
        head, _ = caller.request()
        if "/log" in head:
            assert "follow=true" in head
            caller.chunks(b"one\n", b"two\n")
            caller.request()
        else:
            caller.answer(POD)

    with serving(behaviour) as url, client_of(url) as client:
        assert b"".join(client.logs("ns", "p", follow=True)) == b"one\ntwo\n"
        assert client.get(PODS, "p", "ns") == POD


def test_leaving_a_stream_early_closes_its_connection() -> None:
    gone = threading.Event()

    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.chunks(b"one\n", end=False)
        try:
            caller.request()
        except EOFError:
            gone.set()

    with serving(behaviour) as url, client_of(url) as client:
        stream = client.stream("/x")
        assert next(stream) == b"one\n"
        stream.close()  # type: ignore[attr-defined]
        assert gone.wait(30)


def test_a_silent_stream_says_so_if_wanted() -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.chunks(b"one\n", end=False)
        go_on.wait(60)
        caller.sock.sendall(b"4\r\ntwo\n\r\n0\r\n\r\n")

    go_on = threading.Event()
    with serving(behaviour) as url, client_of(url) as client:
        stream = client.stream("/x", silence_seconds=0.02)
        assert [next(stream), next(stream), next(stream)] == [b"one\n", b"", b""]
        go_on.set()
        assert [chunk for chunk in stream if chunk] == [b"two\n"]


def test_a_stream_that_breaks() -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.chunks(b"one\n", end=False)

    with serving(behaviour) as url, client_of(url) as client:
        stream = client.stream("/x")
        assert next(stream) == b"one\n"
        with pytest.raises(Unreachable, match="in the middle"):
            next(stream)


def test_an_idle_connection_that_was_closed_is_replaced() -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.answer(POD)

    with serving(behaviour) as url, client_of(url) as client:
        for _ in range(3):
            client.create(PODS, POD)
            assert client._channel is not None
            while not client._channel.stale():  # until the server's close has arrived
                pass


def test_a_get_survives_a_close_at_the_same_moment() -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.answer(POD)
        if caller.number == 0:
            caller.request()

    with serving(behaviour) as url, client_of(url) as client:
        client.get(PODS, "p", "ns")
        assert client.get(PODS, "p", "ns") == POD


def test_errors_and_warnings() -> None:
    status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no", "details": {"name": "p"}}

    def behaviour(caller: Caller) -> None:
        while True:
            caller.request()
            caller.answer(status, "404 Not Found", 'Warning: 299 - "careful"\r\n')

    heard: list[str] = []
    with serving(behaviour) as url, client_of(url) as client:
        client.on_warning = heard.append
        with pytest.raises(StatusError, match="no"):
            client.get(PODS, "p", "ns")
        assert client.find(PODS, "p", "ns") is None
    assert heard == ["careful", "careful"]


def test_credentials_that_are_refused_say_where_they_came_from() -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.answer({"kind": "Status", "code": 401, "message": "Unauthorized"}, "401 Unauthorized")

    with serving(behaviour) as url:
        connection = Connection(url, token="old", source="/home/u/.kube/config", context="box")
        with BlockingClient(connection) as client, pytest.raises(Unreachable) as caught:
            client.get(PODS, "p", "ns")
    assert caught.value.code == errors.UNAUTHORIZED
    assert "/home/u/.kube/config" in caught.value.evidence
    assert caught.value.remedies


def test_retry_after() -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.answer({"kind": "Status", "code": 429}, "429 Too Many Requests", "Retry-After: 0\r\n")
        caller.request()
        caller.answer(POD, "201 Created")

    with serving(behaviour) as url, client_of(url) as client:
        assert client.create(PODS, POD) == POD


def test_no_answer_in_time() -> None:
    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.request()

    with (
        serving(behaviour) as url,
        client_of(url, timeout_seconds=0.05) as client,
        pytest.raises(Unreachable, match="took more than"),
    ):
        client.create(PODS, POD)


def test_nobody_there(tmp_path: Path) -> None:
    with serving(lambda _: None) as url:
        pass
    with pytest.raises(Unreachable, match="connection refused") as caught, client_of(url) as client:
        client.get(PODS, "p", "ns")
    assert caught.value.refused
    assert caught.value.remedies[1] == "windlass up   (if it is this machine's control plane)"
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "no")
    elsewhere = errors.connect_failed(refused, "https://10.0.0.1:6443", unix=False)
    assert elsewhere.remedies == ("check the server address: kubectl config view --minify",)
    with pytest.raises(Unreachable, match="there is no socket") as caught:
        BlockingClient(over_socket(tmp_path / "s")).get(PODS, "p", "ns")
    assert caught.value.remedies[0] == "windlass up"


def test_unix_socket(tmp_path: Path) -> None:
    def behaviour(caller: Caller) -> None:
        head, _ = caller.request()
        assert "host: localhost" in head
        caller.answer(POD)

    with serving(behaviour, tmp_path / "s") as path, BlockingClient(over_socket(path)) as client:
        assert client.get(PODS, "p", "ns") == POD


@pytest.mark.parametrize("socket_file", [True, False], ids=["socket", "address"])
def test_a_refusal_before_the_body_is_sent_is_heard(tmp_path: Path, socket_file: bool) -> None:
    """A server that will not take so much answers at once and closes: why is told, not the broken pipe."""
    status = {"kind": "Status", "code": 413, "reason": "RequestEntityTooLarge", "message": "too large"}

    def behaviour(caller: Caller) -> None:
        caller.sock.recv(2000)
        caller.answer(status, "413 Too Large", "Connection: close\r\n")
        caller.sock.shutdown(socket.SHUT_WR)
        if not socket_file:  # an unread rest would make TCP drop the answer, as a server's linger does not
            while caller.sock.recv(1 << 20):
                pass

    huge = {**POD, "data": "x" * 20_000_000}
    with (
        serving(behaviour, tmp_path / "s" if socket_file else None) as where,
        BlockingClient(over_socket(where)) if socket_file else client_of(where) as client,
    ):
        with pytest.raises(StatusError) as caught:
            client.create(PODS, huge)
        assert caught.value.code == 413
        with pytest.raises(StatusError):  # over another connection
            client.create(PODS, huge)


def test_a_close_before_the_body_is_sent_without_an_answer(tmp_path: Path) -> None:
    def behaviour(caller: Caller) -> None:
        caller.sock.recv(2000)

    with (
        serving(behaviour, tmp_path / "s") as path,
        BlockingClient(over_socket(path)) as client,
        pytest.raises(Unreachable, match=r"Broken pipe|reset"),
    ):
        client.create(PODS, {**POD, "data": "x" * 20_000_000})


def test_tls(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.server("127.0.0.1")
    (tmp_path / "pem").write_bytes(pair.cert + pair.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "pem")

    def behaviour(caller: Caller) -> None:
        caller.request()
        caller.answer(POD)

    with serving(behaviour, tls=tls) as url:
        with BlockingClient(Connection(url, ca_data=authority.pem)) as client:
            assert client.get(PODS, "p", "ns") == POD
        stranger = Connection(url, ca_data=Authority().pem)
        with (
            BlockingClient(stranger) as client,
            pytest.raises(Unreachable, match="not signed by the authority"),
        ):
            client.get(PODS, "p", "ns")


def test_tls_to_a_port_without() -> None:
    def behaviour(caller: Caller) -> None:
        caller.sock.recv(100)
        caller.answer(b"no", "400 Bad Request")

    with (
        serving(behaviour) as url,
        client_of(url.replace("http:", "https:")) as client,
        pytest.raises(Unreachable, match="does not speak TLS"),
    ):
        client.get(PODS, "p", "ns")


def test_it_imports_neither_asyncio_nor_ssl_nor_yaml() -> None:
    program = (
        "import sys, windlass.client.blocking, windlass.client.kubeconfig;"
        "print(*sorted({'asyncio', 'ssl', 'yaml', 'http.client', 'email', 'subprocess', 'cryptography'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

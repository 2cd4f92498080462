"""HTTP and TCP probes against servers of every temper, named ports, and the order of hooks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import throwaway_certificates

from windlass.kits.clock import FakeClock
from windlass.node.lifecycle.events import Exit, RecordEvent
from windlass.node.lifecycle.probe_results import Probe, ProbeKind
from windlass.node.probes import http_probe
from windlass.node.probes.handlers import ActionError, Actions, HandlerOutcome, ProbeResult, port_of
from windlass.node.probes.lifecycle_hooks import LifecycleHooks
from windlass.node.sandbox.pod_network import NO_ISOLATION, Network

HERE = "127.0.0.1"
Served = Callable[[bytes], bytes]


@contextlib.asynccontextmanager
async def served(answer: bytes | Served, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Any]:
    """A server that gives the answer to whatever is asked; yields its port, and the requests as they come."""
    asked: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            first = await reader.readexactly(1)
            if first == b"\x16" and tls is None:  # as servers do that take TLS for bad HTTP
                writer.write(said(400))
            else:
                asked.append(first + await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer(asked[-1]) if callable(answer) else answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, HERE, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


def actions(tmp_path: Path, clock: FakeClock | None = None) -> Actions:
    network = Network(tmp_path, NO_ISOLATION)
    return Actions(network, clock or FakeClock(), attempt=lambda _: tmp_path, address=lambda: HERE)


def http(port: int | str, timeout: float = 10.0, **detail: Any) -> Probe:
    return Probe(
        ProbeKind.READINESS, "httpGet", {"port": port, "path": "/", **detail}, timeout_seconds=timeout
    )


def said(code: int, *headers: str, body: str = "") -> bytes:
    lines = [f"HTTP/1.1 {code} Whatever", *headers, f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


async def asked(tmp_path: Path, answer: bytes | Served, **detail: Any) -> tuple[HandlerOutcome, list[bytes]]:
    async with served(answer) as (port, requests):
        return await actions(tmp_path).check({"name": "m"}, http(port, **detail)), requests


# -- HTTP ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "passes"), [(200, True), (204, True), (304, True), (399, True), (400, False), (503, False)]
)
async def test_from_200_to_399_it_has_passed(tmp_path: Path, code: int, passes: bool) -> None:
    outcome, _ = await asked(tmp_path, said(code))
    assert (outcome.result in (ProbeResult.PASSED, ProbeResult.WARNING)) is passes
    if not passes:
        assert outcome == HandlerOutcome(ProbeResult.FAILED, f"HTTP probe failed with statuscode: {code}")


async def test_the_request_is_the_kubelets(tmp_path: Path) -> None:
    headers = [{"name": "X-A", "value": "1"}, {"name": "Host", "value": "model.example"}]
    _, requests = await asked(tmp_path, said(200), path="/health?deep=1", httpHeaders=headers)
    lines = requests[0].decode().split("\r\n")
    assert lines[0] == "GET /health?deep=1 HTTP/1.1"
    assert set(lines[1:]) == {
        "Host: model.example",
        "X-A: 1",
        "User-Agent: kube-probe/1.36",
        "Accept: */*",
        "Connection: close",
        "",
    }
    _, requests = await asked(tmp_path, said(200), httpHeaders=[{"name": "Accept", "value": ""}])
    assert b"Accept" not in requests[0]


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/a b", "/a%20b"),
        ("ready", "/ready"),
        ("http://other/x?y#z", "/x?y"),
        ("", "/"),
        ("/%7Eme", "/%7Eme"),
    ],
)
def test_paths_become_targets(path: str, target: str) -> None:
    assert http_probe.url_of("HTTP", "10.0.0.1", 80, path) == f"http://10.0.0.1:80{target}"


async def test_redirects_are_followed_on_the_same_host_only(tmp_path: Path) -> None:
    def hop(request: bytes) -> bytes:
        return said(200) if request.startswith(b"GET /there ") else said(302, "Location: /there")

    outcome, requests = await asked(tmp_path, hop, httpHeaders=[{"name": "Host", "value": "h"}])
    assert (outcome.result, len(requests)) == (ProbeResult.PASSED, 2)
    assert b"Host: h\r\n" in requests[1]
    outcome, requests = await asked(tmp_path, said(302, "Location: http://elsewhere/", body="gone"))
    assert (outcome, len(requests)) == (
        HandlerOutcome(ProbeResult.WARNING, "Probe terminated redirects, Response body: gone"),
        1,
    )
    outcome, requests = await asked(tmp_path, said(302, "Location: /again"))
    assert outcome.result is ProbeResult.FAILED
    assert outcome.output.endswith("stopped after 10 redirects")
    assert len(requests) == 10


async def test_bodies_of_every_kind_are_read_and_bounded(tmp_path: Path) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    assert (await asked(tmp_path, chunked))[0] == HandlerOutcome(ProbeResult.PASSED, "abcde")
    assert (await asked(tmp_path, b"HTTP/1.0 200 OK\n\nplain"))[0] == HandlerOutcome(
        ProbeResult.PASSED, "plain"
    )
    early = b"HTTP/1.1 100 Continue\r\n\r\n" + said(200, body="x")
    assert (await asked(tmp_path, early))[0] == HandlerOutcome(ProbeResult.PASSED, "x")
    outcome, _ = await asked(tmp_path, said(200, body="y" * 50_000))
    assert outcome == HandlerOutcome(ProbeResult.PASSED, "y" * http_probe.BODY_BYTES)
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
    assert (await asked(tmp_path, cut))[0] == HandlerOutcome(ProbeResult.ERRORED, "unexpected EOF")


async def test_no_answer_is_told_in_the_words_of_the_kubelet(tmp_path: Path) -> None:
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
        outcome = await actions(tmp_path).check({"name": "m"}, http(port, timeout=1))
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        assert outcome == HandlerOutcome(ProbeResult.FAILED, f'Get "http://{HERE}:{port}/": {late}')
    outcome = await actions(tmp_path).check({"name": "m"}, http(port))
    refused = f'Get "http://{HERE}:{port}/": dial tcp {HERE}:{port}: connect: connection refused'
    assert outcome == HandlerOutcome(ProbeResult.FAILED, refused)
    outcome, _ = await asked(tmp_path, b"")
    assert outcome.output.endswith('/": EOF')
    outcome, _ = await asked(tmp_path, b"SSH-2.0-x\r\n")
    assert outcome.output.endswith('malformed HTTP response "SSH-2.0-x"')


async def test_https_takes_any_certificate(tmp_path: Path) -> None:
    pair = throwaway_certificates.Authority().server("somebody.else")
    (tmp_path / "pem").write_bytes(pair.cert + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    async with served(said(200), tls=context) as (port, _):
        outcome = await actions(tmp_path).check({"name": "m"}, http(port, scheme="HTTPS"))
        assert outcome.result is ProbeResult.PASSED
    async with served(said(200)) as (port, _):
        outcome = await actions(tmp_path).check({"name": "m"}, http(port, scheme="HTTPS"))
        assert outcome == HandlerOutcome(
            ProbeResult.FAILED, f'Get "https://{HERE}:{port}/": {http_probe.PLAIN_HTTP_RESPONSE}'
        )


# -- ports, TCP ------------------------------------------------------------------------------------------


def test_ports_by_number_and_by_name() -> None:
    container = {"name": "m", "ports": [{"name": "web", "containerPort": 8000}, {"containerPort": 9}]}
    assert [port_of(port, container) for port in (80, "web", "81")] == [80, 8000, 81]
    with pytest.raises(ActionError, match=r'strconv\.Atoi: parsing "http": invalid syntax'):
        port_of("http", container)
    with pytest.raises(ActionError, match="invalid port number: 0"):
        port_of(0, container)


async def test_tcp(tmp_path: Path) -> None:
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
        probe = Probe(ProbeKind.READINESS, "tcpSocket", {"port": port})
        assert await actions(tmp_path).check({"name": "m"}, probe) == HandlerOutcome(ProbeResult.PASSED)
    outcome = await actions(tmp_path).check({"name": "m"}, probe)
    assert outcome == HandlerOutcome(
        ProbeResult.FAILED, f"dial tcp {HERE}:{port}: connect: connection refused"
    )
    outcome = await actions(tmp_path).check(
        {"name": "m"}, Probe(ProbeKind.READINESS, "tcpSocket", {"port": "x"})
    )
    assert outcome == HandlerOutcome(ProbeResult.ERRORED, 'strconv.Atoi: parsing "x": invalid syntax')


# -- hooks -----------------------------------------------------------------------------------------------


async def test_what_hooks_do(tmp_path: Path) -> None:
    clock = FakeClock()
    run = actions(tmp_path, clock)

    def one(**handler: Any) -> dict[str, Any]:
        return {"name": "m", "lifecycle": {"postStart": handler}}

    async with served(said(500)) as (port, requests):
        await run.hook(one(httpGet={"port": port, "path": "/up"}), "postStart")  # any answer will do
        await run.hook(one(httpGet={"port": port, "path": "/up", "scheme": "HTTPS"}), "postStart")
        assert [r.split(b" HTTP")[0] for r in requests] == [b"GET /up", b"GET /up"]
        assert b"User-Agent: kube-lifecycle/1.36" in requests[0]
    with pytest.raises(ActionError, match="connection refused"):
        await run.hook(one(httpGet={"port": port, "path": "/"}), "postStart")
    with pytest.raises(ActionError, match="invalid handler"):
        await run.hook(one(tcpSocket={"port": port}), "postStart")
    pause = asyncio.ensure_future(run.hook(one(sleep={"seconds": 5}), "postStart"))
    await asyncio.sleep(0)
    await clock.advance(4.9)
    assert not pause.done()
    await clock.advance(0.1)
    await pause


class Asked:
    """A container's handle that notes with which grace it was stopped, and when."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.stops: list[tuple[float, float]] = []

    async def started(self) -> float | Exit:
        return 0.0

    async def ended(self) -> Exit:
        return Exit(0, "Completed")

    def stop(self, grace_seconds: float) -> None:
        self.stops.append((self.clock.monotonic(), grace_seconds))


class Scene:
    """A container with a preStop hook that takes so many seconds, or fails."""

    def __init__(self, seconds: float, *, fails: bool = False) -> None:
        self.clock = FakeClock()
        self.handle = Asked(self.clock)
        self.notes: list[RecordEvent] = []
        self.seconds, self.fails = seconds, fails
        hooks = {"m": frozenset({"preStop", "postStart"})}
        self.hooks = LifecycleHooks(
            hooks, self.clock, self._carry, record_event=self.notes.append, spawn=self._spawn
        )
        self.hooks.command_started("m")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    async def _carry(self, _: str, __: str) -> None:
        await self.clock.sleep(self.seconds)
        if self.fails:
            raise ActionError("exit status 1: secret")

    async def stop(self, grace: float, then: float = 0.0) -> None:
        self.hooks.stop("m", self.handle, grace)
        for _ in range(5):
            await asyncio.sleep(0)
        await self.clock.advance(then)


FAILED = RecordEvent("Warning", "FailedPreStopHook", "PreStopHook failed")


async def test_the_hook_runs_before_sigterm_and_takes_of_the_grace() -> None:
    scene = Scene(3)
    await scene.stop(10, then=20)
    assert (scene.handle.stops, scene.notes) == ([(3.0, 7.0)], [])


async def test_a_hook_that_takes_all_of_the_grace_leaves_two_seconds() -> None:
    scene = Scene(60)
    await scene.stop(10, then=20)
    assert (scene.handle.stops, scene.notes) == ([(10.0, 2.0)], [FAILED])


async def test_a_hook_that_fails_is_told_without_what_it_said() -> None:
    scene = Scene(1, fails=True)
    await scene.stop(10, then=20)
    assert (scene.handle.stops, scene.notes) == ([(1.0, 9.0)], [FAILED])


async def test_a_shorter_grace_hurries_the_hook_and_none_leaves_it_out() -> None:
    scene = Scene(60)
    await scene.stop(30, then=1)
    await scene.stop(4, then=2)
    await scene.stop(20, then=10)
    assert scene.handle.stops == [(5.0, 2.0)]
    await scene.stop(1)
    assert scene.handle.stops[1:] == [(13.0, 1.0)], "after the hook it is told directly"
    scene = Scene(60)
    await scene.stop(30, then=1)
    await scene.stop(0)
    assert scene.handle.stops == [(1.0, 0.0)]
    scene = Scene(60)
    await scene.stop(0)
    assert (scene.handle.stops, scene.notes) == ([(0.0, 0.0)], [])


async def test_a_container_that_ends_by_itself_gives_its_hooks_up() -> None:
    scene = Scene(60)
    await scene.stop(30, then=1)
    scene.hooks.ended("m")
    await scene.clock.advance(100)
    assert (scene.handle.stops, scene.notes) == ([], [])
    await scene.stop(5)
    assert scene.handle.stops == [(101.0, 5.0)], "no command runs that the hook could be about"


async def test_a_start_hook_passes_fails_or_is_given_up() -> None:
    for seconds, fails, ends, passed in (
        (1, False, False, True),
        (1, True, False, False),
        (9, False, True, False),
    ):
        scene = Scene(seconds, fails=fails)
        hook = asyncio.ensure_future(scene.hooks.post_start("m"))
        for _ in range(5):
            await asyncio.sleep(0)
        await scene.clock.advance(1)
        if ends:
            scene.hooks.ended("m")
        assert await hook is passed
        expected = [] if passed else [RecordEvent("Warning", "FailedPostStartHook", "PostStartHook failed")]
        assert scene.notes == expected

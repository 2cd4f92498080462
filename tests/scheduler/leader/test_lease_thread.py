"""Leader election on its own thread.

neither a busy loop nor an unresponsive server costs the lease.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from windlass.api.resources import PODS
from windlass.client import kubeconfig
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.kits import rng as randomness
from windlass.kits.clock import SystemClock
from windlass.scheduler.leader.election import LeaderLost, LeaseOptions
from windlass.scheduler.leader.lease_thread import LeaseThread

OPTIONS = LeaseOptions(duration_seconds=6, renew_seconds=4.0, retry_seconds=0.2)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Server(ThreadingHTTPServer):
    """Keeps one lease, and never answers anything else until it ends."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.held_up = 0

    def keep(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = lease
        return lease


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        server = self.server
        if not self.path.startswith(LEASES):
            server.held_up += 1
            server.over.wait()
            return
        with server.lock:
            if self.command == "GET" and server.lease is None:
                status = {"kind": "Status", "code": 404, "reason": "NotFound"}
                self._answer(404, {**status, "details": {"name": self.path.rpartition("/")[2]}})
            elif self.command == "GET":
                self._answer(200, server.lease)
            elif self.command == "PUT" and body["metadata"]["resourceVersion"] != str(server.version):
                self._answer(409, {"kind": "Status", "code": 409, "reason": "Conflict"})
            else:
                self._answer(200, server.keep(body))

    do_GET = do_PUT = do_POST = _serve

    def _answer(self, code: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.over.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def config(server: Server, tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return str(path)


def lease_of(server: Server) -> dict[str, Any]:
    assert server.lease is not None
    return server.lease["spec"]


async def test_neither_a_busy_loop_nor_unanswered_requests_cost_the_lease(
    server: Server, config: str
) -> None:
    clock, connection = SystemClock(), kubeconfig.load(config)
    client = Client(HttpTransport(connection), clock=clock, rng=randomness.system())
    asked = [asyncio.create_task(client.get(PODS, f"p{i}", "default")) for i in range(80)]
    while server.held_up < 64:  # every slot of the scheduler's own transport is taken
        await asyncio.sleep(0.01)
    one = LeaseThread(connection, "one", user_agent="t", clock=clock, options=OPTIONS)
    assert not one.holds_lease()
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    await asyncio.sleep(0.1)
    before = lease_of(server)["renewTime"]
    time.sleep(OPTIONS.renew_seconds + 1.5)  # a long piece of work
    await asyncio.sleep(0.1)
    assert not holding.done()
    assert one.holds_lease()
    assert lease_of(server)["renewTime"] > before
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await one.release()
    assert lease_of(server)["holderIdentity"] == ""
    await one.close()
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await client.close()


async def test_the_loss_of_the_lease_ends_the_work(server: Server, config: str) -> None:
    one = LeaseThread(kubeconfig.load(config), "one", user_agent="t", clock=SystemClock(), options=OPTIONS)
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    await asyncio.sleep(0.1)
    with server.lock:
        server.keep(
            {"metadata": {"name": "l"}, "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}}
        )
    with pytest.raises(LeaderLost, match="another instance"):
        await holding
    await one.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "lease"]


@pytest.mark.parametrize("lost", [False, True])
async def test_work_runs_while_the_lease_is_held(server: Server, config: str, lost: bool) -> None:
    """No matter how the work ends: from outside, or by the loss of the lease.

    no thread remains.
    """
    one = LeaseThread(kubeconfig.load(config), "one", user_agent="t", clock=SystemClock(), options=OPTIONS)
    at_work = asyncio.Event()

    async def work() -> None:
        at_work.set()
        await asyncio.Event().wait()

    leading = asyncio.create_task(one.lead(work, "work"))
    await at_work.wait()
    assert lease_of(server)["holderIdentity"] == "one"
    if lost:
        with server.lock:
            server.keep(
                {"metadata": {"name": "l"}, "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}}
            )
        with pytest.raises(LeaderLost, match="another instance"):
            await leading
        assert lease_of(server)["holderIdentity"] == "thief"
    else:
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
        assert lease_of(server)["holderIdentity"] == ""
    assert not [thread for thread in threading.enumerate() if thread.name == "lease"]

"""The embedded server over its wire: durable writes, watch fan-out, long lists, reads under write load.

``python -m benchmarks.store_wire -o json``

The server runs as its own process on a fresh state folder, exactly as ``windlass up`` runs it (durable
commits, admission, validation); the load comes from this process over the Unix socket or TLS. Both share
the machine, so figures are lower bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.report import percentile
from windlass.kits import rng
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder
from windlass.server.main import Running, ServeConfig, serve
from windlass.store.store import Store

GOALS = {
    "writes_per_s_unix_32": 5_000,
    "watch_events_per_s_10": 50_000,
    "get_p99_ms_under_writes": 20,
    "longest_get_ms_during_list": 50,
}
_PAYLOAD = "x" * 3_400
_CLOSING_BRACE = ord("}")


_BEFORE, _AFTER = json.dumps({"metadata": {"name": "|"}, "data": {"payload": _PAYLOAD}}).encode().split(b"|")


def config_map(name: str) -> bytes:
    """A ConfigMap of 3.4 kB. Its text is made once: the load must not cost more than the server."""
    return b"%b%b%b" % (_BEFORE, name.encode(), _AFTER)


def pod(name: str) -> dict[str, Any]:
    """A training worker of about 3.8 kB."""
    environment = [{"name": f"SETTING_{i}", "value": f"value-of-setting-{i}-" + "y" * 40} for i in range(28)]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"00000000-0000-4000-8000-{abs(hash(name)) % 10**12:012d}",
            "labels": {"app": "train", "job": name.rsplit("-", 1)[0], "index": name.rsplit("-", 1)[1]},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": "windlass",
            "nodeName": f"node-{abs(hash(name)) % 5000}",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/train:1",
                    "command": ["python", "train.py"],
                    "env": environment,
                    "resources": {
                        "limits": {"nvidia.com/gpu": "1"},
                        "requests": {"cpu": "4", "memory": "16Gi"},
                    },
                }
            ],
        },
        "status": {"phase": "Running"},
    }


class Connection(asyncio.Protocol):
    """One keep-alive connection: ``send`` a request, the answer's status and length come to ``answered``."""

    def __init__(self) -> None:
        self.answered: Callable[[int, bytes], None] = lambda status, body: None
        self._buffer = b""
        self._body_at = -1
        self._total = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def send(self, method: str, path: str, body: bytes = b"", headers: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        assert self.transport is not None
        self.transport.write(head.encode() + b"\r\n" + body)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._body_at < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            mark = head.index(b"content-length: ") + 16
            length = int(head[mark:].split(b"\r\n", 1)[0])
            self._body_at, self._total = end + 4, end + 4 + length
        if len(self._buffer) >= self._total:
            status = int(self._buffer[9:12])
            body = self._buffer[self._body_at : self._total]
            self._buffer, self._body_at = self._buffer[self._total :], -1
            self.answered(status, body)


class Stream(asyncio.Protocol):
    """A connection that only counts lines and bytes."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.first = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._tail = b""
        self._last = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self.first.done():
            self.first.set_result(time.perf_counter())
        end = data.find(b"\n")  # looking for the few ends of lines is cheaper than counting in all bytes
        while end >= 0:
            self.lines += (data[end - 1] if end else self._last) == _CLOSING_BRACE
            end = data.find(b"\n", end + 1)
        self._last = data[-1]
        self.bytes += len(data)
        self._tail = (self._tail + data[-7:])[-7:]
        if self._tail.endswith(b"0\r\n\r\n") and not self.ended.done():
            self.ended.set_result(time.perf_counter())


class Target:
    """Address of the server."""

    def __init__(self, state: StateFolder, url: str) -> None:
        self.state = state
        self.port = int(url.rpartition(":")[2])
        self.token = state.token.read_text().strip()

    async def connect(self, factory: Callable[[], Any], *, tls: bool = False) -> Any:
        loop = asyncio.get_running_loop()
        if not tls:
            _, protocol = await loop.create_unix_connection(factory, str(self.state.socket))
            return protocol
        context = ssl.create_default_context(cafile=str(self.state.ca_cert))
        _, protocol = await loop.create_connection(
            factory, "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
        )
        return protocol

    def headers(self, *, tls: bool) -> str:
        return f"authorization: Bearer {self.token}\r\n" if tls else ""


class Writers:
    """``connections`` clients that create objects as fast as they are answered."""

    def __init__(self, target: Target, connections: int, prefix: str, *, tls: bool = False) -> None:
        self.target = target
        self.connections = connections
        self.prefix = prefix
        self.tls = tls
        self.latencies: list[float] = []
        self.failures: list[bytes] = []
        self._stopping = False
        self._open: list[Connection] = []
        self._idle: list[asyncio.Future[None]] = []

    async def start(self) -> None:
        for number in range(self.connections):
            connection = await self.target.connect(Connection, tls=self.tls)
            self._open.append(connection)
            self._idle.append(asyncio.get_running_loop().create_future())
            self._drive(connection, number)

    def _drive(self, connection: Connection, number: int) -> None:
        count = 0
        begin = 0.0
        headers = self.target.headers(tls=self.tls)

        def go() -> None:
            nonlocal count, begin
            count += 1
            begin = time.perf_counter()
            name = f"{self.prefix}-{number}-{count}"
            connection.send("POST", "/api/v1/namespaces/default/configmaps", config_map(name), headers)

        def answered(status: int, body: bytes) -> None:
            self.latencies.append(time.perf_counter() - begin)
            if status != 201:
                self.failures.append(body[:300])
            if self._stopping:
                self._idle[number].set_result(None)
            else:
                go()

        connection.answered = answered
        go()

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._idle)
        for connection in self._open:
            assert connection.transport is not None
            connection.transport.close()
        if self.failures:
            raise RuntimeError(f"{len(self.failures)} writes failed: {self.failures[0]!r}")


async def measure_writes(target: Target, connections: int, seconds: float, *, tls: bool) -> dict[str, float]:
    writers = Writers(target, connections, f"w{connections}{'t' if tls else 'u'}", tls=tls)
    begin = time.perf_counter()
    await writers.start()
    await asyncio.sleep(seconds)
    await writers.stop()
    took = time.perf_counter() - begin
    return {
        "per_s": round(len(writers.latencies) / took),
        "p50_ms": round(percentile(writers.latencies, 0.5) * 1e3, 2),
        "p99_ms": round(percentile(writers.latencies, 0.99) * 1e3, 2),
    }


async def measure_watch(target: Target, watchers: int, writers: int, seconds: float) -> dict[str, float]:
    streams = []
    for _ in range(watchers):
        stream = await target.connect(Stream)
        rv = await newest(target)
        stream.transport.write(
            f"GET /api/v1/configmaps?watch=1&resourceVersion={rv} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        )
        streams.append(stream)
    load = Writers(target, writers, "watched")
    begin = time.perf_counter()
    await load.start()
    await asyncio.sleep(seconds)
    await load.stop()
    wanted = len(load.latencies)
    deadline = time.perf_counter() + 20
    while any(stream.lines < wanted for stream in streams) and time.perf_counter() < deadline:
        await asyncio.sleep(0.01)
    took = time.perf_counter() - begin
    seen = [stream.lines for stream in streams]
    if min(seen) != wanted or max(seen) != wanted:
        raise RuntimeError(f"watchers saw {seen}, written were {wanted}")
    for stream in streams:
        stream.transport.close()
    return {"events_per_s": round(sum(seen) / took), "writes_per_s": round(wanted / took)}


async def newest(target: Target) -> int:
    connection = await target.connect(Connection)
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    connection.answered = lambda status, body: answer.set_result(body)
    connection.send("GET", "/api/v1/configmaps?limit=1")
    body = await answer
    connection.transport.close()
    return int(json.loads(body)["metadata"]["resourceVersion"])


async def measure_gets(target: Target, path: str, work: Callable[[], Any]) -> tuple[list[float], Any]:
    """Latencies of single GETs, one each 2 ms, while ``work`` runs."""
    connection = await target.connect(Connection)
    latencies: list[float] = []
    arrived = asyncio.Event()
    connection.answered = lambda status, body: arrived.set()
    task = asyncio.ensure_future(work())
    while not task.done():
        arrived.clear()
        begin = time.perf_counter()
        connection.send("GET", path)
        await arrived.wait()
        latencies.append(time.perf_counter() - begin)
        await asyncio.sleep(0.002)
    connection.transport.close()
    return latencies, await task


async def measure_list(target: Target, *, tls: bool) -> dict[str, float]:
    stream = await target.connect(Stream, tls=tls)
    begin = time.perf_counter()
    head = f"GET /api/v1/pods HTTP/1.1\r\nhost: x\r\n{target.headers(tls=tls)}\r\n"
    stream.transport.write(head.encode())
    ended = await asyncio.wait_for(stream.ended, 120)
    first = stream.first.result()
    stream.transport.close()
    return {
        "s": round(ended - begin, 2),
        "first_byte_ms": round((first - begin) * 1e3, 1),
        "mb": round(stream.bytes / 1e6),
    }


async def fill(state: StateFolder, pods: int) -> None:
    """Put pods into the database before the server starts (the measure is the list, not the load)."""
    store = Store.open(state.database, clock=SystemClock())
    for start in range(0, pods, 1000):
        await asyncio.gather(
            *(
                store.create("pods", "default", f"train-{n // 20}-{n}", pod(f"train-{n // 20}-{n}"))
                for n in range(start, min(pods, start + 1000))
            )
        )
    await store.close()


async def measure(target: Target, seconds: float, pods: int) -> dict[str, Any]:
    result: dict[str, Any] = {"writes": {}}
    for tls in (False, True):
        for connections in (1, 8, 32):
            key = f"{'tls' if tls else 'unix'}_{connections}"
            result["writes"][key] = await measure_writes(target, connections, seconds, tls=tls)
    result["watch_10"] = await measure_watch(target, 10, 32, seconds)

    async def load() -> None:
        await measure_writes(target, 16, seconds, tls=True)

    gets, _ = await measure_gets(target, "/api/v1/namespaces/default", load)
    result["get_under_writes"] = {
        "p50_ms": round(percentile(gets, 0.5) * 1e3, 2),
        "p99_ms": round(percentile(gets, 0.99) * 1e3, 2),
    }
    if pods:
        gets, listed = await measure_gets(
            target, "/api/v1/namespaces/default", lambda: measure_list(target, tls=False)
        )
        result["list"] = {"pods": pods, **listed, "longest_get_ms": round(max(gets) * 1e3, 1)}
    result["server_rss_mib"] = rss_mib(target.state)
    return result


def rss_mib(state: StateFolder) -> int:
    pid = int((state.path / "bench.pid").read_text())
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def serve_here(folder: str) -> None:
    """The child process."""
    state = StateFolder(folder)

    def ready(server: Running) -> None:
        (state.path / "bench.pid").write_text(str(os.getpid()))
        (state.path / "bench.url").write_text(server.url)

    async def run() -> None:
        task = asyncio.ensure_future(
            serve(ServeConfig(state), clock=SystemClock(), rng=rng.system(), ready=ready)
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait((task,))

    uvloop.run(run())


def start_server(state: StateFolder) -> tuple[subprocess.Popen[bytes], Target, float]:
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.store_wire", "--serve", str(state.path)],
        cwd=Path(__file__).resolve().parent.parent,
    )
    mark = state.path / "bench.url"
    while not mark.exists() or not mark.read_text():
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        time.sleep(0.02)
    return process, Target(state, mark.read_text()), time.perf_counter() - begin


def run(seconds: float, pods: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        state = StateFolder(folder)
        state.prepare()
        if pods:
            uvloop.run(fill(state, pods))
        process, target, start_seconds = start_server(state)
        try:
            result = uvloop.run(measure(target, seconds, pods))
        finally:
            process.terminate()
            process.wait(30)
        result["start_s"] = round(start_seconds, 2)
        return result


def judged(result: dict[str, Any]) -> dict[str, Any]:
    found = {
        "writes_per_s_unix_32": result["writes"]["unix_32"]["per_s"],
        "watch_events_per_s_10": result["watch_10"]["events_per_s"],
        "get_p99_ms_under_writes": result["get_under_writes"]["p99_ms"],
    }
    if "list" in result:
        found["longest_get_ms_during_list"] = result["list"]["longest_get_ms"]
    goals = {}
    for name, value in found.items():
        goal = GOALS[name]
        ratio = value / goal if name.endswith(("_32", "_10")) else goal / max(value, 1e-9)
        goals[name] = {"goal": goal, "measured": value, "ratio": round(ratio, 2)}
    return {"benchmark": "store_wire", "figures": result, "goals": goals}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--pods", type=int, default=100_000, help="pods to list; 0 leaves that out")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if options.serve:
        serve_here(options.serve)
        return 0
    result = judged(run(options.seconds, options.pods))
    if options.output == "json":
        print(json.dumps(result, indent=1))
        return 0
    print(json.dumps(result["figures"], indent=1))
    for name, goal in result["goals"].items():
        print(f"{name}: {goal['measured']} (goal {goal['goal']}, ratio {goal['ratio']})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

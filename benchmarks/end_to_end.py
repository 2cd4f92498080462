"""End to end: gangs of one-GPU pods on simulated nodes, from the first create to the last bind.

``python -m benchmarks.end_to_end --pods 2000 --gang 20 --nodes 1000 -o json``

The server and the control process (scheduler and controllers) are the processes of ``windlass up``,
over the same Unix socket. This process creates the objects and watches the pods; a third one asks for
an object every few milliseconds and times the answers. A pod counts as bound when the watch shows it.
Afterwards everything is checked: all bound, no node over-committed, no device twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.report import percentile
from windlass.api.errors import StatusError
from windlass.api.resources import NODES, POD_GROUPS, PODS, QUEUES
from windlass.client import verbs
from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable
from windlass.client.http import HttpTransport
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder

GOAL_PODS_PER_SECOND = 1500
GOAL_GET_P99_MS = 20
CREATORS = 16
PROBE_SECONDS = 0.01
PATIENCE_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Shape:
    nodes: int
    gpus: int
    pods: int
    gang: int

    @property
    def gangs(self) -> int:
        return self.pods // self.gang


@dataclass
class Figures:
    """Moments of ``time.monotonic`` by pod name."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)


def client(state: StateFolder, name: str) -> Client:
    connection = Connection(unix_socket=str(state.socket))
    return Client(HttpTransport(connection), user_agent=name, clock=SystemClock(), rng=random.Random(1))


def node(i: int, gpus: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    name = f"sim-{i:05d}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"windlass.dev/simulated": "true", "kubernetes.io/hostname": name},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}],
        },
    }


def group(name: str, members: int) -> dict[str, Any]:
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members, "queue": "default", "minResources": {"nvidia.com/gpu": str(members)}},
    }


def pod(name: str, gang: str) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": "bench", "gang": gang},
            "annotations": {"scheduling.k8s.io/group-name": gang},
        },
        "spec": {
            "schedulerName": "windlass",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "worker",
                    "image": "train:1",
                    "command": ["python", "train.py"],
                    "env": [{"name": "RANK", "value": name.rsplit("-", 1)[1]}],
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }


class _Meta(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    nodeName: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


async def in_parallel(work: list[Any], workers: int) -> None:
    """Run the coroutine functions in order, ``workers`` at a time."""
    queue = iter(work)

    async def worker() -> None:
        for one in queue:
            await one()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(worker())


async def until_ready(api: Client, ask: Any, what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if await ask():
                return
        except (StatusError, Unreachable):
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come up in {seconds:g} s")
        await asyncio.sleep(0.05)


async def watch_pods(api: Client, figures: Figures, wanted: int, started: asyncio.Event) -> None:
    """Follow all pods until ``wanted`` are bound."""
    decode = msgspec.json.Decoder(_Pod).decode
    start = await api.list(PODS, limit=1)
    async with api.watch(PODS, resource_version=start.resource_version) as watch:
        started.set()
        async for batch in watch:
            now = time.monotonic()
            for event in batch:
                if event.type not in ("ADDED", "MODIFIED"):
                    continue
                found = decode(event.object)
                name, where = found.metadata.name, found.spec.nodeName
                if where and name not in figures.bound:
                    figures.bound[name] = now
                    figures.nodes[name] = where
                    figures.devices[name] = (found.metadata.annotations or {}).get("windlass.dev/devices", "")
            if len(figures.bound) >= wanted:
                return


async def create_gang(api: Client, number: int, shape: Shape, figures: Figures) -> None:
    name = f"gang-{number:05d}"
    await api.create(POD_GROUPS, group(name, shape.gang))
    for rank in range(shape.gang):
        pod_name = f"{name}-{rank}"
        figures.created[pod_name] = time.monotonic()
        await api.create(PODS, pod(pod_name, name))


def check(shape: Shape, figures: Figures) -> None:
    """Raise on anything that must never be."""
    taken: dict[str, set[str]] = {}
    for name, where in figures.nodes.items():
        held = taken.setdefault(where, set())
        device = figures.devices[name]
        if not device.isdigit() or int(device) >= shape.gpus or device in held:
            raise SystemExit(f"{name} got device {device!r} of {where}, where {sorted(held)} are taken")
        held.add(device)
    if len(figures.nodes) != shape.gangs * shape.gang:
        raise SystemExit(f"only {len(figures.nodes)} pods were bound")


def usage(pid: int) -> dict[str, float]:
    """CPU seconds so far, and the most memory ever resident (MiB)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {"cpu_seconds": (int(fields[11]) + int(fields[12])) / _TICKS, "rss_mib": round(peak / 1024, 1)}


class Processes:
    """The server and the control process, as the supervisor starts them."""

    def __init__(self, state: StateFolder, verbose: bool) -> None:
        self.state = state
        self._output = None if verbose else subprocess.DEVNULL
        self._started: list[subprocess.Popen[bytes]] = []

    def server(self) -> int:
        tcp = socket.socket()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen(128)
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(self.state.socket))
        unix.listen(128)
        fds = (tcp.fileno(), unix.fileno())
        pid = self._start("server", "--tcp-fd", str(fds[0]), "--unix-fd", str(fds[1]), fds=fds)
        tcp.close()
        unix.close()
        return pid

    def control(self) -> int:
        return self._start("control")

    def _start(self, role: str, *arguments: str, fds: tuple[int, ...] = ()) -> int:
        command = [sys.executable, "-m", "windlass.app", role, "--state", str(self.state.path)]
        command += ["--parent", str(os.getpid()), *arguments]
        started = subprocess.Popen(command, pass_fds=fds, stdout=self._output, stderr=self._output)
        self._started.append(started)
        return started.pid

    def probe(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "benchmarks.end_to_end", "--probe", str(self.state.path), name]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._started.append(started)
        return started

    def dead(self) -> str:
        """Return the process that has ended, and how; empty if all live."""
        ended = [(s.args[3], s.returncode) for s in self._started if s.poll() is not None]  # type: ignore[index]
        return "; ".join(f"{role} ended with {code}" for role, code in ended)

    def stop(self) -> None:
        for started in reversed(self._started):
            started.terminate()
        for started in self._started:
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


async def probe(state: StateFolder, name: str) -> None:
    """GET one node every few milliseconds until standard input ends; print the latencies in seconds."""
    api = client(state, "bench-probe")
    loop = asyncio.get_running_loop()
    over = loop.run_in_executor(None, sys.stdin.buffer.read)
    latencies = []
    while not over.done():
        begun = time.perf_counter()
        await api.call(verbs.get(NODES, name, None))
        latencies.append(time.perf_counter() - begun)
        await asyncio.sleep(PROBE_SECONDS)
    await api.close()
    print(json.dumps(latencies))


async def measure(state: StateFolder, shape: Shape, processes: Processes) -> dict[str, Any]:
    server = processes.server()
    api = client(state, "bench")
    await until_ready(api, lambda: api.list(NODES, limit=1), "the server")
    nodes = [lambda i=i: api.create(NODES, node(i, shape.gpus)) for i in range(shape.nodes)]
    await in_parallel(nodes, CREATORS)
    control = processes.control()
    await until_ready(api, lambda: api.find(QUEUES, "default"), "the control process")
    await warm_up(api)

    figures, started = Figures(), asyncio.Event()
    watcher = asyncio.create_task(watch_pods(api, figures, shape.gangs * shape.gang, started))
    await started.wait()
    prober = processes.probe("sim-00000")
    await asyncio.sleep(1.0)
    pids = {"server": server, "control": control, "load generator": os.getpid()}
    before = {role: usage(pid) for role, pid in pids.items()}
    begun = time.monotonic()
    gangs = [lambda i=i: create_gang(api, i, shape, figures) for i in range(shape.gangs)]
    await in_parallel(gangs, CREATORS)
    created_at = time.monotonic()
    while not watcher.done():
        await asyncio.wait({watcher}, timeout=1.0)
        if time.monotonic() - created_at > PATIENCE_SECONDS or processes.dead():
            raise SystemExit(
                f"only {len(figures.bound)} of {len(figures.created)} pods were bound; {processes.dead()}"
            )
    watcher.result()
    after = {role: usage(pid) for role, pid in pids.items()}
    output, _ = await asyncio.get_running_loop().run_in_executor(None, prober.communicate, b"")
    check(shape, figures)
    await api.close()

    ended = max(figures.bound.values())
    waits = [figures.bound[name] - figures.created[name] for name in figures.bound]
    gets = [seconds * 1000 for seconds in json.loads(output)]
    return {
        "pods": len(figures.bound),
        "pods_per_second": round(len(figures.bound) / (ended - begun)),
        "creates_per_second": round(len(figures.bound) / (created_at - begun)),
        "seconds": round(ended - begun, 3),
        "create_to_bound_p50_ms": round(1000 * percentile(waits, 0.5), 1),
        "create_to_bound_p99_ms": round(1000 * percentile(waits, 0.99), 1),
        "get_p50_ms": round(percentile(gets, 0.5), 2),
        "get_p99_ms": round(percentile(gets, 0.99), 2),
        "processes": {
            role: {
                "cpu_seconds": round(after[role]["cpu_seconds"] - before[role]["cpu_seconds"], 2),
                "rss_mib": after[role]["rss_mib"],
            }
            for role in pids
        },
        "goals": {"pods_per_second": GOAL_PODS_PER_SECOND, "get_p99_ms": GOAL_GET_P99_MS},
    }


async def warm_up(api: Client) -> None:
    """One gang through, so that the control process is synced; then it is taken away again."""
    await api.create(POD_GROUPS, group("warm", 1))
    await api.create(PODS, pod("warm-0", "warm"))

    async def bound() -> bool:
        return bool((await api.get(PODS, "warm-0", "default"))["spec"].get("nodeName"))

    await until_ready(api, bound, "the scheduler")
    await api.delete(PODS, "warm-0", "default", grace_seconds=0)
    await api.delete(POD_GROUPS, "warm", "default")
    await asyncio.sleep(2.0)


def show(result: dict[str, Any]) -> None:
    print(
        f"{result['pods']} pods in {result['seconds']} s: {result['pods_per_second']} pods/s "
        f"(goal {GOAL_PODS_PER_SECOND}), created at {result['creates_per_second']}/s\n"
        f"create to bound: p50 {result['create_to_bound_p50_ms']} ms, "
        f"p99 {result['create_to_bound_p99_ms']} ms\n"
        f"GET meanwhile: p50 {result['get_p50_ms']} ms, p99 {result['get_p99_ms']} ms (goal {GOAL_GET_P99_MS})"
    )
    for role, figures in result["processes"].items():
        print(f"{role:>15}: {figures['cpu_seconds']:6.2f} s CPU, {figures['rss_mib']:7.1f} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--gang", type=int, default=20)
    parser.add_argument("--verbose", action="store_true", help="show the processes' own output")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--probe", nargs=2, metavar=("STATE", "NODE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    import uvloop

    if given.probe:
        uvloop.run(probe(StateFolder(Path(given.probe[0])), given.probe[1]))
        return 0
    shape = Shape(given.nodes, given.gpus, given.pods, given.gang)
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        state = StateFolder(Path(folder) / "state")
        state.prepare()
        processes = Processes(state, given.verbose)
        try:
            result = uvloop.run(measure(state, shape, processes))
        finally:
            processes.stop()
    if given.output == "json":
        print(json.dumps(result))
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

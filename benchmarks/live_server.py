"""The server of the live benchmarks: etcd, kube-apiserver, hollow nodes, and what their processes spend."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("tests/support/*/")))

from realkube import REQUIRED, RealKube
from scheduler_processes import Part, usage

from benchmarks.end_to_end import until_ready
from benchmarks.live_load import Batch, Books, create_nodes
from windlass.client import kubeconfig
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.client.retries import RetryPolicy
from windlass.kits import rng
from windlass.kits.clock import SystemClock

GPUS = 8
PATIENCE_SECONDS = 300.0


def client(path: Path, name: str) -> Client:
    """One that repeats nothing."""
    transport = HttpTransport(kubeconfig.load(str(path)))
    once = RetryPolicy(attempts=1)
    return Client(transport, user_agent=name, clock=SystemClock(), rng=rng.system(), retries=once)


@contextlib.asynccontextmanager
async def server(
    nodes: int, *, crds: bool, pods_per_node: int = GPUS
) -> AsyncIterator[tuple[RealKube, Client, Books]]:
    """A fresh server with hollow nodes, a client, and a watch that is open. ``pods_per_node``: what the books allow."""
    with tempfile.TemporaryDirectory(prefix="windlass-live-") as folder:
        kube = RealKube(Path(folder), controllers=False, audit=False)
        kube.start()
        try:
            if crds:
                kube.install_crds()
            api = client(kube.kubeconfig, "bench")
            await create_nodes(api, nodes, GPUS)
            books = Books(api, pods_per_node)
            watching = asyncio.create_task(books.follow())
            try:
                yield kube, api, books
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                await api.close()
        finally:
            kube.stop()


async def warmed(api: Client, part: Part, scheduler: str, books: Books) -> None:
    """The scheduler is up and has bound a pod."""

    async def ready() -> bool:
        return await asyncio.to_thread(lambda: part.ready)

    await until_ready(api, ready, scheduler, PATIENCE_SECONDS)
    warm = Batch("warm", 1, 1, scheduler)
    await warm.create(api)
    await books.until(warm, PATIENCE_SECONDS)


def server_cpu(kube: RealKube) -> float:
    """CPU seconds of etcd and the API server so far."""
    return sum(usage(kube.pid(name))[0] for name in REQUIRED[:2])


def spent(kube: RealKube, **others: int) -> dict[str, float]:
    """CPU seconds of each process so far: the server's two, this one (which creates and counts), and ``others``."""
    pids = {name: kube.pid(name) for name in REQUIRED[:2]} | {"client": os.getpid()} | others
    return {name: usage(pid)[0] for name, pid in pids.items()}


def since(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds - before[name], 2) for name, seconds in now.items()}

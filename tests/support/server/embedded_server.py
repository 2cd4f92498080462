"""Run the embedded server with its controllers, without scheduler and node agent. For ``embeddedkube``.

``python embedded_server.py STATE [--bare]``; SIGUSR1 forgets all history and then writes ``STATE/forgotten``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from windlass.client.client import Client
from windlass.client.connection import over_socket
from windlass.client.http import HttpTransport
from windlass.controllers.manager import ControllerManager
from windlass.kits import rng as chance
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder
from windlass.server.main import Running, ServeConfig, serve
from windlass.store.families import StoreOptions


async def main(state: StateFolder, *, controllers: bool) -> None:
    clock, rng = SystemClock(), chance.system()
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    async def forget(server: Running) -> None:
        for family in ("main", "events", "leases"):
            await server.store.compact(family, server.store.rv)
        (state.path / "forgotten").touch()

    async def ready(server: Running) -> None:
        loop.add_signal_handler(signal.SIGUSR1, lambda: tasks.add(asyncio.create_task(forget(server))))
        if controllers:
            tasks.add(asyncio.create_task(control()))
        (state.path / "ready").write_text(server.url)

    async def control() -> None:
        client = Client(HttpTransport(over_socket(state.socket)), clock=clock, rng=rng)
        try:
            await ControllerManager(client, clock=clock, rng=rng, embedded=True).run()
        finally:
            await client.close()

    config = ServeConfig(state, store=StoreOptions(synchronous="OFF"))
    serving = asyncio.create_task(serve(config, clock=clock, rng=rng, ready=ready))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (*tasks, serving, stopping):
        task.cancel()
    for task in await asyncio.gather(*tasks, serving, stopping, return_exceptions=True):
        if isinstance(task, Exception):
            raise task


if __name__ == "__main__":
    folder = StateFolder(Path(sys.argv[1]))
    folder.prepare(allow_network=True)
    uvloop.run(main(folder, controllers="--bare" not in sys.argv))

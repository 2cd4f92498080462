"""Schedulers that die again and again in a storm of faults, in process with the embedded server.

Afterwards, by the server's own watch: no pod was ever on two nodes, no card is given twice, and every gang is whole.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fault_transport import FaultTransport, Storm
from kubeobjects import group, node, pod, queue

from windlass.api.resources import NODES, POD_GROUPS, PODS, QUEUES
from windlass.client.client import Client
from windlass.client.transport import Transport
from windlass.kits.clock import SystemClock
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.service import SchedulerService
from windlass.server.apiserver import ApiServer
from windlass.server.bootstrap import bootstrap
from windlass.server.in_process import InProcessTransport
from windlass.store.store import Store

CLOCK = SystemClock()
GANGS = {"a": 5, "b": 3, "c": 8, "d": 2}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    store = Store.open(":memory:", clock=CLOCK)
    made = ApiServer(store, clock=CLOCK, rng=random.Random(7))
    await bootstrap(made)
    yield made
    made.stop()
    await store.close()


def connect(transport: Transport, agent: str = "test") -> Client:
    return Client(transport, user_agent=agent, clock=CLOCK, rng=random.Random(1))


class Watcher:
    """What the server's watch has shown of pods: where each incarnation was bound."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self.places: dict[str, set[str]] = {}
        self.ready = asyncio.Event()

    async def follow(self) -> None:
        async with self._api.watch(PODS) as watch:
            self.ready.set()
            async for _, obj in watch.objects():
                where = (obj.get("spec") or {}).get("nodeName")
                if where:
                    self.places.setdefault(obj["metadata"]["uid"], set()).add(where)


class Processes:
    """One scheduler after the other."""

    def __init__(self, server: ApiServer, rng: random.Random) -> None:
        self._server = server
        self._rng = rng

    async def life(self, binds: int, chance: float) -> None:
        """One that dies after so many binds, or is killed when it has done what it can."""
        storm = Storm(self._rng, binds, chance)
        task = asyncio.create_task(self.run(FaultTransport(InProcessTransport(self._server), storm)))
        begun = CLOCK.monotonic()
        while not storm.death.dead and CLOCK.monotonic() - begun < 1.5:
            await asyncio.sleep(0.005)
        task.cancel()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(result, asyncio.CancelledError), result

    async def run(self, transport: Transport) -> None:
        service = SchedulerService(
            connect(transport, "windlass-scheduler"),
            clock=CLOCK,
            rng=self._rng,
            options=SchedulerOptions(
                bind_concurrency=self._rng.choice([1, 2, 8]), gang_seconds=3.0, assume_seconds=1.0
            ),
        )
        await service.run()


async def whole(api: Client) -> bool:
    found = (await api.list(PODS, "default")).items
    return all(o["spec"].get("nodeName") for o in found) and len(found) == sum(GANGS.values())


@pytest.mark.parametrize("seed", range(6))
async def test_gangs_are_whole_in_the_end_whatever_dies(server: ApiServer, seed: int) -> None:
    rng = random.Random(seed)
    api = connect(InProcessTransport(server))
    for resource, objects in (
        (QUEUES, [queue("default")]),
        (NODES, [node(f"n{i}", gpus=4) for i in range(5)]),
    ):
        for obj in objects:
            await make(api, resource, obj)
    watcher = Watcher(api)
    watching = asyncio.create_task(watcher.follow())
    await watcher.ready.wait()
    names = list(GANGS)
    rng.shuffle(names)
    for name in names:
        await make(api, POD_GROUPS, group(name, GANGS[name]))
        for i in range(GANGS[name]):
            await make(api, PODS, pod(f"{name}-{i}", group=name))
    processes = Processes(server, rng)
    for _ in range(4):
        await processes.life(rng.randrange(8), 0.15)
    last = asyncio.create_task(processes.run(InProcessTransport(server)))
    deadline = CLOCK.monotonic() + 90.0
    while not await whole(api):
        assert CLOCK.monotonic() < deadline, "not whole in time"
        await replace(api)
        await asyncio.sleep(0.05)
    last.cancel()
    watching.cancel()
    await asyncio.gather(last, watching, return_exceptions=True)
    assert all(len(places) == 1 for places in watcher.places.values()), watcher.places
    cards = set()
    for obj in (await api.list(PODS, "default")).items:
        card = (obj["spec"]["nodeName"], obj["metadata"]["annotations"]["windlass.dev/devices"])
        assert card not in cards
        cards.add(card)


async def make(api: Client, resource: Any, obj: dict[str, Any]) -> None:
    for container in obj.get("spec", {}).get("containers", ()):
        container["resources"]["limits"] = container["resources"]["requests"]
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        obj["metadata"].pop(field, None)
    obj.setdefault("apiVersion", resource.api_version)
    obj.setdefault("kind", resource.kind)
    await api.create(resource, obj)


async def replace(api: Client) -> None:
    """What a job's controller does: members that were taken back are made anew."""
    present = {o["metadata"]["name"]: o for o in (await api.list(PODS, "default")).items}
    for name, obj in present.items():
        if obj["metadata"].get("deletionTimestamp"):
            await api.delete(PODS, name, "default", grace_seconds=0)
    for gang, size in GANGS.items():
        for i in range(size):
            if f"{gang}-{i}" not in present:
                await make(api, PODS, pod(f"{gang}-{i}", group=gang))

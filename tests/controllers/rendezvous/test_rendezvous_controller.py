"""Controller that tells worlds in a cluster: a round that closes, a lost worker, and pods that cannot be told."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from fakeapi import FakeApi
from torch_store_server import Store

from windlass.api import annotations as names
from windlass.api.resources import PODS
from windlass.client import torch_store
from windlass.controllers.effects import Effects
from windlass.controllers.rendezvous.controller import (
    POLL_SECONDS,
    RETRY_SECONDS,
    SETTLED_SECONDS,
    RendezvousController,
)
from windlass.jobs.rendezvous.state import RendezvousNode, RendezvousState, decode_state, encode_state

KEY = torch_store.state_key("run").encode()
NODES = [RendezvousNode(f"j-worker-{index}", 7, 0) for index in range(3)]


class Cluster:
    """A pod that holds a rendezvous, and its store."""

    def __init__(self, port: int, world: str) -> None:
        self.api = FakeApi()
        self.controller = RendezvousController(self.api)  # type: ignore[arg-type]
        notes = {names.RENDEZVOUS: f"{port}/run", names.WORLD: world}
        self.api.put(
            PODS,
            {
                "metadata": {"name": "j-worker-0", "annotations": notes},
                "spec": {"containers": [{"name": "m"}]},
                "status": {"phase": "Running", "podIP": "127.0.0.1"},
            },
        )

    def world(self, text: str) -> None:
        pod = self.api.object(PODS, "default/j-worker-0")
        assert pod is not None
        notes = {**pod["metadata"]["annotations"], names.WORLD: text}
        self.api.change(PODS, "default/j-worker-0", metadata={**pod["metadata"], "annotations": notes})

    async def reconcile(self) -> Effects:
        return await self.controller.reconcile("default/j-worker-0")


async def serve(store: Store) -> Any:
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def state_of(store: Store) -> RendezvousState:
    return decode_state(torch_store.from_value(store.values[KEY]))


async def test_a_round_closes_and_a_lost_worker_begins_the_next() -> None:
    store = Store(validated=True)
    server, port = await serve(store)
    async with server:
        cluster = Cluster(port, "0-2")
        assert (await cluster.reconcile()).requeue_after == POLL_SECONDS  # no state yet
        beats = dict.fromkeys(NODES, datetime(2026, 1, 1))
        joined = RendezvousState(participants=dict.fromkeys(NODES, 0), heartbeats=beats)
        store.values[KEY] = torch_store.to_value(encode_state(joined))
        assert (await cluster.reconcile()).requeue_after == SETTLED_SECONDS
        assert state_of(store).complete
        assert state_of(store).participants == {node: rank for rank, node in enumerate(NODES)}
        cluster.world("0-1")
        assert (await cluster.reconcile()).requeue_after == POLL_SECONDS
        assert set(state_of(store).participants) == set(NODES[:2])
        assert [node.fqdn for node in state_of(store).waiting] == ["windlass-announcement"]


async def test_a_state_that_cannot_be_read_is_an_event_and_a_closed_port_is_tried_again() -> None:
    store = Store(validated=False)
    server, port = await serve(store)
    cluster = Cluster(port, "0-1")
    async with server:
        store.values[KEY] = torch_store.to_value(b"nonsense")
        effects = await cluster.reconcile()
        assert [event.reason for event in effects.events] == ["RendezvousUnreadable"]
    assert (await cluster.reconcile()).requeue_after == RETRY_SECONDS
    cluster.world("nothing")
    assert await cluster.reconcile() == Effects()

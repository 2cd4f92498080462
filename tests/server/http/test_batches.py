"""Batches of writes on the Unix socket: each is handled like a request of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, PODS
from windlass.client.batching import BATCH_PATH, BatchedRequest, BatchingTransport
from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.http import HttpTransport
from windlass.client.transport import Request, Response
from windlass.kits import rng
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder
from windlass.server.main import Running, ServeConfig, running
from windlass.store.families import StoreOptions


class Counting:
    """Transport that counts the exchanges of another one."""

    def __init__(self, transport: HttpTransport) -> None:
        self.transport = transport
        self.exchanges = 0

    async def request(self, request: Request) -> Response:
        self.exchanges += 1
        return await self.transport.request(request)

    async def close(self) -> None:
        await self.transport.close()


@pytest.fixture
async def served(tmp_path: Path, no_leaks: None) -> AsyncIterator[tuple[Running, StateFolder]]:
    state = StateFolder(tmp_path / "s")
    state.prepare(allow_network=True)
    config = ServeConfig(state, store=StoreOptions(synchronous="OFF", allow_network=True))
    async with running(config, clock=SystemClock(), rng=rng.system()) as started:
        yield started, state


def over(state: StateFolder) -> Counting:
    return Counting(HttpTransport(Connection(unix_socket=str(state.socket))))


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def test_writes_of_a_batch_succeed_and_fail_one_by_one(served: tuple[Running, StateFolder]) -> None:
    _, state = served
    counting = over(state)
    client = Client(BatchingTransport(counting), clock=SystemClock(), rng=random.Random(1))
    names = [f"m{number}" for number in range(40)]
    creates = [client.create(CONFIG_MAPS, config_map(name)) for name in (*names, "m0", "Not_A_Name")]
    found = await asyncio.gather(*creates, return_exceptions=True)
    assert [one["metadata"]["name"] for one in found[:40] if isinstance(one, dict)] == names
    refused, invalid = found[40], found[41]
    assert isinstance(refused, StatusError)
    assert refused.reason == "AlreadyExists"
    assert isinstance(invalid, StatusError)
    assert invalid.code == 422
    assert counting.exchanges == 3
    changes = [
        client.patch(CONFIG_MAPS, name, {"data": {"a": name}}, "default") for name in (*names, "absent")
    ]
    found = await asyncio.gather(*changes, return_exceptions=True)
    assert [one["data"] for one in found[:40] if isinstance(one, dict)] == [{"a": name} for name in names]
    assert isinstance(found[40], StatusError)
    assert found[40].code == 404
    await asyncio.gather(*(client.delete(CONFIG_MAPS, name, "default") for name in names))
    assert (await client.list(CONFIG_MAPS, "default")).items == []
    await client.close()


async def test_a_pod_of_a_batch_passes_admission(served: tuple[Running, StateFolder]) -> None:
    _, state = served
    client = Client(BatchingTransport(over(state)), clock=SystemClock(), rng=random.Random(1))
    spec = {"containers": [{"name": "c", "image": "i"}], "priorityClassName": "none-such"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": wanted,
        }
        for name, wanted in (("good", {"containers": spec["containers"]}), ("bad", spec))
    ]
    good, bad = await asyncio.gather(*(client.create(PODS, pod) for pod in pods), return_exceptions=True)
    assert isinstance(good, dict)
    assert good["spec"]["restartPolicy"] == "Always", "defaults are applied"
    assert isinstance(bad, StatusError)
    assert bad.code == 403
    assert "none-such" in bad.message
    await client.close()


async def test_a_batch_contains_writes_only_and_comes_from_the_owner(
    served: tuple[Running, StateFolder],
) -> None:
    started, state = served
    transport = HttpTransport(Connection(unix_socket=str(state.socket)))
    read = msgspec.msgpack.encode([BatchedRequest("GET", "/api/v1/pods", "watch=true", {}, b"")])
    for body, text in ((read, b"may contain writes only"), (b"\xff", b"is not a batch")):
        response = await transport.request(Request("POST", BATCH_PATH, body=body))
        assert response.status == 400
        assert text in response.body
    assert (await transport.request(Request("GET", BATCH_PATH))).status == 404
    await transport.close()
    url = f"https://127.0.0.1:{started.port}"
    remote = HttpTransport(
        Connection(
            url,
            ca_data=state.ca_cert.read_bytes(),
            client_cert=state.admin_cert.read_bytes(),
            client_key=state.admin_key.read_bytes(),
        )
    )
    assert (await remote.request(Request("POST", BATCH_PATH, body=b"\x90"))).status == 404
    await remote.close()

"""Admission on the real store: what was submitted counts, before it is durable."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from memory_admission import pod

from windlass.client.transport import Request
from windlass.kits.clock import SystemClock
from windlass.server.apiserver import ApiServer
from windlass.server.request.users import ADMIN
from windlass.store.store import Store

PODS = "/api/v1/namespaces/default/pods"
GPU = "nvidia.com/gpu"


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    store = Store.open(":memory:", clock=SystemClock())
    server = ApiServer(store, clock=SystemClock(), rng=random.Random(1))
    assert await send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "default"}}) == 201
    yield server
    await store.close()


async def send(api: ApiServer, method: str, path: str, body: Any = None) -> int:
    raw = b"" if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    return (await api.handle(Request(method, path, headers=headers, body=raw), ADMIN)).status


async def make_quota(api: ApiServer, hard: dict[str, str]) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    assert await send(api, "POST", "/api/v1/namespaces/default/resourcequotas", body) == 201


async def test_many_at_once_do_not_share_the_last_device(api: ApiServer) -> None:
    await make_quota(api, {f"requests.{GPU}": "7"})
    answers = await asyncio.gather(*(send(api, "POST", PODS, pod(f"p{i}", {GPU: "1"})) for i in range(40)))
    assert sorted(answers) == [201] * 7 + [403] * 33


async def test_deleted_objects_release_quota(api: ApiServer) -> None:
    await make_quota(api, {"pods": "2"})
    for round_number in range(5):
        names = [f"r{round_number}-{i}" for i in range(2)]
        assert [await send(api, "POST", PODS, pod(name)) for name in names] == [201, 201]
        assert await send(api, "POST", PODS, pod("more")) == 403
        for name in names:
            assert await send(api, "DELETE", f"{PODS}/{name}") == 200


async def test_services_at_once_get_different_addresses(api: ApiServer) -> None:
    path = "/api/v1/namespaces/default/services"
    bodies = [{"metadata": {"name": f"s{i}"}, "spec": {"ports": [{"port": 80}]}} for i in range(30)]
    answers = await asyncio.gather(*(send(api, "POST", path, body) for body in bodies))
    assert set(answers) == {201}
    response = await api.handle(Request("GET", path, headers={"accept": "application/json"}), ADMIN)
    addresses = [item["spec"]["clusterIP"] for item in json.loads(response.body)["items"]]
    assert len(set(addresses)) == 30


async def test_counting_does_not_slow_down_with_the_number_of_pods(api: ApiServer) -> None:
    """The account looks at what changed. CPU time is compared with itself: a busy machine does not matter."""
    await make_quota(api, {"pods": "100000"})

    async def batch(first: int, count: int) -> float:
        begin = time.thread_time()
        for index in range(first, first + count):
            assert await send(api, "POST", PODS, pod(f"p{index}")) == 201
        return (time.thread_time() - begin) / count

    early = min([await batch(0, 100), await batch(100, 100)])
    await batch(200, 2000)
    late = min([await batch(2200 + 100 * i, 100) for i in range(3)])
    assert late < 4 * early

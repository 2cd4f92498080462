"""Pods of another operator on a real API server are grouped by their top owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from clusters import Cluster
from definitions import GROUP, definition
from realkube import RealKube

from windlass.api.errors import StatusError
from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, POD_GROUPS, PODS, Resource
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.controllers.manager import ControllerManager
from windlass.kits import rng as randomness
from windlass.kits.clock import SystemClock

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
Json = dict[str, Any]
SWEEPS = Resource(GROUP, "v1", "sweeps", "Sweep", custom=True)
TRIALS = Resource(GROUP, "v1", "trials", "Trial", custom=True)
FREE: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


async def until(check: Callable[[], Awaitable[Any]], seconds: float = 90.0) -> Any:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (answer := await check()):
        assert loop.time() < deadline, f"still {answer!r} after {seconds} s"
        await asyncio.sleep(0.05)
    return answer


@pytest.fixture
async def cluster(real_kube: RealKube) -> AsyncIterator[tuple[Client, str]]:
    """A client and a namespace, with the controllers of a cluster at work."""
    found = Cluster.of_real(real_kube)
    clock, rng = SystemClock(), randomness.system()
    async with (
        Client(HttpTransport(found.connection), clock=clock, rng=rng) as client,
        Client(HttpTransport(found.connection), clock=clock, rng=rng) as own,
    ):
        made = ControllerManager(own, clock=clock, rng=rng, embedded=False)
        work = asyncio.ensure_future(made.run())
        try:
            yield client, found.new_namespace("owners")
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            found.close()
        assert work.cancelled(), "the manager ended by itself"


def reference(resource: Resource, owner: Json) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


async def declare(client: Client, resource: Resource, path: str = "") -> None:
    schema = {"type": "object", "properties": {"spec": FREE}}
    crd = definition(resource.plural, resource.kind, schema=schema)
    if path:
        crd["metadata"]["annotations"] = {"windlass.dev/min-member-path": path}
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)

    async def served() -> bool:
        try:
            await client.list(resource, "default")
        except StatusError as error:
            if error.code not in (404, 503):
                raise
            return False
        return True

    await until(served)


async def test_top_owner_of_a_foreign_operator_makes_a_gang(cluster: tuple[Client, str]) -> None:
    client, space = cluster
    await declare(client, SWEEPS, ".spec.trials")
    await declare(client, TRIALS)

    async def made(resource: Resource, name: str, owners: list[Json], **spec: Any) -> Json:
        metadata = {"name": name, "ownerReferences": owners}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
        return await client.create(resource, body, space)

    sweep = await made(SWEEPS, "s", [], trials=3)
    uids: dict[str, str] = {}

    async def trial(index: int) -> None:
        owner = await made(TRIALS, f"s-{index}", [reference(SWEEPS, sweep)])
        container = {"name": "main", "image": "python"}
        spec = {"schedulerName": "windlass", "containers": [container]}
        metadata = {"name": f"s-{index}", "ownerReferences": [reference(TRIALS, owner)]}
        pod = await client.create(PODS, {"metadata": metadata, "spec": spec}, space)
        uids[pod["metadata"]["name"]] = pod["metadata"]["uid"]

    for index in range(3):
        await trial(index)
    name = f"podgroup-{sweep['metadata']['uid']}"

    async def grouped(count: int, size: int) -> bool:
        pods = (await client.list(PODS, space)).items
        names = [(p["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name") for p in pods]
        group = await client.find(POD_GROUPS, name, space)
        return names == [name] * count and group is not None and group["spec"]["minMember"] == size

    await until(lambda: grouped(3, 3))
    await client.patch(SWEEPS, "s", {"spec": {"trials": 4}}, space)
    await trial(3)
    await until(lambda: grouped(4, 4))
    pods = (await client.list(PODS, space)).items
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods} == uids

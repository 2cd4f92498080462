"""Beside other schedulers, on a real API server: their cards, claims, resizes; whom of theirs nobody touches.

What another scheduler does is done here by hand: bindings with its annotations, an allocation in a claim's status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from clusters import Cluster
from realkube import RealKube
from scheduling_over_http import Json, Scene, eventually

from windlass.api.errors import StatusError
from windlass.api.resources import (
    DEVICE_CLASSES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from windlass.client.transport import Request, Response, Transport
from windlass.spi.configuration import SchedulerConfig

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
DEVICES = "windlass.dev/devices"


@pytest.fixture
async def scene(real_kube: RealKube) -> AsyncIterator[Scene]:
    cluster = Cluster.of_real(real_kube)
    made = Scene(cluster, cluster.new_namespace("beside"))
    await made.make_queue()
    yield made
    await made.close()


async def put(
    scene: Scene, name: str, where: str, words: dict[str, str] | None = None, **fields: Any
) -> None:
    """A pod of another scheduler, bound by it."""
    await scene.pod(name, scheduler="other", **fields)
    uid = (await scene.pods())[name]["metadata"]["uid"]
    await scene.client.bind(scene.namespace, name, where, uid=uid, annotations=words)


def conditions(pod: Json) -> dict[str, Json]:
    return {c["type"]: c for c in pod["status"].get("conditions") or ()}


class Gate:
    """Bindings wait until it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting: list[str] = []

    def before(self, inner: Transport) -> Transport:
        gate = self

        class Gated:
            async def request(self, request: Request) -> Response:
                if request.path.endswith("/binding"):
                    gate.waiting.append(request.path)
                    await gate.open.wait()
                return await inner.request(request)

            async def close(self) -> None:
                await inner.close()

        return Gated()


async def test_a_bind_is_recalled_for_its_card_and_nobody_is_evicted(scene: Scene) -> None:
    """Of two decided one is on its way when another scheduler takes the card of the other."""
    node = await scene.node("n", 4)
    gate = Gate()
    service = await scene.start(gate.before, bind_concurrency=1, bind_concurrency_max=1)
    await scene.pod("one")
    await scene.pod("other")

    async def decided() -> bool:
        return len(gate.waiting) == 1 and len(service.model.binds.assumed) == 2

    await eventually(decided, "one bind under way and two decided")
    later = "one" if "/other/" in gate.waiting[0] else "other"
    card = str(service.model.binds.assumed[f"{scene.namespace}/{later}"].devices[0])
    await put(scene, "theirs", node, {DEVICES: card})

    async def seen() -> bool:
        return bool(service.model.objects.pods[f"{scene.namespace}/theirs"].node_name)

    await eventually(seen, "theirs seen")
    gate.open.set()

    async def all_bound() -> bool:
        return len(await scene.bound()) == 3

    await eventually(all_bound, "all three on the node")
    await scene.check()
    found = (await scene.pods())[later]
    assert found["metadata"]["annotations"][DEVICES] != card
    assert "DisruptionTarget" not in conditions(found)
    assert service.metrics.conflicts.labels("recalled")._value.get() == 1.0
    assert service.metrics.conflicts.labels("overcommitted")._value.get() == 0.0


async def test_pods_of_others_are_victims_only_where_that_is_said_and_only_by_priority(scene: Scene) -> None:
    node = await scene.node("n", 1)
    label = {"metadata": {"labels": {"app": "web"}}}
    await put(scene, "theirs", node)
    await scene.client.patch(PODS, "theirs", label, scene.namespace)
    await scene.phase("theirs", "Running")
    await scene.pod("equal", priorityClassName="")
    await scene.pod("high", priorityClassName="system-node-critical")

    async def told(name: str = "high") -> str:
        return conditions((await scene.pods())[name]).get("PodScheduled", {}).get("reason", "")

    async def waits() -> bool:
        return await told() == "Unschedulable"

    async def untouched() -> bool:
        found = (await scene.pods())["theirs"]
        return "deletionTimestamp" not in found["metadata"] and "DisruptionTarget" not in conditions(found)

    await scene.start()
    await eventually(waits, "it said that there is no room")
    assert await untouched()
    await scene.kill()

    # Lent to a queue: by priority, and through the eviction API, which asks their budgets.
    budget = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    meta = {"name": "keep", "namespace": scene.namespace}
    await scene.client.create(
        POD_DISRUPTION_BUDGETS,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget},
    )

    async def in_force() -> bool:
        found = await scene.client.get(POD_DISRUPTION_BUDGETS, "keep", scene.namespace)
        return (found.get("status") or {}).get("observedGeneration", 0) > 0

    await eventually(in_force, "the budget in force")
    lent = SchedulerConfig(configurations={"foreign": {"queue": scene.queue}})
    await scene.client.delete(PODS, "high", scene.namespace, grace_seconds=0)
    service = await scene.start(policy=lent)
    await asyncio.sleep(1.0)  # nothing is to happen: the other one has no higher priority
    assert await untouched()
    await scene.pod("high", priorityClassName="system-node-critical")

    async def refused() -> bool:
        waiting = await told() in ("Unschedulable", "SchedulingGated")
        return waiting and any(
            "DisruptionBudgets" in str(service.components.reports.get(group))
            for group in service.components.reports.pending()
        )

    await eventually(refused, "its budget named as what is in the way")
    assert await untouched()
    await scene.client.delete(POD_DISRUPTION_BUDGETS, "keep", scene.namespace)

    async def placed() -> bool:
        return (await scene.bound()).get("high") == node

    await eventually(placed, "its place", 120.0)
    assert "theirs" not in await scene.pods()


async def test_a_pod_that_is_resized_in_place_holds_what_it_asks_for(scene: Scene) -> None:
    node = await scene.node("n", 1)
    await scene.pod("theirs", scheduler="other", gpus=0, containers=[cpus(16)])
    uid = (await scene.pods())["theirs"]["metadata"]["uid"]
    await scene.client.bind(scene.namespace, "theirs", node, uid=uid)
    await scene.phase("theirs", "Running")
    service = await scene.start()
    more = {"spec": {"containers": [cpus(48)]}}
    await scene.client.patch(PODS, "theirs", more, scene.namespace, kind="strategic", subresource="resize")
    key = f"{scene.namespace}/theirs"

    async def seen() -> bool:
        return service.model.objects.pods[key].shape.request["cpu"] == 48000

    await eventually(seen, "the resize seen")
    await scene.pod("large", gpus=0, containers=[cpus(32)])
    await scene.pod("small", gpus=0, containers=[cpus(8)])

    async def told() -> bool:
        reason = conditions((await scene.pods())["large"]).get("PodScheduled", {}).get("reason")
        return reason == "Unschedulable" and (await scene.bound()).get("small") == node

    await eventually(told, "room for the small one alone")


def cpus(count: int) -> Json:
    return {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(count)}}}


async def list_two_gpus(scene: Scene, node: str, driver: str) -> None:
    """As a driver does: its class of devices, and those of the node."""
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    await create(scene, DEVICE_CLASSES, {"metadata": {"name": driver}, "spec": {"selectors": selectors}})
    devices = [{"name": f"gpu-{at}", "attributes": {"rack": {"string": "r"}}} for at in range(2)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    await create(scene, RESOURCE_SLICES, {"metadata": {"name": f"{node}-gpus"}, "spec": spec})


async def allocate_elsewhere(scene: Scene, name: str, node: str, driver: str) -> None:
    """As another scheduler does: ``gpu-0`` for the claim of a pod, which is then bound."""
    uid = (await scene.pods())[name]["metadata"]["uid"]
    results = [{"request": "gpu", "driver": driver, "pool": node, "device": "gpu-0"}]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }
    await scene.client.patch(RESOURCE_CLAIMS, name, {"status": status}, scene.namespace, subresource="status")
    await scene.client.bind(scene.namespace, name, node, uid=uid)


async def test_a_device_that_another_scheduler_allocated_is_nobody_elses(scene: Scene) -> None:
    """Nothing on the pod says so: the claim's status does, and the other one's claim is tied by a constraint."""
    node = await scene.node("n", 0)
    driver = f"gpu.{scene.namespace}.example.com"
    await list_two_gpus(scene, node, driver)
    for name, more in (
        ("theirs", {"constraints": [{"requests": ["gpu"], "matchAttribute": f"{driver}/rack"}]}),
        ("ours", {}),
        ("late", {}),
    ):
        requests = [{"name": "gpu", "exactly": {"deviceClassName": driver}}]
        meta = {"name": name, "namespace": scene.namespace}
        await create(
            scene, RESOURCE_CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": requests, **more}}}
        )
        claims = [{"name": "g", "resourceClaimName": name}]
        scheduler = "other" if name == "theirs" else ""
        if name != "late":
            await scene.pod(name, scheduler=scheduler, gpus=0, resourceClaims=claims)
    await allocate_elsewhere(scene, "theirs", node, driver)
    await scene.pod("waits", scheduler="other", gpus=0)  # so that the server is asked again before a bind
    await scene.start()

    async def device() -> str:
        found = await scene.client.get(RESOURCE_CLAIMS, "ours", scene.namespace)
        allocated = (found.get("status") or {}).get("allocation")
        return allocated["devices"]["results"][0]["device"] if allocated else ""

    assert await eventually(device, "a device of its own") == "gpu-1"
    await scene.pod("late", gpus=0, resourceClaims=[{"name": "g", "resourceClaimName": "late"}])

    async def told() -> bool:
        return (
            conditions((await scene.pods())["late"]).get("PodScheduled", {}).get("reason") == "Unschedulable"
        )

    await eventually(told, "the third without a device")
    for name in ("theirs", "ours", "late"):
        await scene.client.delete(PODS, name, scene.namespace, grace_seconds=0)
    await scene.client.delete(RESOURCE_SLICES, f"{node}-gpus")
    await scene.client.delete(DEVICE_CLASSES, driver)


async def create(scene: Scene, resource: Resource, obj: Json) -> None:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    try:
        await scene.client.create(resource, body)
    except StatusError as error:
        raise AssertionError(f"{resource.kind}: {error.message}") from error

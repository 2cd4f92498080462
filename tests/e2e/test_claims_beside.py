"""Claims for devices on a real API server, beside kube-scheduler: what it writes of an allocation, what it holds."""

from __future__ import annotations

from typing import Any

import pytest
from claims_with_kube_scheduler import KUBE_SCHEDULER, TEMPLATES, claims_scene, create
from scheduling_over_http import Json, Scene, eventually

from windlass.api.resources import (
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
scene = claims_scene("claims")


async def driver(scene: Scene, nodes: dict[str, int], **class_fields: Any) -> str:
    """A driver that lists so many devices of each node, and the class of its devices, which has its name."""
    name = f"gpu.{scene.namespace}.example.com"
    selector = {"cel": {"expression": f"device.driver == '{name}'"}}
    await create(scene, DEVICE_CLASSES, name, spec={"selectors": [selector], **class_fields})
    for node, count in nodes.items():
        spec = {
            "driver": name,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}", "attributes": {"index": {"int": i}}} for i in range(count)],
        }
        await create(scene, RESOURCE_SLICES, f"{node}-{name}", spec=spec)
    return name


async def remove(scene: Scene, name: str, *nodes: str) -> None:
    for node in nodes:
        await scene.client.delete(RESOURCE_SLICES, f"{node}-{name}")
    await scene.client.delete(DEVICE_CLASSES, name)


async def allocation(scene: Scene, pod: str) -> Json:
    """``status`` of the claim that was made for a pod, without what differs from one pod to the next."""
    statuses = (await scene.pods())[pod]["status"]["resourceClaimStatuses"]
    found = await scene.client.get(RESOURCE_CLAIMS, statuses[0]["resourceClaimName"], scene.namespace)
    status = found["status"]
    assert [one["name"] for one in status["reservedFor"]] == [pod]
    assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    if "allocationTimestamp" in status["allocation"]:
        status["allocation"]["allocationTimestamp"] = "some time"
    for one in status["allocation"]["devices"]["results"]:
        one["device"] = ""
    return status["allocation"]


async def test_a_claim_is_allocated_as_kube_scheduler_does(scene: Scene) -> None:
    """A driver reads nothing but the allocation: which devices, for which requests, and what it is told of them."""
    node = await scene.node("a", 0)
    told = {"opaque": {"driver": "x.example.com", "parameters": {"sharing": "MPS"}}}
    name = await driver(scene, {node: 6}, config=[told])
    none = [{"cel": {"expression": f"device.attributes['{name}'].index > 99"}}]
    tolerations = [{"key": "slow", "operator": "Exists", "effect": "NoExecute"}]
    other = {"opaque": {"driver": "x.example.com", "parameters": {"n": 1}}}
    devices = {
        "requests": [
            {"name": "a", "exactly": {"deviceClassName": name, "count": 2, "tolerations": tolerations}},
            {
                "name": "b",
                "firstAvailable": [
                    {"name": "big", "deviceClassName": name, "selectors": none},
                    {"name": "any", "deviceClassName": name},
                ],
            },
        ],
        "config": [{"requests": ["b/any"], **other}, {"requests": ["b/big"], **other}, other],
    }
    await create(scene, TEMPLATES, "t", spec={"spec": {"devices": devices}})
    await scene.start()
    claims = [{"name": "g", "resourceClaimTemplateName": "t"}]
    for pod, scheduler in (
        ("theirs", KUBE_SCHEDULER),
        ("ours", ""),
    ):  # not at once: they might choose the same
        await scene.pod(pod, gpus=0, scheduler=scheduler, resourceClaims=claims)

        async def placed(pod: str = pod) -> bool:
            return pod in await scene.bound()

        await eventually(placed, f"{pod} bound")
    assert await allocation(scene, "ours") == await allocation(scene, "theirs")
    await remove(scene, name, node)


async def test_devices_that_kube_scheduler_gives_for_an_amount_are_not_given_again(scene: Scene) -> None:
    """A class with ``extendedResourceName``: kube-scheduler makes the claim, and names it in the pod's status."""
    node = await scene.node("a", 0)
    amount = f"{scene.namespace}.example.com/gpu"
    name = await driver(scene, {node: 2}, extendedResourceName=amount)
    limits = {"limits": {amount: "1"}, "requests": {amount: "1"}}
    await scene.pod(
        "theirs",
        gpus=0,
        scheduler=KUBE_SCHEDULER,
        containers=[{"name": "main", "image": "x", "resources": limits}],
    )

    async def bound() -> bool:
        return "theirs" in await scene.bound()

    await eventually(bound, "theirs bound")
    request = {"name": "g", "exactly": {"deviceClassName": name}}
    await create(scene, TEMPLATES, "t", spec={"spec": {"devices": {"requests": [request]}}})
    service = await scene.start()
    claims = [{"name": "g", "resourceClaimTemplateName": "t"}]
    for pod in ("first", "second"):
        await scene.pod(pod, gpus=0, resourceClaims=claims)

    async def waits() -> bool:
        told = {pod: service.explain(f"{scene.namespace}/pod:{pod}") for pod in ("first", "second")}
        reasons = sorted(str(one.code) if one is not None else "" for one in told.values())
        return len(await scene.bound()) == 2 and reasons == ["", "InsufficientResources"]

    await eventually(waits, "one of two on the device that is left")
    held = [
        one["device"]
        for claim in (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items
        for one in ((claim.get("status") or {}).get("allocation") or {"devices": {"results": []}})["devices"][
            "results"
        ]
    ]
    assert sorted(held) == ["gpu-0", "gpu-1"]
    for pod in ("first", "second", "theirs"):
        await scene.client.delete(PODS, pod, scene.namespace, grace_seconds=0)
    await remove(scene, name, node)


async def test_devices_of_a_pod_that_kube_scheduler_has_not_bound_yet_are_not_given_again(
    scene: Scene,
) -> None:
    """Its claim is allocated, and it waits for a volume that nobody makes."""
    node = await scene.node("a", 0)
    name = await driver(scene, {node: 2})
    storage = f"late-{scene.namespace}"
    late = {"provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    await create(scene, STORAGE_CLASSES, storage, **late)
    asked = {"storageClassName": storage, "accessModes": ["ReadWriteOnce"]}
    await create(
        scene,
        PERSISTENT_VOLUME_CLAIMS,
        "data",
        spec={**asked, "resources": {"requests": {"storage": "1Gi"}}},
    )
    request = {"name": "g", "exactly": {"deviceClassName": name, "count": 2}}
    await create(scene, TEMPLATES, "t", spec={"spec": {"devices": {"requests": [request]}}})
    service = await scene.start()
    claims = [{"name": "g", "resourceClaimTemplateName": "t"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    await scene.pod("theirs", gpus=0, scheduler=KUBE_SCHEDULER, resourceClaims=claims, volumes=volumes)

    async def allocated() -> bool:
        found = (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items
        return any((one.get("status") or {}).get("allocation") for one in found)

    await eventually(allocated, "the claim of theirs allocated")
    await scene.pod("ours", gpus=0, resourceClaims=claims)

    async def waits() -> bool:
        told = service.explain(f"{scene.namespace}/pod:ours")
        return told is not None and told.code in ("InsufficientResources", "NoSuitableDevice")

    await eventually(waits, "ours waits for devices")
    assert await scene.bound() == {}
    await scene.client.delete(PODS, "theirs", scene.namespace, grace_seconds=0)

    async def ours() -> bool:
        return await scene.bound() == {"ours": node}

    await eventually(ours, "ours on the devices that were given back")
    await scene.client.delete(PODS, "ours", scene.namespace, grace_seconds=0)
    await scene.client.delete(STORAGE_CLASSES, storage)
    await remove(scene, name, node)


async def test_a_gang_that_shares_a_claim_starts_on_the_node_that_has_room_for_all(scene: Scene) -> None:
    """One allocation, for every pod of the gang, before any of them is bound; and one that kube-scheduler places
    with the same claim goes there, too."""
    nodes = [await scene.node(name, 0) for name in ("a", "b", "c")]
    name = await driver(scene, dict(zip(nodes, (1, 2, 1), strict=True)))
    request = {"name": "g", "exactly": {"deviceClassName": name, "count": 2}}
    await create(scene, RESOURCE_CLAIMS, "shared", spec={"devices": {"requests": [request]}})
    await scene.start()
    fields = {
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "15"}}}],
        "resourceClaims": [{"name": "g", "resourceClaimName": "shared"}],
    }
    await scene.group_of("train", 4)
    for at in range(4):
        await scene.pod(f"train-{at}", group="train", gpus=0, **fields)

    async def all_bound() -> bool:
        return len(await scene.bound()) == 4

    await eventually(all_bound, "the gang bound")
    assert set((await scene.bound()).values()) == {nodes[1]}
    status = (await scene.client.get(RESOURCE_CLAIMS, "shared", scene.namespace))["status"]
    assert sorted(one["name"] for one in status["reservedFor"]) == [f"train-{at}" for at in range(4)]
    results = status["allocation"]["devices"]["results"]
    assert sorted((one["pool"], one["device"]) for one in results) == [
        (nodes[1], "gpu-0"),
        (nodes[1], "gpu-1"),
    ]
    fields["containers"][0]["resources"] = {}
    await scene.pod("theirs", gpus=0, scheduler=KUBE_SCHEDULER, **fields)
    await scene.pod("ours", gpus=0, **fields)

    async def both_bound() -> bool:
        return len(await scene.bound()) == 6

    await eventually(both_bound, "who comes later bound")
    assert set((await scene.bound()).values()) == {nodes[1]}

    async def reserved() -> bool:
        found = await scene.client.get(RESOURCE_CLAIMS, "shared", scene.namespace)
        return {"ours", "theirs"} < {one["name"] for one in found["status"]["reservedFor"]}

    await eventually(reserved, "who comes later in reservedFor")
    for pod in await scene.pods():
        await scene.client.delete(PODS, pod, scene.namespace, grace_seconds=0)
    await remove(scene, name, *nodes)


async def test_a_gang_whose_claim_no_node_can_serve_for_all_is_told_so(scene: Scene) -> None:
    nodes = [await scene.node(name, 0) for name in ("a", "b")]
    name = await driver(scene, dict.fromkeys(nodes, 1))
    request = {"name": "g", "exactly": {"deviceClassName": name}}
    await create(scene, RESOURCE_CLAIMS, "shared", spec={"devices": {"requests": [request]}})
    service = await scene.start()
    await scene.group_of("train", 3)
    for at in range(3):
        await scene.pod(
            f"train-{at}",
            group="train",
            gpus=0,
            containers=[{"name": "main", "image": "x", "resources": {"requests": {"cpu": "30"}}}],
            resourceClaims=[{"name": "g", "resourceClaimName": "shared"}],
        )

    async def told() -> bool:
        found = service.explain(f"{scene.namespace}/train")
        return found is not None and "that share ResourceClaim shared must lie on one node" in found.message

    await eventually(told, "why the gang waits")
    assert await scene.bound() == {}
    for pod in await scene.pods():
        await scene.client.delete(PODS, pod, scene.namespace, grace_seconds=0)
    await remove(scene, name, *nodes)

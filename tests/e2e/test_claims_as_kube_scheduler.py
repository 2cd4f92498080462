"""The same claims on the same devices, once for kube-scheduler and once for Windlass: they are served alike.

Each case has two nodes with equal devices, and a pod of each scheduler that goes to its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from claim_cases import CASES, ECC, SHARED, Case, at, at_random, shared_at_random
from claimobjects import device, device_class, devices_of, exactly
from claims_with_kube_scheduler import KUBE_SCHEDULER, TEMPLATES, claims_scene, create
from scheduling_over_http import Json, Scene, eventually

from windlass.api.resources import DEVICE_CLASSES, NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from windlass.scheduler.service import SchedulerService

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
SIDES = ("theirs", "ours")
READY, BROKEN = "example.com/ready", "example.com/broken"
scene = claims_scene("alike")


def driver_of(scene: Scene, case: Case, short: str) -> str:
    return f"{short}.{case.name}.{scene.namespace}.example.com"


def named(scene: Scene, case: Case, request: Json) -> Json:
    """A request with the class of its case."""
    if "exactly" in request:
        inner = request["exactly"]
        return {
            **request,
            "exactly": {**inner, "deviceClassName": driver_of(scene, case, inner["deviceClassName"])},
        }
    options = [
        {**one, "deviceClassName": driver_of(scene, case, one["deviceClassName"])}
        for one in request["firstAvailable"]
    ]
    return {**request, "firstAvailable": options}


async def make(scene: Scene, case: Case) -> None:
    """The nodes, what drivers list there, and the pods."""
    for short in case.devices:
        driver = driver_of(scene, case, short)
        await scene.client.create(DEVICE_CLASSES, device_class(driver, driver))
    for side in SIDES:
        where = await scene.node(f"{case.name}-{side}", 0)
        for short, devices in case.devices.items():
            driver = driver_of(scene, case, short)
            pool = {"resourceSliceCount": 2 if case.counters else 1}
            await scene.client.create(RESOURCE_SLICES, devices_of(where, driver, *devices, pool=pool))
            if case.counters:
                card = {"name": "card", "counters": {"memory": {"value": f"{case.counters}Gi"}}}
                shared = devices_of(where, driver, part="-c", pool=pool, sharedCounters=[card])
                del shared["spec"]["devices"]
                await scene.client.create(RESOURCE_SLICES, shared)
    requests = [named(scene, case, request) for request in case.requests]
    devices = {"requests": requests, "constraints": list(case.constraints)}
    await create(scene, TEMPLATES, case.name, spec={"spec": {"devices": devices}})


async def ask(scene: Scene, cases: Sequence[Case]) -> None:
    for case in cases:
        for side in SIDES:
            for name in case.names(side):
                await scene.pod(
                    name,
                    gpus=0,
                    scheduler=KUBE_SCHEDULER if side == "theirs" else "",
                    nodeSelector={"kubernetes.io/hostname": f"{scene.namespace}-{case.name}-{side}"},
                    resourceClaims=[{"name": "g", "resourceClaimTemplateName": case.name}],
                )


async def allocations(scene: Scene) -> dict[str, list[Json]]:
    """Pod → ``status.allocation.devices.results`` of its claim, as if both sides had the same node and gave parts the
    same ID."""
    found = {}
    for claim in (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items:
        devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices")
        owner = claim["metadata"]["ownerReferences"][0]["name"]
        if devices is not None:
            node = f"{scene.namespace}-{owner.rpartition('-')[0]}"
            found[owner] = [_alike(one, node) for one in devices.get("results", ())]
    return found


def _alike(result: Json, node: str) -> Json:
    part = {"shareID": "ID"} if "shareID" in result else {}
    return {**result, "pool": result["pool"].replace(node, "NODE"), **part}


async def outcomes(
    scene: Scene, cases: Sequence[Case], service: SchedulerService
) -> dict[str, tuple[list[list[Json]], list[list[Json]]]] | None:
    """By case, what the pods of both got, each in its order; ``None`` before all is known."""
    pods, given = await scene.pods(), await allocations(scene)
    for name, pod in pods.items():
        conditions = pod["status"].get("conditions", ())
        refused = any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)
        waits = service.explain(f"{scene.namespace}/pod:{name}") is not None
        ours = pod["spec"]["schedulerName"] != KUBE_SCHEDULER
        if name not in given and not (waits if ours else refused):
            return None

    def of(case: Case, side: str) -> list[list[Json]]:
        return sorted((given[name] for name in case.names(side) if name in given), key=str)

    return {case.name: (of(case, "theirs"), of(case, "ours")) for case in cases}


async def nudge(scene: Scene) -> None:
    """Drivers tell again what they have. kube-scheduler counts a part twice at the moment at which it sees its own
    allocation, and parks who does not fit then."""
    for item in (await scene.client.list(RESOURCE_SLICES)).items:
        if scene.namespace in item["spec"]["driver"]:
            told = {
                "metadata": {"annotations": {"example.com/told": str(item["metadata"]["resourceVersion"])}}
            }
            await scene.client.patch(RESOURCE_SLICES, item["metadata"]["name"], told)


async def played(scene: Scene, cases: Sequence[Case]) -> dict[str, list[list[Json]]]:
    """What both give to the pods of each case, which is the same."""
    for case in cases:
        await make(scene, case)
    service = await scene.start()
    await ask(scene, cases)

    looks = count()

    async def alike() -> bool:
        if next(looks) % 100 == 99:
            await nudge(scene)
        found = await outcomes(scene, cases, service)
        return found is not None and all(theirs == ours for theirs, ours in found.values())

    try:
        await eventually(alike, "the same for both")
    except AssertionError:
        found = await outcomes(scene, cases, service) or {}
        different = {name: pair for name, pair in found.items() if pair[0] != pair[1]}
        raise AssertionError(f"not alike: {different}") from None
    found = await outcomes(scene, cases, service) or {}
    await clear(scene, cases)
    return {name: theirs for name, (theirs, _) in found.items()}


@pytest.mark.parametrize("cases", [CASES, SHARED], ids=["alone", "shared"])
async def test_claims_are_served_as_kube_scheduler_serves_them(scene: Scene, cases: Sequence[Case]) -> None:
    admin = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await scene.client.patch(NAMESPACES, scene.namespace, admin)
    found = await played(scene, cases)
    for case in cases:
        assert len(found[case.name]) == case.pods - case.waiting, case.name
        if case.served:
            assert case.served in [tuple(one["request"] for one in given) for given in found[case.name]], (
                case.name
            )


@pytest.mark.parametrize(
    "cases",
    [[at_random(seed) for seed in (*range(15), 1113)], [shared_at_random(seed) for seed in range(16)]],
    ids=["alone", "shared"],
)
async def test_claims_at_random_are_served_as_kube_scheduler_serves_them(
    scene: Scene, cases: Sequence[Case]
) -> None:
    found = await played(scene, cases)
    served = sum(bool(given) for given in found.values())
    assert 3 <= served <= len(cases) - 3  # else the cases say little


async def claim_names(scene: Scene) -> list[str]:
    return [
        one["metadata"]["name"] for one in (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items
    ]


async def told_of(scene: Scene, pod: str, device: str, condition: str) -> None:
    """The driver of a device says something of it, in the claim of a pod."""
    for claim in (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items:
        if claim["metadata"]["ownerReferences"][0]["name"] != pod:
            continue
        (result,) = (r for r in claim["status"]["allocation"]["devices"]["results"] if r["device"] == device)
        moment = claim["metadata"]["creationTimestamp"]
        said = {
            "type": condition,
            "status": "True",
            "reason": "Told",
            "message": "m",
            "lastTransitionTime": moment,
        }
        state = {**{key: result[key] for key in ("driver", "pool", "device")}, "conditions": [said]}
        name = claim["metadata"]["name"]
        body = {"status": {"devices": [state]}}
        await scene.client.patch(RESOURCE_CLAIMS, name, body, scene.namespace, subresource="status")


async def test_pods_are_bound_once_their_devices_are_ready(scene: Scene) -> None:
    """The one that is made ready comes after the one that need not be; the first cannot be made ready, and is
    tainted; the second is."""
    conditions = {"bindingConditions": [READY], "bindingFailureConditions": [BROKEN], "bindsToNode": True}
    case = Case("ready", {"gpu": at("r0")}, [exactly("a", "gpu", count=2)], ())
    await make(scene, case)
    driver = driver_of(scene, case, "gpu")
    for side in SIDES:
        where = f"{scene.namespace}-ready-{side}"
        await scene.client.create(RESOURCE_SLICES, late_devices(where, driver, **conditions))
    service = await scene.start()
    await ask(scene, [case])
    names = [name for side in SIDES for name in case.names(side)]

    async def given(*devices: str) -> bool:
        found = await allocations(scene)
        return all([one["device"] for one in found.get(name, ())] == [*devices] for name in names)

    await eventually(lambda: given("d-0", "late-0"), "allocated")
    found = await allocations(scene)
    assert found[names[0]] == found[names[1]]
    assert found[names[1]][1]["bindingConditions"] == [READY]

    async def told() -> bool:
        found = service.explain(f"{scene.namespace}/pod:{names[1]}")
        return (
            found is not None
            and found.code == "AwaitingDevice"
            and f"late-0 of claim {claim}, {READY}" in found.message
        )

    claim = next(one for one in await claim_names(scene) if one.startswith(names[1]))
    await eventually(told, "what it waits for")
    for side, name in zip(SIDES, names, strict=True):
        where = f"{scene.namespace}-ready-{side}"
        broken = late_devices(where, driver, tainted=True, **conditions)
        devices = {"spec": {"devices": broken["spec"]["devices"]}}
        await scene.client.patch(RESOURCE_SLICES, broken["metadata"]["name"], devices)
        await told_of(scene, name, "late-0", BROKEN)
    await eventually(lambda: given("d-0", "late-1"), "allocated anew")
    assert await scene.bound() == {}
    for name in names:
        await told_of(scene, name, "late-1", READY)

    async def bound() -> bool:
        return set(await scene.bound()) == set(names)

    await eventually(bound, "bound")
    found = await allocations(scene)
    assert found[names[0]] == found[names[1]]
    await clear(scene, [case])


def late_devices(where: str, driver: str, *, tainted: bool = False, **conditions: Any) -> Json:
    """A pool that comes before the other by name. ``tainted``: the first of its devices."""
    taints = [{"taints": [ECC]} if tainted else {}, {}]
    every = [device(f"late-{n}", {"index": n}, **conditions, **taints[n]) for n in range(2)]
    return devices_of(where, driver, *every, part="-late", pool={"name": f"a.{where}"})


async def clear(scene: Scene, cases: Sequence[Case]) -> None:
    """What the namespace does not take with it."""
    for pod in await scene.pods():
        await scene.client.delete(PODS, pod, scene.namespace, grace_seconds=0)
    for case in cases:
        for short in case.devices:
            await scene.client.delete(DEVICE_CLASSES, driver_of(scene, case, short))
    for item in (await scene.client.list(RESOURCE_SLICES)).items:
        if scene.namespace in item["spec"]["driver"]:
            await scene.client.delete(RESOURCE_SLICES, item["metadata"]["name"])

"""Pods with devices that must be made ready.

binds wait for them, or the devices are released.
"""

from __future__ import annotations

from typing import Any

import pytest
from claimobjects import claimer, device, device_class, devices_of, exactly, resource_claim
from kubeobjects import group, node, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from windlass.kits.clock import FakeClock

DRIVER, READY, BROKEN = "gpu.example.com", "example.com/ready", "example.com/broken"


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n", gpus=0))
    made.put(DEVICE_CLASSES, device_class(DRIVER, DRIVER))
    conditions = {"bindingConditions": [READY], "bindingFailureConditions": [BROKEN]}
    made.put(RESOURCE_SLICES, devices_of("n", DRIVER, device("d", **conditions)))
    made.put(RESOURCE_CLAIMS, resource_claim("c", exactly("a", DRIVER)))
    return made


def status(api: SchedulerApi) -> dict[str, Any]:
    found: dict[str, Any] = (api.object(RESOURCE_CLAIMS, "default/c") or {}).get("status") or {}
    return found


def say(api: SchedulerApi, condition: str) -> None:
    said = {"type": condition, "status": "True", "reason": "Told", "message": "no link"}
    state = {"driver": DRIVER, "pool": "n", "device": "d", "conditions": [said]}
    api.change(RESOURCE_CLAIMS, "default/c", status={"devices": [state]})


@pytest.mark.parametrize("members", [1, 2])
async def test_pods_are_bound_once_their_device_is_ready(api: SchedulerApi, members: int) -> None:
    pods = [claimer(f"g-{at}", claim="c", group="g") for at in range(members)]
    api.add(group("g", members), *pods)
    async with Running(api) as running:
        await running.settle(60.0)
        assert api.bound() == []
        assert status(api)["allocation"]["devices"]["results"][0]["bindingConditions"] == [READY]
        told = running.service.explain("default/g")
        assert told is not None
        assert told.code == "AwaitingDevice"
        assert f"device {DRIVER}/n/d of claim c, {READY}" in told.message
        say(api, READY)
        await running.settle(3.0)
        assert api.bound() == [f"g-{at}" for at in range(members)]


async def test_a_device_that_cannot_be_made_ready_is_released(api: SchedulerApi) -> None:
    api.add(claimer("a", claim="c"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert status(api)["allocation"]
        conditions = {"bindingConditions": [READY], "bindingFailureConditions": [BROKEN]}
        taint = {"key": "example.com/broken", "effect": "NoSchedule"}
        api.put(RESOURCE_SLICES, devices_of("n", DRIVER, device("d", taints=[taint], **conditions)))
        say(api, BROKEN)
        await running.settle(30.0)
        assert not status(api).get("allocation")
        assert not status(api).get("reservedFor")
        assert api.bound() == []
        assert "tainted" in str(running.service.explain("default/pod:a"))


async def test_a_device_that_is_not_ready_in_time_is_released_and_allocated_again(
    api: SchedulerApi,
) -> None:
    api.add(claimer("a", claim="c"))
    async with Running(api) as running:
        await running.settle(1.0)
        before = status(api)["allocation"]["allocationTimestamp"]
        await running.settle(620.0)
        assert "FailedScheduling" in running.reasons("a")
        assert status(api)["allocation"]["allocationTimestamp"] > before
        say(api, READY)
        await running.settle(3.0)
        assert api.bound() == ["a"]


async def test_a_device_is_released_when_its_pod_is_deleted(api: SchedulerApi) -> None:
    api.add(claimer("a", claim="c"))
    async with Running(api) as running:
        await running.settle(1.0)
        api.remove(PODS, "default/a")
        api.add(claimer("b", claim="c"))
        await running.settle(5.0)
        say(api, READY)
        await running.settle(5.0)
        assert api.bound() == ["b"]

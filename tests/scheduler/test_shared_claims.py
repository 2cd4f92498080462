"""Gangs with pods that share a ResourceClaim: writes about the claim."""

from __future__ import annotations

from typing import Any

import pytest
from claimobjects import NVIDIA, claim, claimer, exactly, gpu_node
from kubeobjects import group, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.errors import conflict, failure
from windlass.api.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, Resource
from windlass.kits.clock import FakeClock
from windlass.model.devices.dra_needs import ClaimNeeds


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    made.put(DEVICE_CLASSES, {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **NVIDIA})
    found = claim("c", exactly())
    made.put(RESOURCE_CLAIMS, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **found})
    return made


def status(api: SchedulerApi) -> dict[str, Any]:
    found = api.object(RESOURCE_CLAIMS, "default/c") or {}
    return found.get("status") or {}


def consumers(api: SchedulerApi) -> list[str]:
    return sorted(one["name"] for one in status(api).get("reservedFor") or ())


async def test_the_claim_is_written_once_for_the_whole_gang(api: SchedulerApi) -> None:
    api.add(gpu_node("n"), group("g", 3), *[claimer(f"g-{i}", claim="c", group="g") for i in range(3)])
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["g-0", "g-1", "g-2"]
    assert consumers(api) == ["g-0", "g-1", "g-2"]
    assert len(status(api)["allocation"]["devices"]["results"]) == 1
    assert len(api.writes("resourceclaims")) == 2  # its status, and what protects it


async def test_nothing_is_bound_if_the_claim_cannot_be_written(api: SchedulerApi) -> None:
    refused: list[str] = []

    def refuse(verb: str, resource: Any, obj: Any) -> Exception | None:
        if resource is not RESOURCE_CLAIMS:
            return None
        refused.append(verb)
        return conflict(RESOURCE_CLAIMS, "c")

    api.reject = refuse
    api.add(gpu_node("n"), group("g", 3), *[claimer(f"g-{i}", claim="c", group="g") for i in range(3)])
    async with Running(api) as running:
        await running.settle(1.0)
        assert refused
        assert api.bound() == []
        api.reject = lambda *_: None
        await running.settle(30.0)
        assert api.bound() == ["g-0", "g-1", "g-2"]
    assert consumers(api) == ["g-0", "g-1", "g-2"]


@pytest.mark.parametrize("members", [1, 3])
async def test_nothing_is_bound_if_the_chosen_devices_no_longer_match(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch, members: int
) -> None:
    """The driver has published them again since.

    Pods that are not bound are placed again.
    """
    changing = [True]
    real = ClaimNeeds.results

    def results(self: ClaimNeeds, *args: Any) -> Any:
        return None if changing[0] else real(self, *args)

    monkeypatch.setattr(ClaimNeeds, "results", results)
    pods = [claimer(f"g-{i}", claim="c", group="g") for i in range(members)]
    api.add(gpu_node("n"), group("g", members), *pods)
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == []
        assert status(api) == {}
        changing[0] = False
        await running.settle(30.0)
        assert api.bound() == [f"g-{i}" for i in range(members)]
    assert consumers(api) == [f"g-{i}" for i in range(members)]


async def test_a_claim_is_not_released_while_binds_of_its_pods_are_unseen(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod that carries it is rejected, the others are bound and use the allocation."""
    changed = api._changed

    def pods_are_late(resource: Resource, *change: Any) -> None:
        api.lagging = resource is PODS
        changed(resource, *change)

    def refuse(namespace: str, name: str, where: str) -> Exception | None:
        if name != "g-0" or len(refused) == 1:
            return None
        refused.append(name)
        return failure(403, "Injected", "not now")

    refused: list[str] = []
    api.refuse_bind = refuse
    api.add(gpu_node("n"), group("g", 3), *[claimer(f"g-{i}", claim="c", group="g") for i in range(3)])
    async with Running(api, stands_by=True) as running:
        monkeypatch.setattr(api, "_changed", pods_are_late)
        running.service.lead()
        await running.settle(5.0)
        assert refused == ["g-0"]
        assert api.bound() == ["g-1", "g-2"]
        given = status(api)["allocation"]
        await running.settle(5.0)
        assert status(api)["allocation"] == given
        monkeypatch.setattr(api, "_changed", changed)
        api.lagging = False
        api.catch_up()
        await running.settle(5.0)
        assert api.bound() == ["g-0", "g-1", "g-2"]
    assert status(api)["allocation"] == given
    assert consumers(api) == ["g-0", "g-1", "g-2"]

"""Gangs of the coscheduling plugin in a running scheduler.

placed as a whole, with explanation and status.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from coschedulingobjects import coscheduling_group, member
from kubeobjects import node, pod
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.resources import COSCHEDULING_POD_GROUPS, PODS, Resource
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.model.records import gang_reservation
from windlass.scheduler.cache.event_handlers import PROBE_SECONDS

EXPLANATION = "windlass.dev/explanation"
CUT = Unreachable(UNREACHABLE, "cut")


@pytest.fixture
def api() -> SchedulerApi:
    return SchedulerApi()


def add(api: SchedulerApi, *objects: dict[str, Any]) -> None:
    kinds = {"PodGroup": COSCHEDULING_POD_GROUPS, "Pod": PODS}
    for obj in objects:
        api.put(kinds[obj["kind"]], obj)


def of(api: SchedulerApi, name: str) -> dict[str, Any]:
    return api.object(COSCHEDULING_POD_GROUPS, f"default/{name}")


def notes(api: SchedulerApi, name: str) -> dict[str, str]:
    return of(api, name)["metadata"].get("annotations") or {}


async def test_a_gang_starts_as_a_whole_and_its_status_follows(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    add(api, coscheduling_group("a", 2, needs={"nvidia.com/gpu": 2}), member("a0", "a"))
    async with Running(api) as running:
        await running.settle(3.0)
        assert api.bound() == []
        assert of(api, "a")["status"]["phase"] == "Pending"
        assert json.loads(notes(api, "a")[EXPLANATION])["code"] == "WaitingForMembers"
        add(api, member("a1", "a"))
        await running.settle(3.0)
        assert api.bound() == ["a0", "a1"]
        assert of(api, "a")["status"]["phase"] == "Scheduling"
        assert EXPLANATION not in notes(api, "a")
        for name in ("a0", "a1"):
            api.run(name)
        await running.settle(3.0)
        assert of(api, "a")["status"] == {
            "phase": "Running",
            "occupiedBy": "default/a-node-0",
            "running": 2,
            "succeeded": 0,
            "failed": 0,
        }
        for name in ("a0", "a1"):
            api.end(name)
        await running.settle(3.0)
        assert (of(api, "a")["status"]["phase"], of(api, "a")["status"]["succeeded"]) == ("Finished", 2)
        before = len(api.writes("podgroups"))
        await running.settle(30.0)
        assert len(api.writes("podgroups")) == before


async def test_a_pending_gang_has_its_explanation_on_object_and_pods(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    add(api, coscheduling_group("b", 3), *[member(f"b{i}", "b") for i in range(3)])
    async with Running(api) as running:
        await running.settle(8.0)
        assert api.bound() == []
        assert json.loads(notes(api, "b")[EXPLANATION])["code"] == "ExceedsCluster"
        assert "Unschedulable" in running.reasons("b")
        assert api.conditions(PODS, "default/b0")["PodScheduled"]["status"] == "False"


async def test_pods_wait_for_a_missing_group_and_report_it(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    add(api, member("c0", "c"), member("c1", "c"))
    async with Running(api) as running:
        await running.settle(8.0)
        assert api.bound() == []
        told = api.conditions(PODS, "default/c0")["PodScheduled"]["message"]
        assert "PodGroup (scheduling.x-k8s.io/v1alpha1) default/c does not exist" in told
        add(api, coscheduling_group("c", 2))
        await running.settle(2.0)
        assert api.bound() == ["c0", "c1"]


async def test_a_kind_installed_later_is_followed(api: SchedulerApi) -> None:
    served: list[Resource] = []
    whole = api.list

    async def listed(resource: Resource, *args: object, **options: object) -> object:
        if resource is COSCHEDULING_POD_GROUPS and resource not in served:
            raise errors.not_found(resource, "")
        return await whole(resource, *args, **options)

    api.list = listed  # type: ignore[method-assign]
    api.add(node("n1", gpus=2))
    add(api, member("a0", "a"), member("a1", "a"))
    async with Running(api) as running:
        await running.settle(5.0)
        assert api.bound() == []
        served.append(COSCHEDULING_POD_GROUPS)
        add(api, coscheduling_group("a", 2))
        await running.settle(PROBE_SECONDS)
        await running.settle(1.0)
        assert api.bound() == ["a0", "a1"]


async def test_a_status_of_another_controller_is_not_touched(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    fields = [{"manager": "controller", "subresource": "status", "operation": "Update"}]
    kept = coscheduling_group("a", 2, managedFields=fields)
    kept["status"] = {"phase": "Pending"}
    add(api, kept, member("a0", "a"), member("a1", "a"))
    async with Running(api) as running:
        await running.settle(1.0)
        api.run("a0")
        await running.settle(5.0)
        assert api.bound() == ["a0", "a1"]
        assert of(api, "a")["status"] == {"phase": "Pending"}


async def test_a_new_leader_removes_an_outdated_explanation(api: SchedulerApi) -> None:
    """The earlier leader stopped between the gang's start and the removal."""
    api.add(node("n1", gpus=1))
    fields = [{"manager": "controller", "subresource": "status", "operation": "Update"}]
    said = {EXPLANATION: json.dumps({"code": "InsufficientResources", "message": "no room"})}
    add(api, coscheduling_group("a", 1, annotations=said, managedFields=fields), member("a0", "a", node="n1"))
    async with Running(api) as running:
        await running.settle(15.0)
        assert EXPLANATION not in notes(api, "a")


async def test_an_explanation_is_removed_once_another_scheduler_owns_the_pods(
    api: SchedulerApi,
) -> None:
    api.add(node("n1", gpus=1))
    said = {EXPLANATION: json.dumps({"code": "InsufficientResources", "message": "no room"})}
    other = member("a0", "a", scheduler="scheduler-plugins")
    add(api, coscheduling_group("a", 1, annotations=said), other)
    async with Running(api) as running:
        await running.settle(3.0)
        assert EXPLANATION not in notes(api, "a")
        assert not of(api, "a").get("status")


async def test_a_new_leader_completes_an_incomplete_gang(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    add(api, coscheduling_group("a", 2), member("a0", "a"), member("a1", "a"))
    api.refuse_bind = lambda namespace, name, where: CUT if name == "a1" else None
    async with Running(api) as running:
        await running.settle(1.0)
        found = gang_reservation.decode(notes(api, "a")["windlass.dev/reservation"])
        assert found is not None
        assert [seat.pod for seat in found.seats] == ["a0", "a1"]
    api.refuse_bind = lambda *_: None
    async with Running(api) as running:
        await running.settle(0.5)
        assert api.bound() == ["a0", "a1"]


async def test_an_incomplete_gang_is_evicted(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    add(api, coscheduling_group("a", 2), member("a0", "a"), member("a1", "a"))
    api.refuse_bind = lambda namespace, name, where: (
        errors.failure(500, "InternalError", "no") if name == "a1" else None
    )
    async with Running(api) as running:
        await running.settle(10.0)
        assert api.bound() == ["a0"]
        await running.settle(35.0)
        assert api.conditions(PODS, "default/a0")["DisruptionTarget"]["reason"] == "GangBindFailed"
        assert "GangBindFailed" in running.reasons("a")


async def test_a_plain_pod_group_of_kueue_starts_as_a_whole_with_explanation(api: SchedulerApi) -> None:
    def of_kueue(name: str) -> dict[str, Any]:
        labels = {"kueue.x-k8s.io/pod-group-name": "k"}
        return pod(name, labels=labels, annotations={"kueue.x-k8s.io/pod-group-total-count": "2"})

    api.add(node("n1", gpus=2))
    add(api, of_kueue("k0"))
    async with Running(api) as running:
        await running.settle(8.0)
        assert api.bound() == []
        told = api.conditions(PODS, "default/k0")["PodScheduled"]["message"]
        assert "1 of the 2 pods" in told
        add(api, of_kueue("k1"))
        await running.settle(2.0)
        assert api.bound() == ["k0", "k1"]

"""Kubernetes' own PodGroups in a running scheduler.

condition ``PodGroupScheduled`` by kube-scheduler's rules.
"""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import node, pod
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import NATIVE_POD_GROUPS, PODS

Json = dict[str, Any]


@pytest.fixture
def api() -> SchedulerApi:
    return SchedulerApi()


def group(name: str, least: int = 2, **more: Any) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "generation": 3,
            "creationTimestamp": "2026-01-01T12:00:00Z",
            **more,
        },
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}},
    }


def member(name: str, of: str, **more: Any) -> Json:
    return pod(name, schedulingGroup={"podGroupName": of}, **more)


def condition(api: SchedulerApi, name: str) -> Json:
    status = api.object(NATIVE_POD_GROUPS, f"default/{name}").get("status") or {}
    (found,) = status.get("conditions") or [{}]
    return found


def record(api: SchedulerApi, name: str) -> str:
    """The explanation, on the oldest pending pod, since the PodGroup is not written."""
    notes = api.object(PODS, f"default/{name}")["metadata"].get("annotations") or {}
    return notes.get("windlass.dev/explanation") or ""


async def test_a_gang_is_unschedulable_then_scheduled_and_stays_so(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1))
    api.put(NATIVE_POD_GROUPS, group("a"))
    for number in range(2):
        api.put(PODS, member(f"a{number}", "a"))
    async with Running(api) as running:
        await running.settle(8.0)
        told = condition(api, "a")
        assert (told["type"], told["status"], told["reason"]) == (
            "PodGroupScheduled",
            "False",
            "Unschedulable",
        )
        assert "2 pods of 1 nvidia.com/gpu must run together" in told["message"]
        assert told["observedGeneration"] == 3
        assert "annotations" not in api.object(NATIVE_POD_GROUPS, "default/a")["metadata"]
        assert [name for name in ("a0", "a1") if record(api, name)] == ["a0"]
        api.add(node("n2", gpus=1))
        await running.settle(8.0)
        assert api.bound() == ["a0", "a1"]
        told = condition(api, "a")
        assert (told["status"], told["reason"], told["message"]) == ("True", "Scheduled", "")
        assert not record(api, "a0")
        written = len(api.writes("podgroups"))
        for number in range(2):
            api.run(f"a{number}")
        await running.settle(3.0)
        api.put(PODS, member("a2", "a"))  # one more than there is room for
        await running.settle(30.0)
        assert condition(api, "a")["status"] == "True"
        assert len(api.writes("podgroups")) == written


async def test_the_condition_has_the_time_of_its_last_transition(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1))
    api.put(NATIVE_POD_GROUPS, group("a", 3))
    api.put(PODS, member("a0", "a"))
    async with Running(api) as running:
        await running.settle(8.0)
        first = condition(api, "a")
        assert first["status"] == "False"
        for number in (1, 2):
            api.put(PODS, member(f"a{number}", "a"))
        await running.settle(60.0)
        second = condition(api, "a")
        assert second["message"] != first["message"]
        assert second["lastTransitionTime"] == first["lastTransitionTime"]


async def test_foreign_groups_and_foreign_conditions_are_not_touched(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=4))
    fields = {"f:status": {"f:conditions": {'k:{"type":"PodGroupScheduled"}': {}}}}
    theirs = [
        {"manager": "kube-scheduler", "subresource": "status", "operation": "Update", "fieldsV1": fields}
    ]
    mine = [{"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}}]
    api.put(NATIVE_POD_GROUPS, group("theirs", 1, managedFields=theirs))
    api.put(NATIVE_POD_GROUPS, group("ours", 1, managedFields=mine))
    api.put(NATIVE_POD_GROUPS, group("elsewhere", 1))
    api.put(PODS, member("p-theirs", "theirs"))
    api.put(PODS, member("p-ours", "ours"))
    api.put(PODS, member("p-elsewhere", "elsewhere", scheduler="default-scheduler", node="n1"))
    async with Running(api) as running:
        await running.settle(8.0)
        assert api.bound() == ["p-elsewhere", "p-ours", "p-theirs"]
        assert condition(api, "ours")["status"] == "True"
        assert condition(api, "theirs") == {}
        assert condition(api, "elsewhere") == {}


async def test_a_contradictory_group_is_a_scheduling_error(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=4))
    api.put(NATIVE_POD_GROUPS, group("a", -1))
    api.put(PODS, member("a0", "a"))
    async with Running(api) as running:
        await running.settle(8.0)
        assert (condition(api, "a")["status"], condition(api, "a")["reason"]) == ("False", "SchedulerError")

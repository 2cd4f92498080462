"""Binds with claims that wait for their first consumer.

held until the volumes exist, or given up.
"""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import resources
from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from windlass.kits.clock import FakeClock

SELECTED = "volume.kubernetes.io/selected-node"


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    fast = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    made.put(resources.STORAGE_CLASSES, fast)
    return made


def claim(api: SchedulerApi, name: str) -> list[dict[str, Any]]:
    """A claim, and the part of a pod that uses it."""
    obj = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"storageClassName": "fast"},
    }
    api.put(PERSISTENT_VOLUME_CLAIMS, obj)
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def selected(api: SchedulerApi, name: str) -> str:
    found = api.object(PERSISTENT_VOLUME_CLAIMS, f"default/{name}") or {}
    return (found["metadata"].get("annotations") or {}).get(SELECTED, "")


def provide(api: SchedulerApi, name: str) -> None:
    notes = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    api.change(PERSISTENT_VOLUME_CLAIMS, f"default/{name}", spec={"volumeName": f"pv-{name}"}, metadata=notes)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {"storageClassName": "fast", "claimRef": {"namespace": "default", "name": name}},
    }
    api.put(resources.PERSISTENT_VOLUMES, volume)


async def test_a_gang_waits_for_all_its_volumes_and_delays_no_other(
    api: SchedulerApi,
) -> None:
    api.add(node("n1", gpus=4), group("g", 2))
    api.add(*[pod(f"g-{i}", group="g", volumes=claim(api, f"c{i}")) for i in range(2)])
    api.add(pod("other"))
    async with Running(api, bind_concurrency=1, bind_concurrency_max=1) as running:
        await running.settle(1.0)
        assert api.bound() == ["other"]
        provide(api, "c0")
        await running.settle(60.0)  # longer than a gang may stand half
        assert api.bound() == ["other"]
        provide(api, "c1")
        await running.settle(3.0)
        assert api.bound() == ["g-0", "g-1", "other"]
        assert not api.conditions(PODS, "default/g-0").get("DisruptionTarget")


async def test_a_gang_is_placed_again_if_a_volume_cannot_be_provisioned(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), pod("a", volumes=claim(api, "c")))
    async with Running(api) as running:
        await running.settle(1.0)
        assert selected(api, "c") == "n1"
        api.change(resources.NODES, "n1", spec={"unschedulable": True})
        api.add(node("n2", gpus=1))
        api.change(PERSISTENT_VOLUME_CLAIMS, "default/c", metadata={"annotations": {SELECTED: None}})
        await running.settle(10.0)
        assert selected(api, "c") == "n2"
        assert "FailedScheduling" in running.reasons("a")
        provide(api, "c")
        await running.settle(3.0)
        assert api.node_of("a") == "n2"


async def test_capacity_is_released_if_the_pod_is_deleted_or_the_volume_times_out(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), pod("a", volumes=claim(api, "c")))
    async with Running(api) as running:
        await running.settle(1.0)
        api.add(pod("b"))
        await running.settle(5.0)
        assert api.bound() == []
        api.remove(PODS, "default/a")
        await running.settle(5.0)
        assert api.bound() == ["b"]
        api.end("b")
        api.add(pod("late", volumes=claim(api, "never")))
        await running.settle(1.0)
        assert "default/late" in running.service.model.binds.assumed
        await running.settle(610.0)
        assert "FailedScheduling" in running.reasons("late")


async def test_no_volume_is_awaited_in_single_node_mode(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), pod("a", volumes=claim(api, "c")))
    async with Running(api, await_volumes=False) as running:
        await running.settle(1.0)
        assert api.bound() == ["a"]
        assert selected(api, "c") == "n1"


async def test_a_pod_that_waits_for_its_volume_is_reported_and_nominated(api: SchedulerApi) -> None:
    """For up to ten minutes it has a node without being on it.

    An autoscaler must neither remove that node nor add another.
    """
    api.add(node("n1", gpus=1), pod("a", volumes=claim(api, "c")))
    async with Running(api) as running:
        await running.settle(5.0)
        told = running.service.explain("default/pod:a")
        assert told is not None
        assert told.code == "AwaitingVolume"
        assert "claim default/c, for node n1" in told.message
        found = api.object(PODS, "default/a")
        assert found["status"]["nominatedNodeName"] == "n1"
        assert api.conditions(PODS, "default/a")["PodScheduled"]["reason"] == "SchedulingGated"
        assert "AwaitingVolume" in found["metadata"]["annotations"]["windlass.dev/explanation"]
        assert "FailedScheduling" not in running.reasons("a")
        provide(api, "c")
        await running.settle(3.0)
        assert api.node_of("a") == "n1"
        assert running.service.explain("default/pod:a") is None
        await running.settle(5.0)
        assert "windlass.dev/explanation" not in api.object(PODS, "default/a")["metadata"].get(
            "annotations", {}
        )


async def test_the_nomination_is_removed_if_there_is_no_volume(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), pod("a", volumes=claim(api, "c")))
    async with Running(api) as running:
        await running.settle(5.0)
        assert api.object(PODS, "default/a")["status"]["nominatedNodeName"] == "n1"
        api.change(resources.NODES, "n1", spec={"unschedulable": True})
        api.change(PERSISTENT_VOLUME_CLAIMS, "default/c", metadata={"annotations": {SELECTED: None}})
        await running.settle(10.0)
        assert not api.object(PODS, "default/a")["status"].get("nominatedNodeName")
        assert api.conditions(PODS, "default/a")["PodScheduled"]["reason"] == "Unschedulable"
        assert running.service.model.binds.awaited == {}

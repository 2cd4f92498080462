"""Nodes of HAMi: pods get their devices in HAMi's annotations, one by one under its lock.

HAMi's device plugin is simulated by its own protocol (``pkg/device-plugin`` of HAMi
2.9). It looks up the pod that the node is locked for, takes each container's devices
off the list, and removes the lock.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubeobjects import node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.reasons import Reason
from windlass.api.resources import NODES, PODS
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.scheduler.commit.hami_node_lock import EXPIRED_SECONDS, PATIENCE_SECONDS, HamiLocks

LOCK = "hami.io/mutex.lock"
PART, WHOLE = "NVIDIA,2000,0:", "NVIDIA,40960,100:"
TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def hami_node(name: str, cards: int = 2, slots: int = 4, mode: str = "hami-core") -> dict[str, Any]:
    one = {
        "count": slots,
        "devmem": 40960,
        "devcore": 100,
        "type": "NVIDIA A100",
        "mode": mode,
        "health": True,
    }
    listed = [{"id": f"GPU-{name}-{at}", "index": at, **one} for at in range(cards)]
    obj = node(name, gpus=cards * slots)
    obj["metadata"] |= {
        "resourceVersion": "1",
        "annotations": {"hami.io/node-nvidia-register": json.dumps(listed)},
    }
    return obj


def asks(name: str, gpus: int = 1, mib: int = 0, cores: int = 0, **fields: Any) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": str(gpus)}
    amounts |= {"nvidia.com/gpumem": str(mib)} if mib else {}
    amounts |= {"nvidia.com/gpucores": str(cores)} if cores else {}
    return pod(name, requests=amounts, **fields)


def notes(api: SchedulerApi, name: str) -> dict[str, str]:
    return (api.object(PODS, f"default/{name}") or {})["metadata"].get("annotations") or {}


def lock(api: SchedulerApi, name: str = "n1") -> str:
    return ((api.object(NODES, name) or {})["metadata"].get("annotations") or {}).get(LOCK, "")


def set_lock(api: SchedulerApi, text: str | None, name: str = "n1") -> None:
    api.change(NODES, name, metadata={"annotations": {LOCK: text}})


def locked_by(running: Running, owner: str, seconds_ago: float = 0.0) -> str:
    return f"{rfc3339(running.service.components.clock.now() - seconds_ago)}{owner}"


def plug_in(api: SchedulerApi, name: str = "n1") -> list[str]:
    """``Allocate`` for all containers of the pod that the node is locked for.

    Return the devices of each.
    """
    _, namespace, pod_name = lock(api, name).split(",")
    told = notes(api, pod_name)
    assert (namespace, told["hami.io/vgpu-node"], told["hami.io/bind-phase"]) == (
        "default",
        name,
        "allocating",
    )
    given = [text for text in told[TO_ALLOCATE].split(";") if text]
    changed = {**told, TO_ALLOCATE: ";" * told[TO_ALLOCATE].count(";"), "hami.io/bind-phase": "success"}
    api.change(PODS, f"default/{pod_name}", metadata={"annotations": changed})
    set_lock(api, None, name)
    return given


async def test_a_pod_gets_its_device_in_hamis_annotations(api: SchedulerApi) -> None:
    api.add(hami_node("n1"), asks("a", mib=3000, cores=30))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.node_of("a") == "n1"
        found = notes(api, "a")
        assert found[TO_ALLOCATE] == found[ALLOCATED] == "GPU-n1-0,NVIDIA,3000,30:;"
        assert found["windlass.dev/device-shares"] == "0:300/3000"
        assert lock(api).endswith(",default,a")
        assert plug_in(api) == ["GPU-n1-0,NVIDIA,3000,30:"]


async def test_a_whole_device_has_all_its_memory_and_compute(api: SchedulerApi) -> None:
    api.add(hami_node("n1"), asks("a", gpus=2))
    async with Running(api) as running:
        await running.settle(1.0)
        assert notes(api, "a")[TO_ALLOCATE] == "GPU-n1-0,NVIDIA,40960,100:GPU-n1-1,NVIDIA,40960,100:;"


async def test_each_container_has_its_devices_and_init_containers_come_first(api: SchedulerApi) -> None:
    def container(name: str, gpus: int = 0, mib: int = 0) -> dict[str, Any]:
        amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
        amounts |= {"nvidia.com/gpumem": str(mib)} if mib else {}
        return {"name": name, "resources": {"requests": amounts, "limits": amounts}}

    first = [container("download"), container("check", 1, 2000)]
    rest = [container("proxy"), container("serve", 1, 2000), container("train", 1)]
    api.add(hami_node("n1"), pod("a", initContainers=first, containers=rest))
    async with Running(api) as running:
        await running.settle(1.0)
        texts = notes(api, "a")[TO_ALLOCATE].split(";")
        assert [text.partition(",")[2] for text in texts] == ["", PART, "", PART, WHOLE, ""]
        assert texts[1] == texts[3]
        assert texts[3][:8] != texts[4][:8]


async def test_pods_are_bound_one_by_one_and_not_delayed_on_other_nodes(api: SchedulerApi) -> None:
    api.add(hami_node("n1", 2), *[asks(f"h{i}", mib=100, nodeSelector={"h": "1"}) for i in range(3)])
    api.change(NODES, "n1", metadata={"labels": {"h": "1"}})
    api.add(
        node("n2", gpus=4), *[pod(f"p{i}", nodeSelector={"kubernetes.io/hostname": "n2"}) for i in range(3)]
    )
    async with Running(api, bind_concurrency=2, bind_concurrency_max=2) as running:
        for step in range(1, 4):
            await running.settle(1.0)
            assert [name for name in api.bound() if name.startswith("p")] == ["p0", "p1", "p2"]
            assert len([name for name in api.bound() if name.startswith("h")]) == step
            waiting = [f"h{i}" for i in range(3) if not api.node_of(f"h{i}")]
            told = [running.service.explain(f"default/pod:{name}") for name in waiting]
            assert {one and one.code for one in told} <= {Reason.AWAITING_NODE_LOCK}
            plug_in(api)
        assert not lock(api)


async def test_the_lock_of_another_schedulers_pod_is_awaited(api: SchedulerApi) -> None:
    api.add(hami_node("n1"), asks("theirs", scheduler="hami-scheduler"))
    async with Running(api) as running:
        set_lock(api, locked_by(running, ",default,theirs"))
        api.add(asks("ours", mib=100))
        await running.settle(5.0)
        assert api.node_of("ours") == ""
        told = running.service.explain("default/pod:ours")
        assert told is not None
        assert (told.code, told.blockers[0].detail) == (Reason.AWAITING_NODE_LOCK, "node n1, default/theirs")
        status = (api.object(PODS, "default/ours") or {})["status"]
        assert status["conditions"][0]["message"] == told.message
        assert status["nominatedNodeName"] == "n1"
        assert "FailedScheduling" not in running.reasons("ours")
        set_lock(api, None)
        await running.settle(1.0)
        assert api.node_of("ours") == "n1"
        assert running.service.explain("default/pod:ours") is None


async def test_a_lasting_lock_is_reported_and_expires(api: SchedulerApi) -> None:
    api.add(hami_node("n1"), asks("theirs", scheduler="hami-scheduler"))
    async with Running(api) as running:
        set_lock(api, locked_by(running, ",default,theirs"))
        api.add(asks("ours", mib=100))
        for _ in range(10):
            await running.settle(PATIENCE_SECONDS / 8)
        assert "FailedScheduling" in running.reasons("ours")
        assert api.node_of("ours") == ""
        for _ in range(40):
            await running.settle(EXPIRED_SECONDS / 40)
        assert api.node_of("ours") == "n1"


@pytest.mark.parametrize("owner", [",default,nobody", "", "nonsense"])
async def test_an_abandoned_lock_is_taken(api: SchedulerApi, owner: str) -> None:
    api.add(hami_node("n1"))
    async with Running(api) as running:
        ago = 0.0 if owner.startswith(",") else EXPIRED_SECONDS + 1
        set_lock(api, owner if owner == "nonsense" else locked_by(running, owner, ago))
        api.add(asks("ours", mib=100))
        await running.settle(1.0)
        assert api.node_of("ours") == "n1"
        assert lock(api).endswith(",default,ours")


async def test_a_lock_is_released_if_the_bind_fails(api: SchedulerApi) -> None:
    api.add(hami_node("n1"))
    refused = [errors.forbidden(PODS, "a", "no")]
    api.refuse_bind = lambda *_: refused.pop() if refused else None
    async with Running(api) as running:
        api.add(asks("a", mib=100))
        await running.settle(0.5)
        assert not lock(api)
        await running.settle(30.0)
        assert api.node_of("a") == "n1"


async def test_missing_rights_to_lock_are_reported_and_nothing_is_bound(api: SchedulerApi) -> None:
    api.add(hami_node("n1"))
    patch = api.patch

    async def refuse(resource: Any, *args: Any, **options: Any) -> Any:
        if resource is NODES:
            raise errors.forbidden(NODES, "n1", 'User "w" cannot patch resource "nodes"')
        return await patch(resource, *args, **options)

    api.patch = refuse  # type: ignore[method-assign]
    async with Running(api) as running:
        api.add(asks("a", mib=100), pod("plain", requests={"cpu": "1"}))
        await running.settle(1.0)
        assert api.bound() == ["plain"]
        assert any(
            "its lock cannot be taken" in text for name, _, text in running.recorder.said if name == "a"
        )


async def test_a_device_has_at_most_as_many_pods_as_slots(api: SchedulerApi) -> None:
    """Twice three, though its memory would do for many more.

    One of the pods is HAMi's own.
    """
    words = {"hami.io/vgpu-node": "n1", ALLOCATED: "GPU-n1-1,NVIDIA,100,0:;"}
    api.add(hami_node("n1", cards=2, slots=3))
    api.add(asks("theirs", mib=100, scheduler="hami-scheduler", node="n1", annotations=words))
    api.add(*[asks(f"a{i}", mib=100) for i in range(7)])
    async with Running(api) as running:
        for _ in range(7):
            await running.settle(0.5)
            if lock(api):
                plug_in(api)
        ours = [name for name in api.bound() if name != "theirs"]
        assert len(ours) == 5
        used = [notes(api, name)[ALLOCATED].partition(",")[0] for name in api.bound()]
        assert sorted(used) == ["GPU-n1-0"] * 3 + ["GPU-n1-1"] * 3
        waits = min({f"a{i}" for i in range(7)} - set(ours))
        message = api.conditions(PODS, f"default/{waits}")["PodScheduled"]["message"]
        assert "every GPU has as many containers as its device plugin serves" in message


async def test_devices_in_mig_mode_are_left_to_hami(api: SchedulerApi) -> None:
    api.add(hami_node("n1", mode="mig"), asks("a", mib=100), asks("b"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == []


async def test_deleted_nodes_leave_no_state(api: SchedulerApi) -> None:
    api.add(hami_node("stays", cards=0))
    async with Running(api) as running:
        for i in range(5):
            api.add(hami_node(f"h{i}"), asks(f"p{i}"))
            await running.settle(1.0)
            assert api.node_of(f"p{i}") == f"h{i}"
            api.remove(PODS, f"default/p{i}")
            api.remove(NODES, f"h{i}")
            await running.settle(1.0)
        locks = running.service.components.node_locks._hami
        assert isinstance(locks, HamiLocks)
        assert len(locks._queues) <= 2

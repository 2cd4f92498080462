"""Scheduling end to end: the service over HTTP, against the embedded server and a real kube-apiserver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator

import pytest
from clusters import Cluster
from scheduling_over_http import Json, Scene, eventually

from windlass.api.errors import StatusError
from windlass.api.resources import EVENTS, PODS, QUEUES


@pytest.fixture
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    made = Scene(cluster, cluster.new_namespace("sched"))
    await made.make_queue()
    yield made
    await made.close()


async def test_a_gang_is_bound_and_shown(scene: Scene) -> None:
    await scene.node("a", 2)
    await scene.node("b", 2)
    await scene.start()
    await scene.gang("train", 4)

    async def all_bound() -> bool:
        return len(await scene.bound()) == 4

    await eventually(all_bound, "four pods bound")
    pods = await scene.pods()
    slots = {
        (o["spec"]["nodeName"], o["metadata"]["annotations"]["windlass.dev/devices"]) for o in pods.values()
    }
    assert len(slots) == 4
    assert {index for _, index in slots} == {"0", "1"}
    for obj in pods.values():
        scheduled = {c["type"]: c["status"] for c in obj["status"]["conditions"]}
        assert scheduled["PodScheduled"] == "True"

    async def shown() -> bool:
        return await scene.group_phase("train") == "Running"

    await eventually(shown, "phase Running")
    status = (await scene.group("train"))["status"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["Scheduled"] == "True"

    async def event() -> bool:
        found = await scene.client.list(EVENTS, scene.namespace, fields="reason=Scheduled")
        messages = {o["message"] for o in found.items}
        node = pods["train-0"]["spec"]["nodeName"]
        return f"Successfully assigned {scene.namespace}/train-0 to {node}" in messages

    await eventually(event, "a Scheduled event")

    async def accounted() -> bool:
        queue = await scene.client.get(QUEUES, scene.queue)
        return (queue.get("status") or {}).get("allocated", {}).get("nvidia.com/gpu") == "4"

    await eventually(accounted, "the queue's allocated GPUs")
    for name in pods:
        await scene.phase(name, "Succeeded")

    async def completed() -> bool:
        return await scene.group_phase("train") == "Completed"

    await eventually(completed, "phase Completed")


async def test_a_gang_that_does_not_fit_waits_with_its_true_reason_and_then_runs(scene: Scene) -> None:
    await scene.node("a", 4)
    await scene.start()
    await scene.gang("first", 3)
    await eventually(lambda: scene.bound(), "the first gang")
    await scene.gang("second", 2)

    async def told() -> Json | None:
        annotations = (await scene.group("second"))["metadata"].get("annotations") or {}
        found = json.loads(annotations.get("windlass.dev/explanation", "{}"))
        # before both of its pods were made it waited for them
        return found if found.get("code") == "InsufficientResources" else None

    record = await eventually(told, "an explanation")
    assert record["position"] == 1
    assert record["waitingHelps"] == "yes"
    assert f"{scene.namespace}/first" in record["holders"]

    async def unschedulable() -> Json | None:
        status = (await scene.group("second")).get("status") or {}
        found = [c for c in status.get("conditions") or () if c["type"] == "Unschedulable"]
        return found[0] if found and found[0]["message"] == record["message"] else None

    condition = await eventually(unschedulable, "its condition")
    assert condition["status"] == "True"
    assert await scene.group_phase("second") == "Inqueue"
    assert sorted(await scene.bound()) == ["first-0", "first-1", "first-2"]  # not one GPU is held by it

    async def pod_says() -> bool:
        waiting = (await scene.pods())["second-0"]["status"].get("conditions") or []
        return any(c["type"] == "PodScheduled" and c["reason"] == "Unschedulable" for c in waiting)

    await eventually(pod_says, "PodScheduled=False on a waiting pod")

    await scene.phase("first-0", "Succeeded")

    async def runs() -> bool:
        return {"second-0", "second-1"} <= set(await scene.bound())

    await eventually(runs, "the second gang")

    async def forgotten() -> bool:
        found = await scene.group("second")
        return "windlass.dev/explanation" not in (found["metadata"].get("annotations") or {})

    await eventually(forgotten, "the explanation gone")
    await scene.check()


async def test_a_queue_limit_is_the_reason_that_is_told(cluster: Cluster) -> None:
    scene = Scene(cluster, cluster.new_namespace("sched"))
    await scene.make_queue(capability={"nvidia.com/gpu": "2"})
    try:
        await scene.node("a", 8)
        await scene.start()
        await scene.gang("one", 2)

        async def one_runs() -> bool:
            return sorted(await scene.bound()) == ["one-0", "one-1"]

        await eventually(
            one_runs, "the first gang bound"
        )  # else equal ages would leave the order to the uids
        await scene.gang("two", 1)
        await scene.gang("never", 3)

        async def reasons() -> dict[str, str]:
            found = {}
            for name in ("two", "never"):
                annotations = (await scene.group(name))["metadata"].get("annotations") or {}
                if "windlass.dev/explanation" in annotations:
                    found[name] = json.loads(annotations["windlass.dev/explanation"])["code"]
            return found

        async def both() -> bool:
            return await reasons() == {"two": "WaitingForQuota", "never": "ExceedsQueueLimit"}

        await eventually(both, "both reasons")
        assert sorted(await scene.bound()) == ["one-0", "one-1"]
    finally:
        await scene.close()


async def test_restart_in_the_middle(scene: Scene) -> None:
    """Killed again and again while gangs are being bound: in the end every gang is whole, no device double."""
    for i in range(4):
        await scene.node(f"n{i}", 4)
    for i in range(4):
        await scene.gang(f"g{i}", 4)
    for pause in (0.0, 0.002, 0.005, 0.01, 0.02):
        await scene.start(bind_concurrency=2, bind_concurrency_max=2)
        await asyncio.sleep(pause)
        await scene.kill()
        await scene.check()
    await scene.start()

    async def all_bound() -> bool:
        return len(await scene.bound()) == 16

    await eventually(all_bound, "sixteen pods bound")
    await scene.check()
    for i in range(4):

        async def running(name: str = f"g{i}") -> bool:
            return await scene.group_phase(name) == "Running"

        await eventually(running, f"g{i} Running")


async def test_a_pod_bound_by_somebody_else_is_counted_and_left_alone(scene: Scene) -> None:
    node = await scene.node("a", 2)
    other = await scene.node("b", 1)
    await scene.start()
    await scene.pod("theirs", gpus=2, scheduler="somebody-else")
    uid = (await scene.pods())["theirs"]["metadata"]["uid"]
    await scene.client.bind(scene.namespace, "theirs", node, uid=uid)
    await scene.gang("ours", 1)
    await eventually(lambda: scene.bound(), "theirs")

    async def bound() -> bool:
        return (await scene.bound()).get("ours-0") == other

    await eventually(bound, "ours on the other node")
    await scene.gang("more", 1)
    await asyncio.sleep(1.0)
    assert "more-0" not in await scene.bound()
    assert (await scene.bound())["theirs"] == node


async def test_pods_taken_from_under_the_scheduler_are_conflicts_and_no_harm(scene: Scene) -> None:
    """A second binder races for every pod: each ends on one node, and the scheduler goes on working."""
    nodes = [await scene.node(f"n{i}", 13) for i in range(2)]
    await scene.start()
    rng = random.Random(3)

    async def race(name: str) -> None:
        uid = (await scene.client.get(PODS, name, scene.namespace))["metadata"]["uid"]
        with contextlib.suppress(StatusError):
            await scene.client.bind(scene.namespace, name, rng.choice(nodes), uid=uid)

    async with asyncio.TaskGroup() as tasks:
        for i in range(12):
            await scene.pod(f"p{i}")
            tasks.create_task(race(f"p{i}"))

    async def settled() -> bool:
        found = await scene.pods()
        return all(o["spec"].get("nodeName") for o in found.values())

    await eventually(settled, "every pod bound or gone")
    assert set((await scene.bound()).values()) <= set(nodes)
    await scene.gang("after", 2)

    async def goes_on() -> bool:
        return {"after-0", "after-1"} <= set(await scene.bound())

    await eventually(goes_on, "a gang after the race")


async def test_two_schedulers_share_the_work_without_over_commitment(scene: Scene) -> None:
    for i in range(3):
        await scene.node(f"n{i}", 2)
    await scene.start()
    await scene.start()
    for i in range(10):
        await scene.pod(f"p{i}")

    async def settled() -> bool:
        found = await scene.pods()
        leaving = [o for o in found.values() if o["metadata"].get("deletionTimestamp")]
        bound = [o for o in found.values() if o["spec"].get("nodeName")]
        return not leaving and len(bound) == min(6, len(found))

    async def stable() -> bool:
        return await settled() and not await asyncio.sleep(1.0) and await settled()

    await eventually(stable, "six pods bound, none too many")
    await scene.check()

"""Another scheduler on the same nodes.

unsent binds are recalled, and pods that came second are evicted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubeobjects import node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import PODS
from windlass.kits.clock import FakeClock
from windlass.scheduler.commit.binder import MAX_CONTESTED
from windlass.scheduler.commit.conflict_detector import ACTIVE_SECONDS


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def conflicts(running: Running, kind: str) -> float:
    return running.service.metrics.conflicts.labels(kind)._value.get()


def hold(api: SchedulerApi) -> asyncio.Event:
    """Hold bindings back until the event is set."""
    go = asyncio.Event()
    bind = api.bind

    async def slow(*args: Any, **options: Any) -> None:
        await go.wait()
        await bind(*args, **options)

    api.bind = slow  # type: ignore[method-assign]
    return go


async def test_an_objection_does_not_apply_to_a_later_pod_of_the_same_name(api: SchedulerApi) -> None:
    """A bind that is in progress is not asked about again.

    Its objection must not recall the bind of a recreated pod.
    """
    api.add(node("n1", gpus=3))
    async with Running(api, bind_concurrency=2, bind_concurrency_max=2) as running:
        go = {f"p{i}": asyncio.Event() for i in range(3)}
        bind = api.bind

        async def slow(namespace: str, name: str, *args: Any, **options: Any) -> None:
            await go[name].wait()
            await bind(namespace, name, *args, **options)

        api.bind = slow  # type: ignore[method-assign]
        api.add(*[pod(f"p{i}") for i in range(3)])
        await running.settle(0.2)
        api.add(pod("theirs", scheduler="other", node="n1", requests={"nvidia.com/gpu": "3"}))
        go["p0"].set()
        await running.settle(0.2)
        assert conflicts(running, "recalled") == 1.0  # p2; p1 is on its way still
        go["p1"].set()
        go["p2"].set()
        await running.settle(0.2)
        for name in go:
            api.remove(PODS, f"default/{name}")
        await running.settle(15.0)
        api.add(node("n2", gpus=3), *[pod(name, uid=f"anew-{name}") for name in go])
        await running.settle(2.0)
        assert conflicts(running, "recalled") == 1.0
        assert api.bound() == ["p0", "p1", "p2", "theirs"]


async def test_unsent_binds_are_recalled(api: SchedulerApi) -> None:
    """Three binds are decided for a node and one is in progress.

    Then another scheduler takes all GPUs but one.
    """
    api.add(node("n1", gpus=4))
    async with Running(api, bind_concurrency=1, bind_concurrency_max=1) as running:
        go = hold(api)
        api.add(*[pod(f"p{i}") for i in range(3)])
        await running.settle(0.2)
        assert len(running.service.model.binds.assumed) == 3
        api.add(pod("theirs", scheduler="other", node="n1", requests={"nvidia.com/gpu": "3"}))
        go.set()
        await running.settle(2.0)
        assert conflicts(running, "recalled") == 2.0
        assert conflicts(running, "overcommitted") == 0.0
        assert len(api.bindings) == 1
        assert not any(o["metadata"].get("deletionTimestamp") for o in api.objects(PODS))
        api.add(node("n2", gpus=2))
        await running.settle(10.0)
        assert sorted(o["spec"].get("nodeName") for o in api.objects(PODS)) == ["n1", "n1", "n2", "n2"]


async def test_a_bind_is_recalled_when_another_scheduler_takes_its_device(api: SchedulerApi) -> None:
    """The node has capacity, but the device has not. The pod gets another device."""
    api.add(node("n1", gpus=4))
    async with Running(api, bind_concurrency=1, bind_concurrency_max=1) as running:
        go = hold(api)
        api.add(pod("first"), pod("second"))
        await running.settle(0.2)
        card = str(running.service.model.binds.assumed["default/second"].devices[0])
        api.add(pod("theirs", scheduler="other", node="n1", annotations={"windlass.dev/devices": card}))
        go.set()
        await running.settle(2.0)
        assert conflicts(running, "recalled") == 1.0
        assert conflicts(running, "overcommitted") == 0.0
        await running.settle(10.0)
        held = [o["metadata"]["annotations"]["windlass.dev/devices"] for o in api.objects(PODS)]
        assert sorted(running_names(api)) == ["first", "second", "theirs"]
        assert len(set(held)) == 3


async def test_an_in_place_resize_recalls_unsent_binds_and_evicts_no_pod(
    api: SchedulerApi,
) -> None:
    """The kubelet decides about binds that are in progress."""
    api.add(node("n1", gpus=0, cpu="8"))
    small, large = {"cpu": "1"}, {"cpu": "5"}
    theirs = pod("theirs", scheduler="other", node="n1", requests=small)
    api.add(theirs)
    async with Running(api, bind_concurrency=1, bind_concurrency_max=1) as running:
        go = hold(api)
        api.add(*[pod(name, requests={"cpu": "3"}) for name in ("sent", "waits")])
        await running.settle(0.2)
        assert len(running.service.model.binds.assumed) == 2
        container = {**theirs["spec"]["containers"][0], "resources": {"requests": large}}
        api.change(PODS, "default/theirs", spec={"containers": [container]})
        go.set()
        await running.settle(2.0)
        assert sorted(running_names(api)) == ["sent", "theirs"]
        assert conflicts(running, "recalled") == 1.0
        assert conflicts(running, "overcommitted") == 0.0
        assert not api.conditions(PODS, "default/sent").get("DisruptionTarget")


async def test_a_pod_bound_by_another_scheduler_is_counted(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), node("n2", gpus=1, unschedulable=True), pod("b"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.node_of("b") == "n1"
        api.end("b")
        go = hold(api)
        api.add(pod("a"))
        await running.settle(0.1)
        assert "default/a" in running.service.model.binds.assumed
        api.lagging = True
        api._bind("default/a", "n2", "uid-default-a", None)
        go.set()
        await running.settle(0.5)
        assert conflicts(running, "elsewhere") == 1.0
        assert not running.service.model.binds.assumed
        api.lagging = False
        api.catch_up()
        await running.settle(0.5)
        assert not api.conditions(PODS, "default/a").get("DisruptionTarget")


async def test_a_bind_of_a_deleted_pod_is_counted(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1))
    async with Running(api) as running:
        go = hold(api)
        api.add(pod("a"))
        await running.settle(0.1)
        api.lagging = True
        api.remove(PODS, "default/a")
        go.set()
        await running.settle(0.5)
        assert conflicts(running, "gone") == 1.0


async def test_a_pod_bound_to_an_overcommitted_node_is_evicted(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    async with Running(api) as running:
        go = hold(api)
        api.add(pod("ours"))
        await running.settle(0.1)
        api.add(pod("theirs", scheduler="other", node="n1", requests={"nvidia.com/gpu": "2"}))
        go.set()
        await running.settle(1.0)
        condition = api.conditions(PODS, "default/ours")["DisruptionTarget"]
        assert condition["reason"] == "NodeOvercommitted"
        assert conflicts(running, "overcommitted") == 1.0
        assert "NodeOvercommitted" in running.reasons("ours")


async def test_another_scheduler_binds_the_pod_to_another_device_of_the_node(api: SchedulerApi) -> None:
    """Both schedulers chose the node for ``a``.

    The other's device for it was chosen here for ``b``.
    """
    api.add(node("n1", gpus=2))
    async with Running(api) as running:
        go = hold(api)
        api.add(pod("a"), pod("b"))
        await running.settle(0.1)
        assumed = running.service.model.binds.assumed
        cards = {name: str(assumed[f"default/{name}"].devices[0]) for name in "ab"}
        assert sorted(cards.values()) == ["0", "1"]
        api._bind("default/a", "n1", "uid-default-a", {"windlass.dev/devices": cards["b"]})
        go.set()
        await running.settle(1.0)
        condition = api.conditions(PODS, "default/b")["DisruptionTarget"]
        assert condition["reason"] == "NodeOvercommitted"
        assert f"device {cards['b']} " in condition["message"]
        assert not api.conditions(PODS, "default/a").get("DisruptionTarget")


async def test_only_a_few_binds_are_in_progress_while_another_scheduler_binds(api: SchedulerApi) -> None:
    """The sooner a bind arrives, the less can come in between."""
    api.add(node("n1", gpus=64))
    api.add(
        pod("old", scheduler="other", node="n1", requests={"cpu": "1"})
    )  # there before: no other scheduler is active
    async with Running(api) as running:
        go = hold(api)
        queue = running.service.components.bind_queue
        api.add(*[pod(f"a{i}") for i in range(8)])
        await running.settle(0.2)
        assert queue.in_progress == 8
        go.set()
        await running.settle(1.0)
        go.clear()
        api.add(pod("theirs", scheduler="other", node="n1", requests={"cpu": "1"}))
        await running.settle(0.2)
        api.add(*[pod(f"b{i}") for i in range(8)])
        await running.settle(0.2)
        assert queue.in_progress == MAX_CONTESTED
        go.set()
        await running.settle(ACTIVE_SECONDS)
        go.clear()
        api.add(*[pod(f"c{i}") for i in range(8)])
        await running.settle(0.2)
        assert queue.in_progress == 8
        go.set()
        await running.settle(1.0)
        assert sum(name.startswith(("a", "b", "c")) for name in running_names(api)) == 24


def running_names(api: SchedulerApi) -> list[str]:
    return [o["metadata"]["name"] for o in api.objects(PODS) if o["spec"].get("nodeName")]

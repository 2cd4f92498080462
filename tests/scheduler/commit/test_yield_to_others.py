"""Pods that another scheduler is about to place have precedence where both do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.errors import StatusError
from windlass.api.resources import PODS
from windlass.kits.clock import FakeClock


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def gpus(count: int) -> dict[str, Any]:
    return {"requests": {"nvidia.com/gpu": str(count)}}


def theirs(name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    return pod(name, scheduler="other", **gpus(count), **fields)


async def test_a_new_foreign_pod_has_precedence_until_it_is_placed(
    api: SchedulerApi,
) -> None:
    api.add(node("n1", gpus=2))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("t"), pod("ours", **gpus(2)))
        await running.settle(1.0)
        assert api.bound() == []
        api.add(node("n2", gpus=1))
        api._bind("default/t", "n2", "uid-default-t", None)
        await running.settle(1.0)
        assert api.bound() == ["ours", "t"]


async def test_no_bind_waits_if_both_fit(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=3))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("t"), pod("ours", **gpus(2)))
        await running.settle(0.2)
        assert api.bound() == ["ours"]


async def test_a_foreign_pod_that_does_not_fit_delays_no_bind(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("t", 4), theirs("gated", 1, schedulingGates=[{"name": "x"}]), pod("ours", **gpus(2)))
        await running.settle(0.2)
        assert api.bound() == ["ours"]


@pytest.mark.parametrize(
    "spec", [{"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, {"unschedulable": True}]
)
async def test_a_foreign_pod_that_may_not_use_the_node_delays_no_bind(
    api: SchedulerApi, spec: dict[str, Any]
) -> None:
    api.add(node("n1", gpus=2, **spec))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("t"), pod("ours", **gpus(2), tolerations=[{"operator": "Exists"}]))
        await running.settle(0.2)
        assert api.bound() == ["ours"]


async def test_a_foreign_pod_that_is_not_placed_loses_precedence(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("t"), pod("ours", **gpus(2)))
        await running.settle(2.5)
        assert api.bound() == []
        await running.settle(2.0)
        assert api.bound() == ["ours"]
        # Its scheduler has never bound anything: nor does it rush for room that is freed.
        api.end("ours")
        api.add(pod("next", **gpus(2)))
        await running.settle(0.3)
        assert "next" in api.bound()


async def test_freed_capacity_is_left_to_an_active_scheduler_for_a_while(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), node("n2", gpus=1))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("early"))
        api._bind("default/early", "n2", "uid-default-early", None)
        api.add(pod("ours"))
        await running.settle(0.3)
        api.add(theirs("t"), pod("second"))
        await running.settle(10.0)  # both wait; its turn as a newcomer is over
        api.end("ours")
        await running.settle(1.0)
        assert not api.node_of("second")
        api._bind("default/t", "n1", "uid-default-t", None)
        await running.settle(3.0)
        assert not api.node_of("second")
        assert not api.conditions(PODS, "default/second").get("DisruptionTarget")
        api.end("t")
        await running.settle(10.0)
        assert api.node_of("second") == "n1"


async def test_binds_are_held_back_for_a_limited_time(api: SchedulerApi) -> None:
    """Foreign pods keep arriving and are not placed."""
    api.add(node("n1", gpus=2))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("t0"), pod("ours", **gpus(2)))
        for i in range(1, 12):
            await running.settle(1.0)
            api.add(theirs(f"t{i}"))
        assert api.bound() == []
        for i in range(12, 24):
            await running.settle(1.0)
            api.add(theirs(f"t{i}"))
        assert api.bound() == ["ours"]


async def test_a_gang_that_was_held_back_is_recalled_as_a_whole(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), node("n2", gpus=1), group("g", 2))
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("t"), *[pod(f"g-{i}", group="g") for i in range(2)])
        await running.settle(0.5)
        api._bind("default/t", "n1", "uid-default-t", None)
        await running.settle(20.0)
        assert api.bound() == ["t"]
        assert api.bindings == [("default/t", "n1")]
        assert running.service.metrics.conflicts.labels("recalled")._value.get() == 2.0
        api.add(node("n3", gpus=1))
        await running.settle(10.0)
        assert api.bound() == ["g-0", "g-1", "t"]


async def test_the_server_is_asked_before_a_bind_if_foreign_pods_wait(api: SchedulerApi) -> None:
    """Their bind has not been seen yet, so the own bind is not sent."""
    api.add(node("n1", gpus=2))
    async with Running(api, yield_seconds=3.0) as running:
        api.add(theirs("t", 2), pod("ours", **gpus(2)))
        await running.settle(0.5)
        api.lagging = True
        api._bind("default/t", "n1", "uid-default-t", None)
        await running.settle(5.0)  # its turn is over, by what is known
        assert api.bound() == ["t"]
        assert running.service.metrics.conflicts.labels("recalled")._value.get() >= 1.0
        assert not api.conditions(PODS, "default/ours").get("DisruptionTarget")


async def test_no_bind_is_sent_while_the_pods_of_the_node_are_unknown(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.add(node("n1", gpus=2))
    async with Running(api, yield_seconds=3.0) as running:
        api.add(theirs("t", 2), pod("ours", **gpus(2)))
        await running.settle(0.5)
        api.lagging = True
        api._bind("default/t", "n1", "uid-default-t", None)
        ask = api.list_page
        asked = 0

        async def refuse(*_: Any, **__: Any) -> Any:
            nonlocal asked
            asked += 1
            raise StatusError({"code": 503, "message": "etcd has no leader"})

        monkeypatch.setattr(api, "list_page", refuse)
        await running.settle(20.0)
        assert asked >= 2
        assert api.bound() == ["t"]
        assert api.bindings == [("default/t", "n1")]
        monkeypatch.setattr(api, "list_page", ask)
        api.lagging = False
        api.catch_up()
        api.add(node("n2", gpus=2))
        await running.settle(20.0)
        assert api.bound() == ["ours", "t"]


async def test_binds_are_sent_a_few_at_a_time_once_another_scheduler_has_pods(api: SchedulerApi) -> None:
    api.add(*[node(f"n{i}", gpus=8) for i in range(8)], pod("old", scheduler="other", node="n0", **gpus(1)))
    async with Running(api) as running:
        unrivaled = running.service.components.checks.is_unrivaled
        assert unrivaled(api.clock.monotonic())  # pods that existed before do not count
        api.add(theirs("t"))
        assert not unrivaled(api.clock.monotonic())
        await running.settle(12.0)
        assert unrivaled(api.clock.monotonic())
        api._bind("default/t", "n1", "uid-default-t", None)
        assert not unrivaled(api.clock.monotonic())


async def test_placed_foreign_pods_leave_no_state(api: SchedulerApi) -> None:
    """Scheduler names are arbitrary: a thousand of them must not stay for ever."""
    async with Running(api, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(*[pod(f"t{i}", scheduler=f"other-{i}", **gpus(1)) for i in range(20)])
        await running.settle(0.2)
        yield_to_others = running.service.components.yield_to_others
        assert len(yield_to_others._shapes) == 20
        for i in range(20):
            api.remove(PODS, f"default/t{i}")
        await running.settle(0.2)
        assert (yield_to_others._shapes, yield_to_others.idle) == ({}, True)

"""Backpressure.

writes that may wait are deferred until binds are done, but not for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import PODS, QUEUES
from windlass.kits.clock import FakeClock
from windlass.scheduler.backpressure import MIN_BUSY, WINDOW_SECONDS, Backpressure
from windlass.scheduler.status.pending_reasons import GROWING_SECONDS
from windlass.scheduler.status.status_writer import DEFERRED_SECONDS


async def test_there_is_pressure_while_many_pods_arrive_and_until_a_lull(fake_clock: FakeClock) -> None:
    backpressure = Backpressure(fake_clock, lambda: False)
    for _ in range(MIN_BUSY - 1):
        backpressure.count()
    assert not backpressure()
    backpressure.count()
    assert backpressure()
    await fake_clock.advance(WINDOW_SECONDS)
    assert backpressure()  # so many in the window before
    await fake_clock.advance(WINDOW_SECONDS)
    assert not backpressure()


async def test_few_pods_make_no_pressure(fake_clock: FakeClock) -> None:
    backpressure = Backpressure(fake_clock, lambda: False)
    for _ in range(100):
        backpressure.count()
        await fake_clock.advance(2 * WINDOW_SECONDS / MIN_BUSY)
        assert not backpressure()


async def test_waiting_binds_make_pressure_until_the_end(fake_clock: FakeClock) -> None:
    pressed = [True]
    backpressure = Backpressure(fake_clock, lambda: pressed[0])
    assert backpressure()
    pressed[0] = False
    assert not backpressure()
    pressed[0] = True
    backpressure.end()
    assert not backpressure()


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=4000, pods=4000, cpu="4k"))
    return made


def gang(name: str, size: int, **fields: Any) -> list[dict[str, Any]]:
    return [group(name, size), *[pod(f"{name}-{i}", group=name, **fields) for i in range(size)]]


async def add_gangs(api: SchedulerApi, running: Running, seconds: float) -> list[str]:
    """Add a gang of eight every fifth of a second. Return their names."""
    made = []
    for _ in range(round(seconds / 0.2)):
        made.append(f"crowd-{round(api.clock.monotonic() * 10)}")
        api.add(*gang(made[-1], 8))
        await running.settle(0.2)
    return made


def figures(api: SchedulerApi) -> str:
    return (
        ((api.object(QUEUES, "default") or {}).get("status") or {})
        .get("allocated", {})
        .get("nvidia.com/gpu", "")
    )


async def test_under_pressure_only_binds_and_reasons_are_written(api: SchedulerApi) -> None:
    async with Running(api) as running:
        first = await add_gangs(api, running, 1.0)
        api.add(*gang("late", 2, requests={"nvidia.com/gpu": "5000"}))
        more = await add_gangs(api, running, 3.0)
        told = [name for name in (*first, *more) if api.phase(name) == "Running"]
        assert len(api.bound()) == 8 * len((*first, *more))
        assert told == []
        assert figures(api) == ""
        assert not [reason for _, reason, _ in running.recorder.said if reason == "Scheduled"]
        # why something waits is told as ever
        assert api.conditions(PODS, "default/late-0")["PodScheduled"]["status"] == "False"
        await running.settle(2 * WINDOW_SECONDS + 1.0)
        assert {api.phase(name) for name in (*first, *more)} == {"Running"}
        assert figures(api) == str(len(api.bound()))
        assert (
            sorted(name for name, reason, _ in running.recorder.said if reason == "Scheduled") == api.bound()
        )


async def test_under_pressure_a_gang_has_time_to_get_its_pods(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await add_gangs(api, running, 1.0)
        api.add(group("slow", 3), pod("slow-0", group="slow"))
        await add_gangs(api, running, 1.4)
        api.add(pod("slow-1", group="slow"))
        await add_gangs(api, running, 1.4)
        assert "PodScheduled" not in api.conditions(PODS, "default/slow-0")
        api.add(pod("slow-2", group="slow"))
        await add_gangs(api, running, 0.4)
        assert {"slow-0", "slow-1", "slow-2"} <= set(api.bound())
        assert not running.reasons("slow-0")
        api.add(group("short", 3), pod("short-0", group="short"))
        await add_gangs(api, running, GROWING_SECONDS + 1.0)
        assert api.conditions(PODS, "default/short-0")["PodScheduled"]["reason"] == "SchedulingGated"


async def test_no_write_is_deferred_beyond_the_maximum(api: SchedulerApi) -> None:
    async with Running(api) as running:
        made = await add_gangs(api, running, DEFERRED_SECONDS - 1.0)
        assert {api.phase(name) for name in made} != {"Running"}
        assert api.phase(made[0]) != "Running"
        await add_gangs(api, running, 2.5)  # it goes on
        assert api.phase(made[0]) == "Running"
        assert figures(api) != ""


async def test_deferred_writes_are_done_before_the_process_stops(api: SchedulerApi) -> None:
    async with Running(api) as running:
        made = await add_gangs(api, running, 2.0)
        assert api.phase(made[0]) != "Running"
        ending = asyncio.create_task(running.service.drain(5.0))
        await running.settle(1.5)
        assert ending.done()
        assert api.phase(made[0]) == "Running"
        assert figures(api) != ""
        assert len(running.recorder.said) == 8 * len(made)


async def test_outdated_explanations_of_pods_are_removed_after_the_pressure(api: SchedulerApi) -> None:
    api.add(pod("alone", requests={"cpu": "1"}, nodeSelector={"late": "yes"}))
    async with Running(api) as running:
        await running.settle(1.0)
        assert (
            "windlass.dev/explanation" in (api.object(PODS, "default/alone") or {})["metadata"]["annotations"]
        )
        await add_gangs(api, running, 1.0)
        api.add(node("n3", gpus=0, labels={"late": "yes"}))
        await add_gangs(api, running, 1.0)
        assert "alone" in api.bound()
        assert (
            "windlass.dev/explanation" in (api.object(PODS, "default/alone") or {})["metadata"]["annotations"]
        )
        await running.settle(2.5)
        there = (api.object(PODS, "default/alone") or {})["metadata"]["annotations"]
        assert "windlass.dev/explanation" not in there


async def test_under_pressure_there_are_fewer_cycles(api: SchedulerApi) -> None:
    async with Running(api) as running:

        async def cycles() -> int:
            before = running.service.last_decision.cycle
            for i in range(MIN_BUSY - 4):
                api.add(pod(f"one-{before}-{i}"))
                await running.settle(0.02)
            return running.service.last_decision.cycle - before

        calm = await cycles()
        await add_gangs(api, running, 1.0)
        assert await cycles() < calm / 2
        await running.settle()
        assert len(api.bound()) == len(api.objects(PODS))

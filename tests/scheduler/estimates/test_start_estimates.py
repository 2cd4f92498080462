"""Estimated starts of pending groups by simulation, and their accuracy."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from math import isnan
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from prometheus_client import CollectorRegistry
from scheduler_api import Running, SchedulerApi

from windlass.api import annotations as names
from windlass.api.resources import POD_GROUPS, PODS
from windlass.engine.decision import Bind
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.scheduler.estimates import start_estimates
from windlass.scheduler.estimates.start_estimates import Stopped


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=4))
    return made


def inline(running: Running) -> Running:
    """Run without a thread, so that the clock may stand still."""
    running.service.components.estimates._run_in_thread = at_once
    return running


def job(api: SchedulerApi, name: str, gpus: int, seconds: int) -> None:
    made = group(name, 1)
    made["metadata"]["annotations"] = {"windlass.dev/run-estimate": f"{seconds}s"}
    made["metadata"]["creationTimestamp"] = rfc3339(api.clock.now())
    api.add(made, pod(f"{name}-0", group=name, requests={"nvidia.com/gpu": str(gpus)}))


def began(api: SchedulerApi, name: str) -> None:
    api.change(PODS, f"default/{name}-0", status={"phase": "Running", "startTime": rfc3339(api.clock.now())})


def written(api: SchedulerApi, name: str) -> dict[str, Any]:
    notes = (api.object(POD_GROUPS, f"default/{name}") or {})["metadata"].get("annotations", {})
    return json.loads(notes.get(names.EXPLANATION, "{}"))


def counted(registry: CollectorRegistry, word: str) -> float:
    found = registry.get_sample_value("windlass_scheduler_start_estimates_total", {"result": word})
    return found or 0.0


async def test_a_pending_group_gets_an_estimate_and_the_hit_is_counted(api: SchedulerApi) -> None:
    registry = CollectorRegistry()
    async with inline(Running(api, registry=registry, estimate_seconds=10.0, estimate_samples=3)) as running:
        job(api, "first", 4, 600)
        await running.settle(1)
        assert isnan(registry.get_sample_value("windlass_scheduler_start_estimate_hit_ratio") or 0.0)
        began(api, "first")
        job(api, "second", 4, 300)
        job(api, "third", 4, 60)
        await running.settle(20)
        told = written(api, "second")
        assert told["estimate_seconds"] == pytest.approx(590, abs=12)
        assert told["estimate_basis"] == "by 3 simulated courses"
        assert told["planned_nodes"] == {"n1": 1}, "F50: the node of most courses"
        low, high = told["estimate_band"]
        assert low < told["estimate_seconds"] < high
        assert told["estimate_at"] == pytest.approx(api.clock.now(), abs=12)
        third = running.service.explain("default/third")
        assert third is not None
        assert third.estimate_seconds == pytest.approx(590 + 300, abs=12)
        await running.settle(575)
        api.end("first-0")
        await running.settle(10)
        assert api.node_of("second-0") == "n1"
        assert counted(registry, "within") == 1
        assert registry.get_sample_value("windlass_scheduler_start_estimate_hit_ratio") == 1.0
        began(api, "second")
        api.end("second-0")
        await running.settle(10)
        assert api.node_of("third-0") == "n1"
        assert counted(registry, "early") == 1
        assert registry.get_sample_value("windlass_scheduler_start_estimate_hit_ratio") == 0.5


async def test_nothing_is_simulated_while_nothing_waits(api: SchedulerApi) -> None:
    played: list[int] = []

    async def noted(work: Callable[[], Any]) -> Any:
        played.append(1)
        return work()

    async with Running(api, estimate_seconds=5.0, estimate_samples=2) as running:
        running.service.components.estimates._run_in_thread = noted
        job(api, "first", 4, 600)
        await running.settle(30)
        assert not played
        job(api, "second", 4, 600)
        await running.settle(30)
        assert len(played) == 1, "nothing changes"


async def test_nothing_is_simulated_without_the_option(api: SchedulerApi) -> None:
    async with inline(Running(api)) as running:
        job(api, "first", 4, 600)
        job(api, "second", 4, 600)
        await running.settle(120)
        told = running.service.components.estimates._estimates
        assert not told


async def test_there_is_no_estimate_without_a_known_end(api: SchedulerApi) -> None:
    async with inline(Running(api, estimate_seconds=5.0, estimate_samples=2)) as running:
        api.add(group("endless", 1), pod("endless-0", group="endless", requests={"nvidia.com/gpu": "4"}))
        await running.settle(1)
        job(api, "second", 4, 60)
        await running.settle(20)
        assert "estimate_seconds" not in written(api, "second")


async def test_an_estimate_is_dropped_if_the_group_started_meanwhile(
    api: SchedulerApi,
) -> None:
    async with Running(api, estimate_seconds=5.0, estimate_samples=2) as running:
        found = running.service.components.estimates

        async def started_meanwhile(work: Callable[[], Any]) -> Any:
            courses = work()
            found.started([Bind("default/second-0", "u", "default/second", "n1")])
            return courses

        found._run_in_thread = started_meanwhile
        job(api, "first", 4, 600)
        job(api, "second", 4, 60)
        job(api, "third", 4, 60)
        await running.settle(8)
        assert set(found._estimates) == {"default/third"}


async def test_the_thread_is_a_thread_and_ends_with_the_service(api: SchedulerApi) -> None:
    before = threading.active_count()
    async with Running(api, estimate_seconds=1.0, estimate_samples=2) as running:
        job(api, "first", 4, 600)
        job(api, "second", 4, 600)
        await running.settle(2.0)
        async with asyncio.timeout(120):
            while (
                not running.service.components.estimates._estimates
            ):  # time stands still: only the thread goes on
                await asyncio.sleep(0.02)
    assert threading.active_count() <= before + 1, "the pool keeps its idle thread"


def test_the_thread_rests_nine_times_as_long_as_it_works(fake_clock: FakeClock) -> None:
    class Waits(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.rested = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            self.rested += timeout or 0.0
            return self.is_set()

    class Ticking:
        def __init__(self) -> None:
            self.time = 0.0

        def monotonic(self) -> float:
            self.time += 0.01
            return self.time

    stop, clock = Waits(), Ticking()
    pace = start_estimates._Throttle(clock, stop)  # type: ignore[arg-type]
    for _ in range(100):
        pace()
    assert stop.rested == pytest.approx(9 * 0.01 * 100)
    stop.set()
    with pytest.raises(Stopped):
        pace()

"""Positions that are shown are true within a second after the order of a queue has changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubeobjects import group, node, pod, priority_class, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS, PRIORITY_CLASSES
from windlass.kits.clock import FakeClock


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.put(PRIORITY_CLASSES, priority_class("aigc-low", 100))
    made.put(PRIORITY_CLASSES, priority_class("aigc-medium", 1000))
    made.put(PRIORITY_CLASSES, priority_class("urgent", 100_000))
    made.add(queue("root"), queue("default"), queue("other"), node("n1", gpus=2))
    return made


def add(api: SchedulerApi, name: str, priority: str = "aigc-low", gpus: int = 2) -> None:
    api.add(group(name, 1, priorityClassName=priority))
    api.add(pod(f"{name}-0", group=name, requests={"nvidia.com/gpu": gpus}))


def positions(api: SchedulerApi) -> dict[str, int]:
    found: dict[str, int] = {}
    for obj in api.objects(POD_GROUPS):
        text = (obj["metadata"].get("annotations") or {}).get("windlass.dev/explanation")
        record: dict[str, Any] = json.loads(text) if text else {}
        if record.get("position"):
            found[obj["metadata"]["name"]] = record["position"]
    return found


async def test_positions_follow_a_priority_and_a_queue_within_a_second(api: SchedulerApi) -> None:
    """F48: a raised class moves a waiting group up, and the others down."""
    async with Running(api) as running:
        add(api, "holder", "urgent")
        await running.settle(1)
        for name in ("a", "b", "c"):
            add(api, name)
            await running.settle(1.5)
        assert positions(api) == {"a": 1, "b": 2, "c": 3}
        api.change(POD_GROUPS, "default/c", spec={"priorityClassName": "aigc-medium"})
        await running.settle(0.9)
        assert positions(api) == {"c": 1, "a": 2, "b": 3}
        api.change(POD_GROUPS, "default/a", spec={"queue": "other"})
        await running.settle(0.9)
        assert positions(api) == {"c": 1, "a": 1, "b": 2}


async def test_positions_follow_arrivals_and_departures(api: SchedulerApi) -> None:
    async with Running(api) as running:
        add(api, "holder", "urgent")
        await running.settle(1)
        for name in ("a", "b"):
            add(api, name)
        await running.settle(2)
        add(api, "first", "aigc-medium")
        await running.settle(2)
        assert positions(api) == {"first": 1, "a": 2, "b": 3}
        api.remove(POD_GROUPS, "default/first")
        api.remove(PODS, "default/first-0")
        await running.settle(0.9)
        assert positions(api) == {"a": 1, "b": 2}

"""Explanations on PodGroups of another scheduler are removed, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS
from windlass.kits.clock import FakeClock

OURS, THEIRS = "2 of 2 pods wait: no card is free", "0/1 nodes are available: 1 Insufficient cpu."


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=1))
    return made


def told(name: str, message: str, explanation: str | None) -> dict[str, Any]:
    made = group(name, 1, phase="Inqueue")
    condition = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": message,
    }
    kept = {"type": "Normalized", "status": "True", "reason": "x", "message": OURS}
    made["status"]["conditions"] = [kept, condition]
    if explanation is not None:
        made["metadata"]["annotations"] = {"windlass.dev/explanation": explanation, "a": "b"}
    return made


def state(api: SchedulerApi, name: str) -> tuple[list[str], list[str]]:
    found = api.object(POD_GROUPS, f"default/{name}")
    assert found is not None
    kinds = [condition["type"] for condition in found["status"]["conditions"]]
    return kinds, sorted(found["metadata"].get("annotations", {}))


async def test_an_own_explanation_on_a_foreign_group_is_removed(api: SchedulerApi) -> None:
    record = json.dumps({"code": "DevicesFragmented", "message": OURS})
    api.add(told("stale", OURS, record), pod("stale-0", group="stale", scheduler="other"))
    api.add(told("theirs", THEIRS, record), pod("theirs-0", group="theirs", scheduler="other"))
    api.add(told("spoilt", OURS, "{"), pod("spoilt-0", group="spoilt", scheduler="other"))
    api.add(told("silent", OURS, None), pod("silent-0", group="silent", scheduler="other"))
    async with Running(api) as running:
        await running.settle(3.0)
        assert state(api, "stale") == (["Normalized"], ["a"])
        for name in ("theirs", "spoilt"):  # not provably ours
            assert state(api, name) == (["Normalized", "Unschedulable"], ["a"])
        assert state(api, "silent") == (["Normalized", "Unschedulable"], [])
        written = len(api.writes("podgroups"))
        await running.settle(10.0)
        assert len(api.writes("podgroups")) == written


async def test_an_own_group_keeps_its_explanation_until_it_is_foreign(api: SchedulerApi) -> None:
    api.add(group("g", 2), *[pod(f"g-{i}", group="g") for i in range(2)])
    async with Running(api) as running:
        await running.settle(10.0)
        kinds, notes = state(api, "g")
        assert "Unschedulable" in kinds
        assert notes == ["windlass.dev/explanation"]
        for i in range(2):
            api.put(PODS, pod(f"g-{i}", group="g", scheduler="other", uid=f"new-{i}"))
        await running.settle(10.0)
        kinds, notes = state(api, "g")
        assert "Unschedulable" not in kinds
        assert notes == []

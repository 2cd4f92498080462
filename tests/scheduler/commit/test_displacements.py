"""Users of both groups see an eviction: the group evicted, the one it was evicted for, and those spared."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import group, node, pod, priority_class, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS, PRIORITY_CLASSES
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.model.records import displacement
from windlass.model.records.displacement import EvictedFor, EvictedGroup, Evictions, SparedGroup, with_evicted

GPU = {"nvidia.com/gpu": 1}
UID = "0a1b2c3d-0000-4000-8000-000000000000"


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.put(PRIORITY_CLASSES, priority_class("aigc-high", 10_000))
    keep = priority_class("keep", 50)
    keep["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
    made.put(PRIORITY_CLASSES, keep)
    made.add(queue("root"), queue("default"), node("n1", gpus=4))
    return made


def run(api: SchedulerApi, name: str) -> None:
    status = {"phase": "Running", "startTime": rfc3339(api.clock.now())}
    api.change(PODS, f"default/{name}", status=status)


def member(api: SchedulerApi, name: str, gpus: int = 1, **spec: Any) -> None:
    """A Volcano Job's group of one pod, as its controller names it."""
    made = group(f"{name}-{UID}", 1, **spec)
    made["metadata"]["uid"] = f"{name}-uid"
    own = {"priorityClassName": spec["priorityClassName"]} if spec else {}
    priority = {"aigc-high": 10_000, "keep": 50}.get(spec.get("priorityClassName", ""), 0)
    api.add(
        made,
        pod(f"{name}-0", group=f"{name}-{UID}", requests={"nvidia.com/gpu": gpus}, priority=priority, **own),
    )


def records(api: SchedulerApi, name: str) -> tuple[EvictedFor | None, Evictions | None]:
    found = (api.object(POD_GROUPS, f"default/{name}-{UID}") or {})["metadata"].get("annotations") or {}
    return displacement.evicted_for(found), displacement.evictions_of(found)


async def test_both_groups_name_each_other_and_the_spared_ones(api: SchedulerApi) -> None:
    """F45, F61, D10: exactly as many pods as needed; the protected group is spared, with the rule."""
    async with Running(api) as running:
        for name in ("a", "b", "c"):
            member(api, name)
        member(api, "service", priorityClassName="keep")
        await running.settle(1)
        for name in ("a", "b", "c", "service"):
            run(api, f"{name}-0")
        await running.settle(5)
        member(api, "urgent", 2, priorityClassName="aigc-high")
        await running.settle(1)
        _, others = records(api, "urgent")
        assert others is not None
        evicted = {entry.group for entry in others.evicted}
        assert len(evicted) == 2
        assert evicted < {"default/a", "default/b", "default/c"}
        assert {entry.reason for entry in others.evicted} == {"its priority 0 is lower than 10000"}
        (left,) = {"default/a", "default/b", "default/c"} - evicted
        assert others.spared == (
            SparedGroup("default/service", "protected: volcano.sh/preemptable=false on PriorityClass keep"),
            SparedGroup(left, "the evicted pods were enough"),
        )
        for key in evicted:
            victim, _ = records(api, key.removeprefix("default/"))
            assert victim is not None
            assert (victim.group, victim.action, victim.count) == ("default/urgent", "preempt", 1)
            assert victim.reason == "its priority 0 is lower than 10000"
        said = {reason for _, reason, _ in running.recorder.said}
        assert {"Evicted", "EvictedOthers"} <= said


async def test_a_pod_without_a_group_names_those_evicted_for_it(api: SchedulerApi) -> None:
    """F61: the record is on the pod itself."""
    async with Running(api) as running:
        for name in ("a", "b", "c", "d"):
            api.add(pod(name, requests=GPU, priority=0))
        await running.settle(1)
        for name in ("a", "b", "c", "d"):
            run(api, name)
        await running.settle(5)
        api.add(pod("urgent", requests=GPU, priority=10_000, priorityClassName="aigc-high"))
        await running.settle(1)
        found = displacement.evictions_of(
            (api.object(PODS, "default/urgent") or {})["metadata"]["annotations"]
        )
        assert found is not None
        assert [(entry.pods, entry.action) for entry in found.evicted] == [(1, "preempt")]


def test_a_record_keeps_the_latest_groups_and_counts_the_others() -> None:
    groups = [EvictedGroup(f"default/{i}", "t", "preempt", 1, "") for i in range(12)]
    record = with_evicted(with_evicted(None, groups[:6], ()), groups[6:], ())
    assert [entry.group for entry in record.evicted[:2]] == ["default/6", "default/7"]
    assert (len(record.evicted), record.more) == (8, 4)
    again = with_evicted(record, [groups[0]], ())
    assert again.evicted[0].group == "default/0"
    assert displacement.evictions_of({"windlass.dev/evictions": "no json"}) is None

"""A gang is evicted as a whole, also if the scheduler that began dies between two
evictions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeobjects import group, node, pod, priority_class, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.annotations import EVICTION
from windlass.api.errors import failure
from windlass.api.resources import POD_GROUPS, PODS, PRIORITY_CLASSES
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.model.records import eviction_record
from windlass.model.records.eviction_record import EvictionRecord

SIZE = 4


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.put(PRIORITY_CLASSES, priority_class("high", 1000))
    made.add(queue("root"), queue("default"), node("n1", gpus=SIZE))
    return made


def gang(api: SchedulerApi, name: str, least: int, incarnation: int = 0, **spec: Any) -> None:
    if api.object(POD_GROUPS, f"default/{name}") is None:
        made = group(name, least, **spec)
        made["metadata"]["uid"] = f"{name}-uid"
        api.add(made)
    for at in range(SIZE):
        uid = f"{at}{incarnation}-{name}-and-more"
        api.add(pod(f"{name}-{at}", group=name, uid=uid, requests={"nvidia.com/gpu": 1}))


def living(api: SchedulerApi, name: str) -> list[str]:
    return sorted(
        o["metadata"]["name"]
        for o in api.objects(PODS)
        if o["metadata"]["name"].startswith(name) and not o["metadata"].get("deletionTimestamp")
    )


def written(api: SchedulerApi, name: str) -> EvictionRecord | None:
    found = (api.object(POD_GROUPS, f"default/{name}") or {})["metadata"].get("annotations") or {}
    return eviction_record.decode(found.get(EVICTION, ""))


async def half_gone(api: SchedulerApi, least: int = SIZE) -> None:
    """A gang runs, and a more urgent one arrives.

    The scheduler dies after two evictions.
    """
    api.refuse_eviction = lambda _, name: (
        failure(503, "Busy", "later") if name in ("low-2", "low-3") else None
    )
    async with Running(api) as running:
        gang(api, "low", least)
        await running.settle(1)
        for at in range(SIZE):
            now = rfc3339(api.clock.now())
            api.change(PODS, f"default/low-{at}", status={"phase": "Running", "startTime": now})
        await running.settle(5)
        gang(api, "urgent", SIZE, priorityClassName="high")
        await running.settle(0.5)
    assert living(api, "low") == ["low-2", "low-3"]
    api.refuse_eviction = lambda *_: None


async def test_the_victims_are_recorded_before_the_first_eviction(api: SchedulerApi) -> None:
    await half_gone(api)
    found = written(api, "low")
    assert found is not None
    assert (found.action, found.claimer, sorted(found.pods)) == (
        "preempt",
        "default/urgent",
        ["low-0", "low-1", "low-2", "low-3"],
    )
    first = min(api.log.index(("delete", "pods", f"default/low-{at}")) for at in (0, 1))
    groups = [write for write in api.log[:first] if write[1:] == ("podgroups", "default/low")]
    assert groups[-1] == ("patch", "podgroups", "default/low")


@pytest.mark.parametrize("stands_by", [False, True])
async def test_a_new_leader_evicts_the_rest_at_once(api: SchedulerApi, stands_by: bool) -> None:
    await half_gone(api)
    async with Running(api, stands_by=stands_by) as running:
        if stands_by:
            await running.settle(10)
            assert living(api, "low") == ["low-2", "low-3"]
            running.service.lead()
        await running.settle(1)
        assert living(api, "low") == []
        said = [words for name, reason, words in running.recorder.said if reason == "PreemptionByScheduler"]
        assert said == ["evicted by preempt to free capacity for default/urgent"] * 2
        api.finish_deletions()
        await running.settle(1)
        assert [api.node_of(f"urgent-{at}") for at in range(SIZE)] == ["n1"] * SIZE


async def test_the_rest_is_evicted_even_without_a_preemptor(api: SchedulerApi) -> None:
    """Too few pods are left to run.

    It would not be decided again before the timeout of the gang.
    """
    await half_gone(api)
    api.remove(POD_GROUPS, "default/urgent")
    for at in range(SIZE):
        api.remove(PODS, f"default/urgent-{at}")
    async with Running(api) as running:
        await running.settle(1)
        assert living(api, "low") == []


async def test_no_further_victim_is_chosen_for_capacity_that_is_being_freed(api: SchedulerApi) -> None:
    """The new leader counts the rest of the gang as terminating."""
    api.add(node("n2", gpus=SIZE))
    gang(api, "other", SIZE)
    async with Running(api) as running:
        await running.settle(1)
        for at in range(SIZE):
            now = rfc3339(api.clock.now() - 1)
            api.change(PODS, f"default/other-{at}", status={"phase": "Running", "startTime": now})
        await running.settle(1)
    await half_gone(api)
    async with Running(api) as running:
        await running.settle(2)
        assert living(api, "other") == [f"other-{at}" for at in range(SIZE)]
        assert living(api, "low") == []


async def test_a_continued_eviction_that_is_rejected_has_failed(api: SchedulerApi) -> None:
    await half_gone(api)
    api.refuse_eviction = lambda *_: failure(
        429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
    )
    async with Running(api) as running:
        await running.settle(20)
        assert living(api, "low") == ["low-2", "low-3"]
        states = {key: entry.state.value for key, entry in running.service.engine.state.tasks.items()}
        assert {states["default/low-2"], states["default/low-3"]} <= {"Running", "Releasing"}


@pytest.mark.parametrize("case", ["none gone", "old", "enough left", "whole again", "edited"])
async def test_records_without_a_started_eviction_or_too_old_are_ignored(
    api: SchedulerApi, case: str
) -> None:
    await half_gone(api, 2 if case == "enough left" else SIZE)
    found = written(api, "low")
    assert found is not None
    api.remove(POD_GROUPS, "default/urgent")
    for at in range(SIZE):
        api.remove(PODS, f"default/urgent-{at}")
    text: str | None = None
    if case == "none gone":
        text = eviction_record.encode(
            EvictionRecord(found.at, found.action, found.claimer, {"low-2": "20-low", "low-3": "30-low"})
        )
    elif case == "edited":
        text = "{"
    if text is not None:
        api.change(POD_GROUPS, "default/low", metadata={"annotations": {EVICTION: text}})
    if case == "whole again":
        api.finish_deletions()
        for at in (0, 1):
            uid = f"{at}1-low"
            api.add(pod(f"low-{at}", group="low", uid=uid, node="n1", requests={"nvidia.com/gpu": 1}))
    if case == "old":
        await api.clock.advance(301)
    async with Running(api) as running:
        await running.settle(3)
        assert {"low-2", "low-3"} <= set(living(api, "low"))


@pytest.mark.parametrize("former", [False, True])
async def test_record_of_either_version_is_completed(api: SchedulerApi, former: bool) -> None:
    await half_gone(api)
    notes = (api.object(POD_GROUPS, "default/low") or {})["metadata"]["annotations"]
    assert notes[EVICTION] == notes["windlass.dev/evicting"]
    dropped = EVICTION if former else "windlass.dev/evicting"
    api.change(POD_GROUPS, "default/low", metadata={"annotations": {dropped: None}})
    async with Running(api) as running:
        await running.settle(3)
    assert living(api, "low") == []


async def test_a_single_pod_needs_no_record(api: SchedulerApi) -> None:
    api.add(group("one", 1), pod("one-0", group="one", requests={"nvidia.com/gpu": SIZE}))
    async with Running(api) as running:
        await running.settle(1)
        api.run("one-0")
        await running.settle(1)
        gang(api, "urgent", SIZE, priorityClassName="high")
        await running.settle(0.05)
        assert living(api, "one") == []
        assert written(api, "one") is None


@given(
    st.dictionaries(st.text("abc-0123456789", min_size=1), st.text(min_size=9), min_size=1),
    st.integers(0, 2**31),
)
def test_a_written_record_is_read(pods: dict[str, str], at: int) -> None:
    text = eviction_record.encode(EvictionRecord(float(at), "timeshare", "ns/new", pods))
    assert text is not None
    found = eviction_record.decode(text)
    assert found is not None
    assert (found.at, found.action, found.claimer, found.pods.keys()) == (
        at,
        "timeshare",
        "ns/new",
        pods.keys(),
    )
    assert all(found.is_of(name, uid) for name, uid in pods.items())
    assert not any(found.is_of(name, f"x{uid}") for name, uid in pods.items() if set(uid[:8]) != {"x"})


def test_large_gangs_are_packed_and_invalid_records_ignored() -> None:
    pods = {f"gang-{number}": f"{number:08x}-0000" for number in range(3000)}
    text = eviction_record.encode(EvictionRecord(1.0, "preempt", "", pods))
    assert text is not None
    assert len(text) < 40_000
    found = eviction_record.decode(text)
    assert found is not None
    assert len(found.pods) == 3000
    for spoilt in (text[:-9], "z:x", "{}", json.dumps({"at": 1}), "", "[1]"):
        assert eviction_record.decode(spoilt) is None

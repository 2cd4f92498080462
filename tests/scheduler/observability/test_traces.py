"""Traces of jobs and cycles, from the service on a fake API."""

from __future__ import annotations

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS
from windlass.kits.clock import FakeClock
from windlass.model.groups.member_counts import Members
from windlass.observe.tracing import Span, root_id, trace_id
from windlass.scheduler.observability.lifecycle import stage_of


class Kept:
    """An exporter that records its spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        pass

    def of(self, name: str, trace: int = 0) -> list[Span]:
        return [s for s in self.spans if s.name == name and (not trace or s.trace == trace)]


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=4))
    return made


def trace_of(api: SchedulerApi, name: str) -> int:
    obj = api.object(POD_GROUPS, f"default/{name}")
    assert obj is not None
    return trace_id(obj["metadata"]["uid"])


@pytest.mark.parametrize(
    ("admitted", "members", "stage"),
    [
        (False, Members(pending=2), "queued"),
        (True, Members(), "admitted"),
        (True, Members(pending=1, bound=1), "admitted"),
        (True, Members(bound=2), "bound"),
        (True, Members(bound=1, running=1), "bound"),
        (True, Members(running=2, pending=3), "running"),
        (True, Members(running=1, succeeded=1), "running"),
        (True, Members(succeeded=2), "ended"),
        (True, Members(succeeded=1, failed=1), "ended"),
        (True, Members(succeeded=2, pending=1), "bound"),
        (False, Members(), "queued"),
    ],
)
def test_stages(admitted: bool, members: Members, stage: str) -> None:
    assert stage_of(admitted, 2, members) == stage


async def test_the_lifecycle_of_a_gang_is_one_trace(api: SchedulerApi) -> None:
    kept = Kept()
    api.add(group("g", 2), pod("g-0", group="g"), pod("g-1", group="g"))
    async with Running(api, exporter=kept) as running:
        await running.settle(1.0)
        trace = trace_of(api, "g")
        for name in ("g-0", "g-1"):
            api.run(name)
        await running.settle(1.0)
        for name in ("g-0", "g-1"):
            api.end(name)
        await running.settle(1.0)
    stages = [s for s in kept.spans if s.trace == trace]
    names = [s.name for s in stages]
    assert names[-1] == "job"
    assert [n for n in names if n not in ("bind", "job")] == ["queued", "admitted", "bound", "running"]
    assert names.count("bind") == 2
    job = stages[-1]
    assert (job.identity, job.parent) == (root_id(trace), 0)
    assert all(s.parent == root_id(trace) for s in stages[:-1])
    assert job.attributes["windlass.queue"] == "default"
    assert job.attributes["windlass.gang.minimum"] == 2
    assert job.attributes["windlass.outcome"] == "Succeeded"
    assert all(s.started <= s.finished for s in kept.spans)
    bind = kept.of("bind")[0]
    assert bind.attributes["k8s.node.name"] == "n1"
    assert bind.attributes["windlass.devices"] in (["nvidia.com/gpu/0"], ["nvidia.com/gpu/1"])


async def test_cycles_link_to_the_jobs_they_decide_on(api: SchedulerApi) -> None:
    kept = Kept()
    api.add(group("g", 2), pod("g-0", group="g"), pod("g-1", group="g"))
    api.add(group("big", 5), *[pod(f"big-{i}", group="big") for i in range(5)])
    async with Running(api, exporter=kept) as running:
        await running.settle(1.0)
        trace, big = trace_of(api, "g"), trace_of(api, "big")
    links = [link for cycle in kept.of("cycle") for link in cycle.links]
    bound = [k.attributes for k in links if k.trace == trace and k.attributes["windlass.decision"] == "bind"]
    assert [words["windlass.binds"] for words in bound] == [2]
    waits = [k.attributes for k in links if k.trace == big and k.attributes["windlass.decision"] == "wait"]
    assert waits[0]["windlass.reason"] == "ExceedsCluster"
    cycle = kept.of("cycle")[0]
    parts = [s.name for s in kept.spans if s.parent and s.parent == cycle.identity]
    assert parts == ["take", "decide", "show", "carry out"]


async def test_reasons_for_waiting_are_events_and_a_deleted_job_ends(api: SchedulerApi) -> None:
    kept = Kept()
    api.add(group("big", 5), *[pod(f"big-{i}", group="big") for i in range(5)])
    async with Running(api, exporter=kept) as running:
        await running.settle(1.0)
        trace = trace_of(api, "big")
        assert not kept.of("job")
        for i in range(5):
            api.remove(PODS, f"default/big-{i}")
        api.remove(POD_GROUPS, "default/big")
        await running.settle(1.0)
    said = [m for s in kept.spans if s.trace == trace for m in s.events]
    assert [m.attributes["windlass.reason"] for m in said] == ["ExceedsCluster"]
    assert [s.attributes["windlass.outcome"] for s in kept.of("job", trace)] == ["Deleted"]


async def test_a_pod_without_a_group_is_identified_by_its_own_uid(api: SchedulerApi) -> None:
    kept = Kept()
    api.add(pod("alone"))
    async with Running(api, exporter=kept) as running:
        await running.settle(1.0)
        obj = api.object(PODS, "default/alone")
        assert obj is not None
        api.end("alone", "Failed")
        await running.settle(1.0)
    (job,) = kept.of("job", trace_id(obj["metadata"]["uid"]))
    assert (job.attributes["windlass.outcome"], job.fault) == ("Failed", "a pod of it failed")

"""KAI's objects in a running scheduler: followed once they are served."""

from __future__ import annotations

import json

import pytest
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import node
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.annotations import ADOPTED_POOL, NODE_POOL_KAI
from windlass.api.resources import KAI_POD_GROUPS, KAI_QUEUES, PODS, Resource
from windlass.model.cluster.ownership import OtherScheduler
from windlass.scheduler.cache.event_handlers import PROBE_SECONDS


@pytest.fixture
def api() -> SchedulerApi:
    return SchedulerApi()


def add(api: SchedulerApi, *objects: dict) -> None:
    kinds = {"Queue": KAI_QUEUES, "PodGroup": KAI_POD_GROUPS, "Pod": PODS}
    for obj in objects:
        api.put(kinds[obj["kind"]], obj)


def conditions(api: SchedulerApi, name: str) -> list[dict]:
    return (api.object(KAI_POD_GROUPS, f"default/{name}") or {})["status"]["schedulingConditions"]


async def test_kai_gangs_run_and_pending_ones_have_an_explanation(api: SchedulerApi) -> None:
    add(api, kai_queue("org"), kai_queue("team", "org", gpus=1))
    api.add(node("n1", gpus=2))
    add(api, kai_group("a", 2, "team"), kai_pod("a0", "a", "team"), kai_pod("a1", "a", "team"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["a0", "a1"]
        add(api, kai_group("b", 1, "team"), kai_pod("b0", "b", "team"))
        await running.settle(8.0)
        said = api.object(KAI_POD_GROUPS, "default/b")["metadata"]["annotations"]["windlass.dev/explanation"]
        assert json.loads(said)["code"] == "InsufficientResources"
        assert "Unschedulable" in running.reasons("b")
        assert api.conditions(PODS, "default/b0")["PodScheduled"]["reason"] == "Unschedulable"
        (told,) = conditions(api, "b")
        assert (told["type"], told["nodePool"]) == ("UnschedulableOnNodePool", "default")
        assert "nvidia.com/gpu" in told["message"]
        api.end("a0")
        api.end("a1")
        await running.settle(8.0)
        assert "b0" in api.bound()
        assert (
            "windlass.dev/explanation"
            not in api.object(KAI_POD_GROUPS, "default/b")["metadata"]["annotations"]
        )
        assert conditions(api, "b") == []


async def test_an_earlier_leaders_explanation_of_a_running_gang_is_removed(api: SchedulerApi) -> None:
    runs = kai_group("a", 1, "team")
    runs["status"] = {
        "schedulingConditions": [{"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True"}]
    }
    add(api, kai_queue("team"), runs, kai_pod("a0", "a", "team", node="n1"))
    api.add(node("n1", gpus=1))
    async with Running(api) as running:
        await running.settle(3.0)
        assert conditions(api, "a") == []


async def test_the_status_is_left_to_kai_while_it_runs(api: SchedulerApi) -> None:
    waits = kai_group("a", 1, "team")
    waits["metadata"]["labels"] = {NODE_POOL_KAI: ADOPTED_POOL}
    add(api, kai_queue("team"), waits, kai_pod("a0", "a", "team"))
    api.add(node("n1", gpus=0))
    async with Running(api, other_schedulers=(OtherScheduler.parse("kai"),)) as running:
        await running.settle(5.0)
        found = api.object(KAI_POD_GROUPS, "default/a") or {}
        assert "windlass.dev/explanation" in found["metadata"]["annotations"]
        assert not found.get("status")


async def test_kinds_served_later_are_followed(api: SchedulerApi) -> None:
    served: list[Resource] = []
    whole = api.list

    async def listed(resource: Resource, *args: object, **options: object) -> object:
        if resource.group == "scheduling.run.ai" and resource not in served:
            raise errors.not_found(resource, "")
        return await whole(resource, *args, **options)

    api.list = listed  # type: ignore[method-assign]
    api.add(node("n1", gpus=1))
    async with Running(api) as running:
        await running.settle(1.0)
        served += [KAI_QUEUES, KAI_POD_GROUPS]
        add(api, kai_queue("q"), kai_group("a", 1, "q"), kai_pod("a0", "a", "q"))
        await running.settle(1.0)
        assert api.bound() == []
        await running.settle(PROBE_SECONDS)
        await running.settle(1.0)
        assert api.bound() == ["a0"]


async def test_an_eviction_names_the_preemptor(api: SchedulerApi) -> None:
    add(api, kai_queue("org"), kai_queue("a", "org", gpus=1), kai_queue("b", "org", gpus=0))
    api.add(node("n1", gpus=1))
    add(api, kai_group("old", 1, "b"), kai_pod("old0", "old", "b", node="n1"))
    add(api, kai_group("new", 1, "a"), kai_pod("new0", "new", "a"))
    async with Running(api) as running:
        await running.settle(1.0)
        told = api.conditions(PODS, "default/old0")["DisruptionTarget"]["message"]
        assert told == "evicted by reclaim to free capacity for default/new"
        api.finish_deletions()
        await running.settle(1.0)
        assert api.bound() == ["new0"]


async def test_kais_timestamps_are_written_on_its_groups(api: SchedulerApi) -> None:
    """Start of a gang, time since it has been too small, and last eviction, as
    KAI's scheduler writes them."""

    def notes() -> dict[str, str]:
        found = api.object(KAI_POD_GROUPS, "default/a")["metadata"].get("annotations") or {}
        return {name.removeprefix("kai.scheduler/"): text for name, text in found.items()}

    add(api, kai_queue("q"), kai_group("a", 2, "q", stalenessGracePeriod="30s"))
    add(api, kai_pod("a0", "a", "q"), kai_pod("a1", "a", "q"))
    api.add(node("n1", gpus=2))
    async with Running(api) as running:
        await running.settle(2.0)
        assert api.bound() == ["a0", "a1"]
        assert "last-start-timestamp" in notes()
        assert "stale-podgroup-timestamp" not in notes()
        api.end("a1", phase="Failed")
        await running.settle(5.0)
        assert "stale-podgroup-timestamp" in notes()
        assert "last-eviction-timestamp" not in notes()
        await running.settle(40.0)
        assert "last-eviction-timestamp" in notes()
        assert "last-start-timestamp" not in notes()
        assert "stale-podgroup-timestamp" not in notes()

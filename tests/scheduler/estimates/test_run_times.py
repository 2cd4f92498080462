"""Learned run times in the service.

finished pods are observed, pending groups get estimates, a restart keeps both.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.errors import failure, not_found
from windlass.api.resources import CONFIG_MAPS, PODS
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.run_time_traits import traits_of
from windlass.scheduler.estimates.run_times import NAME, learns
from windlass.scheduler.options import OWN_NAMESPACE as NAMESPACE
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Group

KEPT = f"{NAMESPACE}/{NAME}"


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=4))
    return made


async def one_run(
    api: SchedulerApi, running: Running, name: str, seconds: float, size: int = 1, gpus: int = 1
) -> None:
    """Let a gang start, run for some time and finish successfully."""
    members = [f"{name}-{i}" for i in range(size)]
    requests = {"nvidia.com/gpu": gpus}
    api.add(group(name, size), *[pod(member, group=name, requests=requests) for member in members])
    await running.settle(1)
    started = rfc3339(api.clock.now())
    for member in members:
        api.change(PODS, f"default/{member}", status={"phase": "Running", "startTime": started})
    await running.settle(seconds)
    for member in members:
        api.end(member)
    await running.settle(1)


def estimate(running: Running, name: str) -> Any:
    return running.service.engine.state.groups[f"default/{name}"].spec


async def test_finished_groups_are_learned_and_new_ones_get_estimates(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await running.settle(1)
        for number in range(3):
            await one_run(api, running, f"train-{number}", 100 + 10 * number, size=2)
        api.add(group("train-9", 2), pod("train-9-0", group="train-9"), group("other", 2))
        said = group("said", 2)
        said["metadata"]["annotations"] = {"windlass.dev/run-estimate": "5s"}
        api.add(said)
        await running.settle(1)
        told = estimate(running, "train-9")
        assert told.learned.startswith("by 3 earlier runs of this name, size and request: p50 1m")
        assert 119 <= told.run_estimate <= 125
        assert told.run_bound == told.run_estimate
        assert [round(seconds) for seconds in told.runs] == [100, 110, 120]
        assert (estimate(running, "other").run_estimate, estimate(running, "other").learned) == (None, "")
        assert (estimate(running, "said").run_estimate, estimate(running, "said").learned) == (5, "")


async def test_estimates_depend_on_requests_even_if_pods_arrive_later(
    api: SchedulerApi,
) -> None:
    async with Running(api) as running:
        await running.settle(1)
        for number in range(3):
            await one_run(api, running, f"train-{number}", 100)
            await one_run(api, running, f"train-{number + 10}", 1000, gpus=2)
        api.add(group("train-20", 1))
        await running.settle(1)
        assert "of this name and size" in estimate(running, "train-20").learned
        assert estimate(running, "train-20").run_estimate > 900
        api.add(pod("train-20-0", group="train-20", requests={"nvidia.com/gpu": 1}))
        await running.settle(1)
        assert "of this name, size and request" in estimate(running, "train-20").learned
        assert estimate(running, "train-20").run_estimate < 200
        api.add(pod("train-21", requests={"nvidia.com/gpu": 2}), group("other", 1))
        await running.settle(1)
        assert estimate(running, "pod:train-21").run_estimate > 900
        assert not running.service.components.run_times._without_pods - {"default/other"}


async def test_the_accuracy_of_estimates_is_counted(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await running.settle(1)

        def counted() -> dict[tuple[str, str], float]:
            metric = running.service.metrics.run_time_estimates
            return {
                (sample.labels["source"], sample.labels["result"]): sample.value
                for family in metric.collect()
                for sample in family.samples
                if sample.name.endswith("_total")
            }

        for number in range(3):
            await one_run(api, running, f"train-{number}", 80 + 20 * number, size=2)
        assert counted() == {("none", "unknown"): 3}
        await one_run(api, running, "train-7", 100, size=2)
        await one_run(api, running, "train-8", 500, size=2)
        await one_run(api, running, "train-9", 10, size=2)
        assert counted() == {
            ("none", "unknown"): 3,
            ("learned", "within"): 1,
            ("learned", "late"): 1,
            ("learned", "early"): 1,
        }


async def test_learned_run_times_survive_a_restart(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await running.settle(1)
        assert api.object(CONFIG_MAPS, KEPT) is None
        for number in range(3):
            await one_run(api, running, f"train-{number}", 30)
        await running.settle(61)
        kept = api.object(CONFIG_MAPS, KEPT)
        assert kept is not None
        assert len(json.loads(kept["data"]["history"])["keys"]) == 5
        writes = len(api.writes("configmaps"))
        await running.settle(130)
        assert len(api.writes("configmaps")) == writes
        await one_run(api, running, "train-3", 30)
        await running.settle(61)
        assert api.object(CONFIG_MAPS, KEPT) != kept
    async with Running(api) as running:
        api.add(group("train-9", 1))
        await running.settle(1)
        assert estimate(running, "train-9").learned.startswith("by 4 earlier runs")


async def test_an_unreadable_history_is_not_lost(api: SchedulerApi, monkeypatch: Any) -> None:
    """A server that fails for a moment at the start costs nothing of what was learned."""
    async with Running(api) as running:
        await running.settle(1)
        for number in range(3):
            await one_run(api, running, f"train-{number}", 30)
        await running.settle(61)
    find, troubles = api.find, [failure(500, "InternalError", "etcd")] * 2

    async def fail(resource: Any, *rest: Any, **options: Any) -> Any:
        if resource is CONFIG_MAPS and troubles:
            raise troubles.pop()
        return await find(resource, *rest, **options)

    monkeypatch.setattr(api, "find", fail)
    async with Running(api) as running:
        await one_run(api, running, "train-3", 30)
        await running.settle(185)
        assert not troubles
    monkeypatch.undo()
    async with Running(api) as running:
        api.add(group("train-9", 1))
        await running.settle(1)
        assert estimate(running, "train-9").learned.startswith("by 4 earlier runs")


@pytest.mark.parametrize("text", ["{", '{"version": 9, "keys": []}', '{"keys": 1}'])
async def test_an_invalid_history_is_ignored(api: SchedulerApi, text: str) -> None:
    kept = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {"history": text}}
    api.put(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **kept})
    async with Running(api) as running:
        await one_run(api, running, "train-0", 10)
        assert running.service.components.run_times.history.version == 1


async def test_a_failed_write_is_repeated(api: SchedulerApi, monkeypatch: Any) -> None:
    create, refused = api.create, []

    async def refuse(resource: Any, *rest: Any, **options: Any) -> Any:
        if resource is CONFIG_MAPS and len(refused) < 2:
            refused.append(1)
            raise not_found(CONFIG_MAPS, NAME)
        return await create(resource, *rest, **options)

    monkeypatch.setattr(api, "create", refuse)
    async with Running(api) as running:
        await running.settle(1)
        await one_run(api, running, "train-0", 10)
        await running.settle(125)
        assert api.object(CONFIG_MAPS, KEPT) is None
        await running.settle(61)
        assert api.object(CONFIG_MAPS, KEPT) is not None


async def test_failed_and_earlier_groups_are_not_learned(api: SchedulerApi) -> None:
    api.add(
        group("old", 1), pod("old-0", group="old", status={"phase": "Succeeded", "startTime": rfc3339(1.0)})
    )
    async with Running(api) as running:
        await running.settle(1)
        api.add(group("bad", 1), pod("bad-0", group="bad"))
        await running.settle(1)
        api.change(PODS, "default/bad-0", status={"phase": "Running", "startTime": rfc3339(api.clock.now())})
        await running.settle(20)
        api.end("bad-0", "Failed")
        await running.settle(1)
        assert running.service.components.run_times.history.version == 0


@pytest.mark.parametrize(
    ("tiers", "said", "does"),
    [(False, None, True), (True, None, False), (False, "false", False), (True, True, True)],
)
def test_the_configuration_decides_whether_run_times_are_learned(tiers: bool, said: Any, does: bool) -> None:
    arguments = {} if said is None else {"backfill": {"learned": said}}
    told = SchedulerConfig((), (PluginTier((PluginOption("gang"),)),) if tiers else (), arguments)
    assert learns(told) is does


async def test_nothing_is_learned_or_estimated_if_turned_off(api: SchedulerApi) -> None:
    policy = SchedulerConfig(configurations={"backfill": {"learned": False}})
    async with Running(api, policy=policy) as running:
        await running.settle(1)
        for number in range(4):
            await one_run(api, running, f"train-{number}", 10)
        assert running.service.components.run_times.history.version == 0


def test_a_group_of_one_pod_is_learned_by_the_pods_name() -> None:
    assert traits_of(Group("ns/pod:eval-7", queue="q", min_member=0)).name == "eval-7"
    assert traits_of(Group("ns/a", queue="q", min_member=0)).size == 1

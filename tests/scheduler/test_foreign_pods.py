"""Pods of other schedulers make room only where the configuration says so."""

from __future__ import annotations

import pytest
from kubeobjects import node, pod, queue
from schedapi import Running, SchedulerApi

from windlass.api.resources import PODS, QUEUES
from windlass.kits.clock import FakeClock
from windlass.model import scheduler_config
from windlass.model.scheduler_config import ConfigError
from windlass.spi.configuration import SchedulerConfig

LENT = SchedulerConfig(configurations={"foreign": {"queue": "default"}})


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=1))
    return made


def evicted(api: SchedulerApi) -> list[str]:
    return [o["metadata"]["name"] for o in api.objects(PODS) if o["metadata"].get("deletionTimestamp")]


async def test_by_default_they_are_never_touched(api: SchedulerApi) -> None:
    api.add(pod("theirs", scheduler="other", node="n1"), pod("ours", priority=1000))
    async with Running(api) as running:
        await running.settle(3.0)
        assert evicted(api) == []
        assert api.conditions(PODS, "default/ours")["PodScheduled"]["reason"] == "Unschedulable"


async def test_where_they_count_in_a_queue_they_make_room_by_its_rules(api: SchedulerApi) -> None:
    api.add(pod("theirs", scheduler="other", node="n1"), pod("ours", priority=1000))
    async with Running(api, policy=LENT) as running:
        await running.settle(1.0)
        assert evicted(api) == ["theirs"]
        assert api.conditions(PODS, "default/theirs")["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
        assert api.object(PODS, "default/ours")["status"]["nominatedNodeName"] == "n1"
        api.finish_deletions()
        await running.settle(1.0)
        assert api.node_of("ours") == "n1"


@pytest.mark.parametrize(
    "spared",
    [
        {
            "metadata": {
                "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]
            }
        },
        {"priorityClassName": "system-node-critical"},
        {"priority": 2000},
        {"annotations": {"volcano.sh/preemptable": "false"}},
    ],
)
async def test_some_are_spared_even_then(api: SchedulerApi, spared: dict) -> None:
    api.add(pod("theirs", scheduler="other", node="n1", **spared), pod("ours", priority=1000))
    async with Running(api, policy=LENT) as running:
        await running.settle(2.0)
        assert evicted(api) == []


async def test_the_configuration_can_change_while_it_runs(api: SchedulerApi) -> None:
    api.add(pod("theirs", scheduler="other", node="n1"))
    async with Running(api, policy=LENT) as running:
        await running.settle(1.0)
        running.service.use(SchedulerConfig())
        api.add(pod("ours", priority=1000))
        await running.settle(2.0)
        assert evicted(api) == []
        running.service.use(LENT)
        await running.settle(2.0)
        assert evicted(api) == ["theirs"]
        api.end("theirs")
        await running.settle(2.0)
        assert api.node_of("ours") == "n1"
        allocated = api.object(QUEUES, "default")["status"]
        assert allocated["allocated"]["nvidia.com/gpu"] == "1"


def test_the_entry_names_a_queue() -> None:
    text = "configurations:\n- name: foreign\n  arguments: {queue: q}\n"
    assert scheduler_config.parse(text).config.configurations["foreign"] == {"queue": "q"}
    with pytest.raises(ConfigError, match="name of a queue"):
        scheduler_config.parse("configurations:\n- name: foreign\n  arguments: {}\n")

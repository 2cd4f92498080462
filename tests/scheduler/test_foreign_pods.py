"""Pods of other schedulers are victims only if the configuration allows it."""

from __future__ import annotations

import pytest
from kubeobjects import node, pod, queue
from scheduler_api import Running, SchedulerApi

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


async def test_foreign_pods_are_not_evicted_by_default(api: SchedulerApi) -> None:
    api.add(pod("theirs", scheduler="other", node="n1"), pod("ours", priority=1000))
    async with Running(api) as running:
        await running.settle(3.0)
        assert evicted(api) == []
        assert api.conditions(PODS, "default/ours")["PodScheduled"]["reason"] == "Unschedulable"


async def test_foreign_pods_in_a_queue_are_evicted_for_higher_priority(api: SchedulerApi) -> None:
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
async def test_some_foreign_pods_are_protected_even_then(api: SchedulerApi, spared: dict) -> None:
    api.add(pod("theirs", scheduler="other", node="n1", **spared), pod("ours", priority=1000))
    async with Running(api, policy=LENT) as running:
        await running.settle(2.0)
        assert evicted(api) == []


async def test_foreign_pods_are_not_reclaimed_for_another_queue(api: SchedulerApi) -> None:
    """An own pod in their place would be, since the other queue deserves everything."""
    api.add(queue("other", weight=1, deserved={"nvidia.com/gpu": "1"}))
    api.add(queue("default", weight=1, deserved={"nvidia.com/gpu": "0"}))
    wanted = {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}
    api.add(pod("there", scheduler="other", node="n1"), pod("ours", **wanted))
    async with Running(api, policy=LENT) as running:
        await running.settle(3.0)
        assert evicted(api) == []
    control = SchedulerApi(api.clock)
    control.add(queue("root"), queue("default", deserved={"nvidia.com/gpu": "0"}))
    control.add(queue("other", deserved={"nvidia.com/gpu": "1"}), node("n1", gpus=1))
    control.add(pod("mine", node="n1"), pod("ours", **wanted))
    async with Running(control, policy=LENT) as running:
        await running.settle(3.0)
        assert evicted(control) == ["mine"]


TIERS = """
actions: "allocate, preempt, reclaim, shuffle"
tiers:
- plugins:
  - name: priority
  - name: conformance
configurations:
- name: foreign
  arguments: {queue: default}
"""


@pytest.mark.parametrize(("priority", "goes"), [(1000, True), (0, False), (-1, False)])
@pytest.mark.parametrize("text", ["", TIERS], ids=["default", "tiers"])
async def test_only_a_higher_priority_preempts_foreign_pods(
    api: SchedulerApi, text: str, priority: int, goes: bool
) -> None:
    policy = scheduler_config.parse(text).config if text else LENT
    agrees = {"windlass.dev/movable": "true", "windlass.dev/time-share": "true"}
    api.add(pod("theirs", scheduler="other", node="n1", priority=0, annotations=agrees))
    api.add(pod("ours", priority=priority, annotations={"windlass.dev/time-share": "true"}))
    async with Running(api, policy=policy) as running:
        for _ in range(4):
            await running.settle(900.0)
        assert evicted(api) == (["theirs"] if goes else [])


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

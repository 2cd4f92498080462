"""Condition ``PodScheduled=False`` by Kubernetes' conventions.

time of transition and observed generation.
"""

from __future__ import annotations

import msgspec
import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import views
from windlass.api.resources import PODS
from windlass.kits.clock import FakeClock
from windlass.scheduler.pod_conditions import condition
from windlass.scheduler.status.pending_reasons import GROWING_SECONDS


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=1))
    return made


async def test_the_condition_has_transition_time_and_generation(api: SchedulerApi) -> None:
    big = pod("a", requests={"nvidia.com/gpu": "4"})
    big["metadata"]["generation"] = 2
    api.add(big)
    async with Running(api) as running:
        await running.settle(5.0)
        first = api.conditions(PODS, "default/a")["PodScheduled"]
        assert first["status"] == "False"
        assert first["observedGeneration"] == 2
        assert first["lastTransitionTime"]
        api.change(PODS, "default/a", metadata={"generation": 3}, spec={"nodeSelector": {"zone": "b"}})
        for _ in range(10):
            await running.settle(30.0)
        then = api.conditions(PODS, "default/a")["PodScheduled"]
        assert then["message"] != first["message"]
        assert then["observedGeneration"] == 3
        assert then["lastTransitionTime"] == first["lastTransitionTime"]  # it has waited all the time


async def test_the_message_follows_changes_of_nodes(api: SchedulerApi) -> None:
    api.add(pod("a", requests={"nvidia.com/gpu": "4"}))
    async with Running(api) as running:
        await running.settle(5.0)
        told = [api.conditions(PODS, "default/a")["PodScheduled"]["message"]]
        assert "1 node" in told[0] or "0/1 nodes" in told[0]
        writes = len(api.writes("pods"))
        for number in range(2, 7):  # five in a second are told of once or twice
            api.add(node(f"n{number}", gpus=2))
            await running.settle(0.2)
        for _ in range(4):
            await running.settle(30.0)
        told.append(api.conditions(PODS, "default/a")["PodScheduled"]["message"])
        assert "0/6 nodes" in told[1]
        assert len(api.writes("pods")) - writes <= 2 * 2, "the condition and the explanation, twice"


def test_without_generations_none_is_written() -> None:
    old = views.decode_pod(msgspec.json.encode(pod("a")))
    assert old.generation == 0
    assert condition(old, "PodScheduled", "False", "Unschedulable", "why") == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "why",
    }


async def test_a_group_whose_pods_are_being_created_is_not_reported(api: SchedulerApi) -> None:
    api.add(group("quick", 2), group("lost", 2))
    async with Running(api) as running:
        await running.settle(GROWING_SECONDS - 2.0)
        api.add(*[pod(f"quick-{index}", group="quick", requests={"cpu": "1"}) for index in range(2)])
        await running.settle(1.0)
        assert api.bound() == ["quick-0", "quick-1"]
        assert not {"quick", "lost"} & {name for name, _, _ in running.recorder.said}
        await running.settle(3.0)
        said = [(name, reason) for name, reason, _ in running.recorder.said if name in ("quick", "lost")]
        assert said == [("lost", "Unschedulable")]


async def test_a_group_that_has_its_pods_at_last_is_reported_without_delay(api: SchedulerApi) -> None:
    api.add(group("late", 1))
    async with Running(api) as running:
        await running.settle(1.0)
        api.add(pod("late-0", group="late", requests={"nvidia.com/gpu": "4"}))
        await running.settle(1.0)
        assert "late" in [name for name, reason, _ in running.recorder.said if reason == "Unschedulable"]

"""PodGroups that have lost members, by the rules of Volcano's scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS, Resource
from windlass.kits.clock import FakeClock

KEY = "default/g"


class Api(SchedulerApi):
    """``phases``: all phases ever written on the group, in order."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.phases: list[str] = []

    def _store(self, resource: Resource, obj: dict[str, Any]) -> None:
        super()._store(resource, obj)
        if resource is POD_GROUPS and self.phases[-1:] != [self.phase("g")]:
            self.phases.append(self.phase("g"))


@pytest.fixture
def api(fake_clock: FakeClock) -> Api:
    made = Api(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=4))
    return made


def gang(size: int, minimum: int) -> list[dict[str, Any]]:
    return [group("g", minimum), *(pod(f"g-{i}", group="g") for i in range(size))]


async def begin(api: Api, running: Running, size: int = 3, minimum: int = 3) -> None:
    api.add(*gang(size, minimum))
    await running.settle(2.0)
    for i in range(size):
        api.run(f"g-{i}")
    await running.settle(2.0)
    assert api.phase("g") == "Running"


def told(api: Api) -> dict[str, tuple[str, str]]:
    found = api.conditions(POD_GROUPS, KEY)
    return {kind: (condition["status"], condition["reason"]) for kind, condition in found.items()}


async def test_a_lost_member_that_is_not_recreated(api: Api) -> None:
    async with Running(api) as running:
        await begin(api, running)
        api.remove(PODS, "default/g-2")
        await running.settle(10.0)
        assert api.phases[-2:] == ["Running", "Unknown"]
        assert told(api)["Unschedulable"] == ("True", "NotEnoughTasks")
        assert told(api)["Scheduled"][0] == "False"
        message = api.conditions(POD_GROUPS, KEY)["Unschedulable"]["message"]
        assert message.startswith("It has 2 of the 3 pods that it needs.")
        await running.settle(60.0)
        assert "GangBindFailed" not in running.reasons("g")  # it has had its minimum: the others go on
        assert api.bound() == ["g-0", "g-1"]
        api.add(pod("g-3", group="g"))
        await running.settle(2.0)
        assert api.phase("g") == "Running"
        assert told(api)["Unschedulable"][0] == "False"
        assert told(api)["Scheduled"][0] == "True"


async def test_a_failed_member_is_lost(api: Api) -> None:
    async with Running(api) as running:
        await begin(api, running)
        api.end("g-1", "Failed")
        await running.settle(10.0)
        assert api.phase("g") == "Unknown"
        for name in ("g-0", "g-2"):
            api.end(name)
        await running.settle(5.0)
        assert api.phase("g") == "Completed"
        assert told(api)["Unschedulable"][0] == "False"


async def test_a_succeeded_member_is_not_lost(api: Api) -> None:
    async with Running(api) as running:
        await begin(api, running)
        api.end("g-1")
        await running.settle(10.0)
        assert api.phase("g") == "Running"
        assert "Unschedulable" not in told(api)


async def test_the_gang_runs_while_the_member_is_terminating(api: Api) -> None:
    async with Running(api) as running:
        await begin(api, running)
        api.change(PODS, "default/g-2", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
        await running.settle(10.0)
        assert api.phase("g") == "Running"
        assert "Unschedulable" not in told(api)
        api.remove(PODS, "default/g-2")
        await running.settle(10.0)
        assert api.phase("g") == "Unknown"


async def test_a_member_beyond_the_minimum_is_not_lost(api: Api) -> None:
    async with Running(api) as running:
        await begin(api, running, size=3, minimum=2)
        api.remove(PODS, "default/g-2")
        await running.settle(10.0)
        assert api.phase("g") == "Running"
        assert "Unschedulable" not in told(api)


async def test_a_gang_that_has_lost_all_members_is_admitted_again(api: Api) -> None:
    async with Running(api) as running:
        await begin(api, running)
        for i in range(3):
            api.remove(PODS, f"default/g-{i}")
        await running.settle(10.0)
        assert api.phase("g") == "Inqueue"
        assert api.phases == ["", "Running", "Pending", "Inqueue"]


async def test_a_gang_that_had_its_minimum_keeps_its_members_before_they_run(api: Api) -> None:
    """They still pull their images when one of them is lost, and there is no capacity
    for it any more."""
    async with Running(api) as running:
        api.add(*gang(3, 3))
        await running.settle(2.0)
        assert api.phase("g") == "Running"
        api.remove(PODS, "default/g-2")
        api.add(pod("other", node="n1", requests={"nvidia.com/gpu": 2}), pod("g-3", group="g"))
        await running.settle(60.0)
        assert api.phase("g") == "Inqueue"
        assert "GangBindFailed" not in running.reasons("g")
        assert api.bound() == ["g-0", "g-1", "other"]
        assert not any(o["metadata"].get("deletionTimestamp") for o in api.objects(PODS))

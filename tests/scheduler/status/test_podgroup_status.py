"""Statuses of PodGroups with Volcano's definition, which has no status subresource, and
with Windlass'."""

from __future__ import annotations

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.api.resources import POD_GROUPS
from windlass.kits.clock import FakeClock
from windlass.scheduler.status.podgroup_status import PodGroupStatuses


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=2))
    made.status_in_object = {POD_GROUPS}
    return made


async def test_phases_and_reasons_are_written_with_volcanos_definition(api: SchedulerApi) -> None:
    api.add(group("fits", 2), *(pod(f"fits-{i}", group="fits") for i in range(2)))
    async with Running(api) as running:
        await running.settle(3.0)
        assert api.phase("fits") == "Running"
        api.add(group("waits", 2), *(pod(f"waits-{i}", group="waits") for i in range(2)))
        await running.settle(10.0)
        waits = api.object(POD_GROUPS, "default/waits")
    assert waits is not None
    assert [condition["type"] for condition in waits["status"]["conditions"]] == ["Unschedulable"]
    assert "windlass.dev/explanation" in waits["metadata"]["annotations"]


async def test_a_definition_that_is_replaced_is_noticed(api: SchedulerApi) -> None:
    api.add(group("g", 1))
    statuses = PodGroupStatuses(api)  # type: ignore[arg-type]
    for number, together in enumerate((True, True, False, False, True)):
        api.status_in_object = {POD_GROUPS} if together else set()
        await statuses.patch("g", "default", {"status": {"phase": f"phase {number}", "conditions": []}})
        assert api.phase("g") == f"phase {number}"


async def test_a_group_that_is_gone_is_not_found(api: SchedulerApi) -> None:
    for kinds in ({POD_GROUPS}, set[resources.Resource]()):
        api.status_in_object = kinds
        with pytest.raises(StatusError) as refused:
            await PodGroupStatuses(api).patch("gone", "default", {"status": {"phase": "Running"}})  # type: ignore[arg-type]
        assert refused.value.code == 404

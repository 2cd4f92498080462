"""Another scheduler runs in the cluster: pods that neither places are reported."""

from __future__ import annotations

from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.annotations import ADOPTED_SUFFIX, EXPLANATION
from windlass.api.resources import POD_GROUPS, PODS
from windlass.kits.clock import FakeClock
from windlass.model.cluster.ownership import OtherScheduler


async def test_a_pod_that_neither_places_is_reported_until_its_queue_is_handed_over(
    fake_clock: FakeClock,
) -> None:
    api = SchedulerApi(fake_clock)
    api.add(queue("root"), queue("research"), node("n1", gpus=1))
    api.add(group("g", 1, queue="research"), pod("a", group="g", scheduler="windlass"))
    async with Running(api, other_schedulers=(OtherScheduler.parse("volcano"),)) as running:
        await running.settle(3.0)
        assert api.node_of("a") == ""
        waits = api.conditions(PODS, "default/a")["PodScheduled"]
        assert waits["status"] == "False"
        assert (
            "its queue research is not handed over to Windlass; no scheduler places 1 pod" in waits["message"]
        )
        assert "windlass install --adopt volcano -q research" in _note(api)
        assert any("is not handed over" in message for _, _, message in running.recorder.said)
        found = api.object(POD_GROUPS, "default/g") or {}
        assert EXPLANATION not in (
            found["metadata"].get("annotations") or {}
        )  # it is the other's to write on
        await api.patch(POD_GROUPS, "g", {"spec": {"queue": "research" + ADOPTED_SUFFIX}}, "default")
        await running.settle(3.0)
        assert api.node_of("a") == "n1"
        assert _note(api) == ""


def _note(api: SchedulerApi) -> str:
    annotations = (api.object(PODS, "default/a") or {})["metadata"].get("annotations") or {}
    return str(annotations.get(EXPLANATION) or "")

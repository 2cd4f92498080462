"""Preemption when the server rejects evictions.

the preemptor reports it, waits, or is placed elsewhere.
"""

from __future__ import annotations

import pytest
from kubeobjects import node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.resources import PODS
from windlass.kits.clock import FakeClock

CAUSE = {
    "reason": "DisruptionBudget",
    "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
}


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


class Guard:
    """Rejects evictions of some pods as the server does, and counts the requests."""

    def __init__(self, api: SchedulerApi, *names: str) -> None:
        self.names = set(names)
        self.asked: dict[str, int] = {}
        api.refuse_eviction = self

    def __call__(self, namespace: str, name: str) -> BaseException | None:
        self.asked[name] = self.asked.get(name, 0) + 1
        if name not in self.names:
            return None
        return errors.failure(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            {"causes": [CAUSE]},
        )


def going(api: SchedulerApi) -> list[str]:
    return sorted(o["metadata"]["name"] for o in api.objects(PODS) if o["metadata"].get("deletionTimestamp"))


async def test_the_preemptor_reports_a_rejection_and_continues_once_it_is_lifted(
    api: SchedulerApi,
) -> None:
    guard = Guard(api, "low")
    api.add(node("n1", gpus=1), pod("low", node="n1"), pod("high", priority=1000))
    async with Running(api) as running:
        await running.settle(3.0)
        assert going(api) == []
        told = running.service.explain("default/pod:high")
        assert told is not None
        assert (
            "eviction of pod default/low is refused: The disruption budget b needs 1"
            in told.extra["no eviction"]
        )
        await running.settle(120.0)
        assert going(api) == []
        assert guard.asked["low"] < 40
        assert "EvictionRefused" in running.reasons("low")
        guard.names.clear()
        await running.settle(120.0)
        assert going(api) == ["low"]
        api.finish_deletions()
        await running.settle(1.0)
        assert api.node_of("high") == "n1"


async def test_another_victim_is_chosen_after_a_rejection(api: SchedulerApi) -> None:
    """The cheaper one of two possible victims is protected by a budget."""
    Guard(api, "low")
    api.add(node("n1", gpus=1), node("n2", gpus=1))
    api.add(pod("low", node="n1", priority=0), pod("mid", node="n2", priority=10), pod("high", priority=1000))
    async with Running(api) as running:
        await running.settle(5.0)
        assert going(api) == []
        await running.settle(60.0)
        assert going(api) == ["mid"]
        api.finish_deletions()
        await running.settle(1.0)
        assert api.node_of("high") == "n2"
        assert api.node_of("low") == "n1"

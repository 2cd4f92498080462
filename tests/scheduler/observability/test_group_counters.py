"""Counters of groups in a running scheduler."""

from __future__ import annotations

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS
from windlass.engine.actions.context import ActionPass
from windlass.engine.decision import Bind, Decision, Eviction
from windlass.kits.clock import FakeClock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler.observability.group_counters import NOT_READY, GroupCounters


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=4))
    return made


async def test_a_group_admitted_by_another_instance_is_not_counted_again(api: SchedulerApi) -> None:
    api.add(group("old", 1, phase="Running"), pod("old-0", group="old", node="n1"))
    api.add(group("new", 1), pod("new-0", group="new"))
    async with Running(api) as running:
        await running.settle(2.0)
        api.run("new-0")
        await running.settle(2.0)
        counters = running.service.components.counters
        assert counters.admission_wait.counts() == {("default",): 1}
        assert counters.ready_wait.counts() == {("default",): 1}
        assert counters.lives["default/old"].stage == "running"
        api.end("old-0")
        await running.settle(2.0)
        assert counters.execution.counts() == {("default",): 1}


async def test_a_recreated_group_is_counted_as_another(api: SchedulerApi) -> None:
    api.add(group("g", 1), pod("g-0", group="g"))
    async with Running(api) as running:
        await running.settle(2.0)
        counters = running.service.components.counters
        first = counters.lives["default/g"].uid
        api.remove(PODS, "default/g-0")
        api.remove(POD_GROUPS, "default/g")
        api.add(group("g", 1), pod("g-0", group="g", uid="another"))
        await running.settle(2.0)
        assert counters.lives["default/g"].uid != first
        assert counters.admission_wait.counts() == {("default",): 2}
        api.remove(PODS, "default/g-0")
        api.remove(POD_GROUPS, "default/g")
        await running.settle(2.0)
        assert counters.lives == {}


async def test_an_eviction_ends_once_the_group_holds_nothing(api: SchedulerApi) -> None:
    api.add(group("g", 2), *[pod(f"g-{i}", group="g") for i in range(2)])
    async with Running(api) as running:
        await running.settle(2.0)
        counters, now = running.service.components.counters, running.service.components.time.now()
        counters.group_evicted("default/g", NOT_READY, now)
        counters.group_evicted("default/unknown", NOT_READY, now)
        assert counters.evicted == {("default", NOT_READY): 1}
        api.remove(PODS, "default/g-0")
        await running.settle(3.0)
        assert counters.eviction_wait.counts() == {}  # one is still there
        api.remove(PODS, "default/g-1")
        await running.settle(3.0)
        assert counters.eviction_wait.counts() == {("default", NOT_READY): 1}


def test_a_decision_is_counted_by_preemptors_groups_and_actions() -> None:
    counters = GroupCounters(ClusterModel(("windlass",)))
    binds = tuple(Bind(f"d/p{i}", f"u{i}", f"d/g{i // 2}", "n") for i in range(4))
    evictions = (
        Eviction("d/a", "1", "d/x", "n", "reclaim", "d/c"),
        Eviction("d/b", "2", "d/x", "n", "reclaim", "d/c"),
        Eviction("d/e", "3", "d/y", "n", "reclaim", "d/f"),
        Eviction("d/z", "4", "d/y", "n", "stale-gang"),
    )
    passes = (ActionPass("volcano-backfill", 0.1, range(0, 1)), ActionPass("allocate", 0.1, range(1, 4)))
    counters.count_decision(Decision(1, binds=binds, evictions=evictions), passes, 0.0)
    assert counters.scheduled == {"backfill": 1, "allocate": 2}
    assert counters.transactions == {"reclaim": 2, "stale-gang": 1}
    assert (counters.victims.count, counters.victims.total) == (2, 3)
    counters.end_cycle(waiting=True, seconds=0.5)
    counters.end_cycle(waiting=False, seconds=0.5)
    assert counters.attempts.counts() == {("inadmissible",): 1}

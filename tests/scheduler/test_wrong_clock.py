"""A scheduler with a wrong clock uses the API server's time once it leads."""

from __future__ import annotations

from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

HOURS = 2 * 3600.0


async def test_run_times_use_the_servers_clock(fake_clock: FakeClock) -> None:
    """The server's clock, by which pods start, is two hours behind.

    a pod that runs for an hour has just started.
    """
    api = SchedulerApi(fake_clock)
    begun = pod("long", node="n1", annotations={"windlass.dev/run-estimate": "1h"})
    begun["status"]["startTime"] = rfc3339(fake_clock.now() - HOURS)
    api.add(queue("root"), queue("default"), node("n1", gpus=1), begun)
    api.add(group("next", 1), pod("next-0", group="next"))
    async with Running(api, stands_by=True) as running:
        running.service.lead(ahead=HOURS)
        await running.settle(5.0)
        told = running.service.explain("default/next")
        assert told is not None
        assert told.estimate_seconds is not None
        assert 3500 < told.estimate_seconds <= 3600
        assert abs(told.estimate_at - (fake_clock.now() - HOURS)) < 10


async def test_an_overdue_termination_is_evaluated_again(fake_clock: FakeClock) -> None:
    """Before it leads, it takes a terminating pod for stuck though its time has not
    come. The capacity arrives after all."""
    api = SchedulerApi(fake_clock)
    leaving = pod("leaving", node="n1")
    now = fake_clock.now() - HOURS
    leaving["metadata"] |= {"deletionTimestamp": rfc3339(now + 20), "deletionGracePeriodSeconds": 30}
    api.add(queue("root"), queue("default"), node("n1", gpus=1), leaving)
    async with Running(api, stands_by=True) as running:
        await running.settle(1.0)
        before = running.service.model.sent_tasks()["default/leaving"].state
        running.service.lead(ahead=HOURS)
        await running.settle(1.0)
        after = running.service.model.sent_tasks()["default/leaving"].state
    assert (before, after) == ("Stuck", "Releasing")

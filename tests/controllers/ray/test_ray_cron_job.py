"""RayCronJobs: a RayJob at each time of the schedule."""

from __future__ import annotations

import asyncio
from typing import Any

from fakeapi import Crash, FakeApi, Words
from ray_world import ray_job

from windlass.api.resources import RAY_CRON_JOBS, RAY_JOBS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.ray.cron_controller import RayCronJobController
from windlass.kits.clock import FakeClock


class CronWorld:
    """One RayCronJob that fires every ten minutes."""

    def __init__(self, **spec: Any) -> None:
        self.api, self.words = FakeApi(FakeClock()), Words()
        self.api.put(
            RAY_CRON_JOBS,
            {
                "metadata": {"name": "c", "labels": {"volcano.sh/queue-name": "q", "other": "x"}},
                "spec": {"schedule": "*/10 * * * *", "jobTemplate": ray_job()["spec"], **spec},
            },
        )

    def reconcile(self) -> float | None:
        async def once() -> float | None:
            api: Any = self.api
            effects = await RayCronJobController(api, self.api.clock).reconcile("default/c")
            for event in effects.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            await EffectExecutor(api).perform(effects)
            return effects.requeue_after

        return asyncio.run(once())

    def jobs(self) -> list[str]:
        return sorted(job["metadata"]["name"] for job in self.api.objects(RAY_JOBS))


def test_a_job_is_created_at_each_time_of_the_schedule():
    world = CronWorld()
    pause = world.reconcile()
    assert (world.jobs(), pause is not None and 0 < pause <= 601) == ([], True)
    world.api.clock.jump(601)
    world.reconcile()
    world.reconcile()
    (job,) = world.api.objects(RAY_JOBS)
    metadata = job["metadata"]
    assert metadata["labels"] == {"volcano.sh/queue-name": "q", "ray.io/cronjob-name": "c"}
    assert metadata["annotations"] == {"ray.io/cronjob-scheduled-timestamp": "2026-01-01T12:10:00Z"}
    assert metadata["ownerReferences"][0]["kind"] == "RayCronJob"
    assert job["spec"]["entrypoint"] == "python a.py"
    (cron,) = world.api.objects(RAY_CRON_JOBS)
    assert cron["status"] == {"lastScheduleTime": "2026-01-01T12:10:00Z"}
    world.api.clock.jump(600)
    world.reconcile()
    assert len(world.jobs()) == 2


def test_of_missed_times_only_the_last_one_counts():
    world = CronWorld()
    world.api.clock.jump(3601)
    world.reconcile()
    assert len(world.jobs()) == 1
    assert "MissedSchedule" in world.words.reasons()


def test_a_controller_that_dies_after_the_creation_creates_no_second_job():
    for writes in range(3):
        world = CronWorld()
        world.api.clock.jump(601)
        world.api.crash_after = writes
        try:
            world.reconcile()
        except* Crash:
            pass
        world.api.crash_after = None
        world.reconcile()
        world.reconcile()
        (cron,) = world.api.objects(RAY_CRON_JOBS)
        assert (len(world.jobs()), cron["status"]["lastScheduleTime"]) == (1, "2026-01-01T12:10:00Z")


def test_no_job_while_it_is_suspended_or_cannot_be_read():
    for spec, reason in (
        ({"suspend": True}, "SuspendedRayCronJob"),
        ({"schedule": "x"}, "InvalidRayCronJobSpec"),
    ):
        world = CronWorld(**spec)
        world.api.clock.jump(601)
        world.reconcile()
        assert (world.jobs(), world.words.reasons()) == ([], [reason])


def test_a_job_of_another_owner_is_left_alone():
    world = CronWorld()
    world.api.clock.jump(601)
    world.reconcile()
    (name,) = world.jobs()
    other = CronWorld()
    other.api.put(RAY_JOBS, {"metadata": {"name": name}, "spec": {}})
    other.api.clock.jump(601)
    other.reconcile()
    assert other.words.reasons() == ["ForeignRayJob"]
    assert "status" not in other.api.objects(RAY_CRON_JOBS)[0]

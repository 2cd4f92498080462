"""Volcano's CronJobs: schedules, concurrency, history, and controllers that stop anywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakeapi import Crash, FakeApi, Words

from windlass.api import defaults
from windlass.api.resources import VOLCANO_CRON_JOBS, VOLCANO_JOBS
from windlass.api.validation import validate
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.volcano_cronjob.controller import VolcanoCronJobController
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
KEY = "default/c"
TASK = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "m", "image": "i"}]}}}
NOON = 1_767_268_800  # 2026-01-01T12:00:00Z, when the clock begins


class CronWorld:
    """One CronJob, its controller and everything else around it, played by the test."""

    def __init__(self, schedule: str = "*/10 * * * *", **spec: Any) -> None:
        self.api, self.words, self.last = FakeApi(FakeClock()), Words(), Effects()
        self.restart()
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"tasks": [TASK]}}
        body = {"schedule": schedule, "jobTemplate": template, **spec}
        self.api.put(VOLCANO_CRON_JOBS, {"metadata": {"name": "c"}, "spec": body})

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        self.controller = VolcanoCronJobController(self.api, self.api.clock)
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def settle(self) -> None:
        async def once() -> None:
            self.last = await self.controller.reconcile(KEY)
            for event in self.last.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            await self.executor.perform(self.last)

        for _ in range(10):
            try:
                asyncio.run(once())
            except BaseExceptionGroup as group:
                raise Crash from group
            if not self.last.stages:
                return
        raise AssertionError(f"still busy: {self.last}")

    def wait(self, minutes: float) -> None:
        self.api.clock.jump(60 * minutes)
        self.settle()

    @property
    def status(self) -> Json:
        found = self.api.object(VOLCANO_CRON_JOBS, KEY)
        assert found is not None
        return found.get("status") or {}

    def jobs(self) -> list[int]:
        """Minutes after noon of the jobs that exist."""
        found = [job["metadata"]["name"] for job in self.api.objects(VOLCANO_JOBS)]
        return sorted(int(name.removeprefix("c-")) - NOON // 60 for name in found)

    def end(self, minute: int, phase: str = "Completed") -> None:
        state = {"phase": phase, "lastTransitionTime": rfc3339(self.api.clock.now())}
        self.api.change(VOLCANO_JOBS, f"default/c-{NOON // 60 + minute}", status={"state": state})
        self.settle()


def test_a_job_is_created_at_each_time_of_the_schedule() -> None:
    world = CronWorld(timeZone="Europe/Berlin")
    world.settle()
    assert (world.jobs(), world.last.requeue_after) == ([], pytest.approx(600.1))
    world.wait(10.5)
    (job,) = world.api.objects(VOLCANO_JOBS)
    assert job["metadata"]["labels"] == {"a": "b"}
    scheduled = {"volcano.sh/cronjob-scheduled-timestamp": "2026-01-01T13:10:00+01:00"}
    assert job["metadata"]["annotations"] == scheduled
    assert (job["metadata"]["ownerReferences"][0]["kind"], job["spec"]) == ("CronJob", {"tasks": [TASK]})
    assert world.status["lastScheduleTime"] == "2026-01-01T12:10:00Z"
    assert [entry["name"] for entry in world.status["active"]] == [job["metadata"]["name"]]
    assert world.last.requeue_after == pytest.approx(570.1)
    world.wait(10)
    assert world.jobs() == [10, 20]
    world.end(10)
    assert world.status["lastSuccessfulTime"] == "2026-01-01T12:20:30Z"
    assert len(world.status["active"]) == 1
    assert {"SuccessfulCreate", "SawCompletedJob"} <= set(world.words.reasons())


def test_concurrency() -> None:
    for policy, jobs, reason in (
        ("Allow", [10, 20], ""),
        ("Forbid", [10], "ForbidConcurrent"),
        ("Replace", [20], "ReplaceConcurrent"),
    ):
        world = CronWorld(concurrencyPolicy=policy)
        world.wait(10)
        world.wait(11)
        assert world.jobs() == jobs
        assert not reason or reason in world.words.reasons()
        if policy == "Forbid":  # the job of 12:20 comes late, once the other has ended
            world.end(10)
            assert world.jobs() == [10, 20]


def test_history_is_limited() -> None:
    world = CronWorld(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    for minute, phase in ((10, "Completed"), (20, "Failed"), (30, "Completed"), (40, "Terminated")):
        world.wait(10)
        world.end(minute, phase)
    assert world.jobs() == [30, 40]


def test_suspend_and_missed_times() -> None:
    world = CronWorld(suspend=True)
    world.wait(25)
    assert (world.jobs(), world.last.requeue_after) == ([], None)
    world.api.change(VOLCANO_CRON_JOBS, KEY, spec={"suspend": False})
    world.settle()
    assert world.jobs() == [20]  # the last of those that were missed
    world.wait(60 * 24)
    assert (world.jobs(), "TooManyMissedTimes" in world.words.reasons()) == ([20, 1460], True)
    late = CronWorld(startingDeadlineSeconds=120)
    late.wait(15)
    assert late.jobs() == []
    late.wait(6)
    assert late.jobs() == [20]


def test_a_wrong_schedule_a_lost_job_and_a_foreign_job_are_reported() -> None:
    world = CronWorld("99 * * * *")
    world.settle()
    assert world.words.reasons() == ["UnParseableCronJobSchedule"]
    world = CronWorld()
    world.api.put(VOLCANO_JOBS, {"metadata": {"name": f"c-{NOON // 60 + 10}"}})
    world.wait(10)
    assert "ForeignJob" in world.words.reasons()
    world.wait(10)
    world.api.remove(VOLCANO_JOBS, f"default/c-{NOON // 60 + 20}")
    world.settle()
    assert ("active" in world.status, world.words.reasons()[-1]) == (False, "StaleReference")


def test_a_controller_that_stops_between_any_two_writes_changes_nothing() -> None:
    def play(crashes: int | None) -> tuple[list[int], Json]:
        world = CronWorld(concurrencyPolicy="Replace", successfulJobsHistoryLimit=1)

        def go(minutes: float) -> None:
            try:
                world.wait(minutes)
            except Crash:
                world.restart()
                world.settle()

        world.api.crash_after = crashes
        for minute in (10, 20, 30, 40):
            go(10)
            if minute < 30:
                state = {"phase": "Completed", "lastTransitionTime": rfc3339(world.api.clock.now())}
                world.api.change(VOLCANO_JOBS, f"default/c-{NOON // 60 + minute}", status={"state": state})
        go(0)
        status = {**world.status, "active": [entry["name"] for entry in world.status["active"]]}
        return world.jobs(), status

    calm = play(None)
    assert calm[0] == [20, 40]
    for crashes in range(14):
        assert play(crashes) == calm, crashes


def test_validation() -> None:
    def problems(name: str = "c", **spec: Any) -> dict[str, str]:
        body = {"schedule": "* * * * *", "jobTemplate": {"spec": {"tasks": [TASK]}}, **spec}
        metadata = {"name": name, "namespace": "default"}
        obj = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": body,
        }
        defaults.apply(VOLCANO_CRON_JOBS, obj)
        return {error.field: error.message for error in validate(VOLCANO_CRON_JOBS, obj)}

    assert problems(timeZone="Asia/Tokyo") == {}
    assert problems("c" * 53).keys() == {"metadata.name", "spec.jobTemplate.spec.tasks[0].name"}
    assert "4 fields, and a schedule has 5" in problems(schedule="* * * *")["spec.schedule"]
    assert "set spec.timeZone" in problems(schedule="TZ=UTC * * * * *")["spec.schedule"]
    assert "does not exist" in problems(timeZone="Mars/Base")["spec.timeZone"]
    assert problems(timeZone="Local").keys() == {"spec.timeZone"}
    wrong = {"spec": {"tasks": [{**TASK, "minAvailable": 2}]}}
    assert problems(jobTemplate=wrong).keys() == {
        "spec.jobTemplate.spec.minAvailable",
        "spec.jobTemplate.spec.tasks[0].minAvailable",
    }

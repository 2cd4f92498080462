"""Jobs of a ``batch/v1`` CronJob: schedule, concurrency, history, missed times and crashes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from example_counts import examples
from fakeapi import Crash, FakeApi, Words
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.resources import BATCH_JOBS, CRON_JOBS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.cronjob.controller import CronJobController
from windlass.controllers.effects import Effects
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
KEY = "default/tick"


class CronWorld:
    """One CronJob and its controller. The test plays the controller of Jobs."""

    def __init__(self, **spec: Any) -> None:
        self.api, self.words, self.last = FakeApi(FakeClock()), Words(), Effects()
        self.restart()
        self.api.clock.jump(-self.api.clock.now() % 60)  # begin at a full minute
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"spec": pod}}}
        fields = {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "jobTemplate": template}
        history = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
        self.api.put(CRON_JOBS, {"metadata": {"name": "tick"}, "spec": fields | history | spec})
        self.settle()

    def restart(self) -> None:
        self.api.crash_after = None
        self.controller = CronJobController(self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def reconcile(self) -> None:
        async def once() -> None:
            self.last = await self.controller.reconcile(KEY)
            for event in self.last.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            outcome = await self.executor.perform(self.last)
            for event in outcome.events:
                self.words.event(event.about, event.type, event.reason, event.message)

        try:
            asyncio.run(once())
        except BaseExceptionGroup as group:
            raise Crash from group

    def settle(self) -> None:
        for _ in range(20):
            self.reconcile()
            if not self.last.stages:
                return
        raise AssertionError(f"still busy: {self.last}")

    def minutes(self, count: int) -> None:
        """Let minutes pass, with a reconciliation after each."""
        for _ in range(count):
            self.api.clock.jump(60)
            self.settle()

    @property
    def status(self) -> Json:
        found = self.api.object(CRON_JOBS, KEY)
        assert found is not None
        return found.get("status") or {}

    def jobs(self) -> list[Json]:
        return sorted(self.api.objects(BATCH_JOBS), key=lambda job: job["metadata"]["name"])

    def finish(self, number: int = 0, outcome: str = "Complete") -> None:
        job = [job for job in self.jobs() if not job.get("status")][number]
        now = rfc3339(self.api.clock.now())
        status: Json = {"startTime": now, "conditions": [{"type": outcome, "status": "True"}]}
        if outcome == "Complete":
            status["completionTime"] = now
        self.api.change(BATCH_JOBS, f"default/{job['metadata']['name']}", status=status)
        self.settle()


def test_job_of_each_minute_has_the_name_and_the_time_of_its_minute():
    world = CronWorld(timeZone="Asia/Tokyo")
    assert (world.jobs(), world.last.requeue_after) == ([], 60.1)
    world.minutes(1)
    [job] = world.jobs()
    minute = int(world.api.clock.now()) // 60
    assert job["metadata"]["name"] == f"tick-{minute}"
    assert job["metadata"]["labels"] == {"a": "b"}
    assert job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].endswith(
        "+09:00"
    )
    assert [entry["name"] for entry in world.status["active"]] == [f"tick-{minute}"]
    assert world.status["lastScheduleTime"] == rfc3339(minute * 60)
    world.finish()
    assert "active" not in world.status
    assert world.status["lastSuccessfulTime"] == rfc3339(minute * 60)
    assert world.words.reasons() == ["SuccessfulCreate", "SawCompletedJob"]


def test_concurrency_policies():
    for policy, names in (("Allow", 2), ("Forbid", 1), ("Replace", 1)):
        world = CronWorld(concurrencyPolicy=policy)
        world.minutes(1)
        before = world.jobs()[0]["metadata"]["name"]
        world.minutes(1)
        left = [job["metadata"]["name"] for job in world.jobs()]
        assert len(left) == names, policy
        assert (before in left) is (policy != "Replace")
        said = {"Forbid": "JobAlreadyActive", "Replace": "SuccessfulDelete"}.get(policy, "SuccessfulCreate")
        assert said in world.words.reasons()


def test_history_is_limited():
    world = CronWorld(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
    for outcome in ("Complete", "Failed", "Complete", "Failed", "Complete"):
        world.minutes(1)
        world.finish(outcome=outcome)
    kept = [job["status"]["conditions"][0]["type"] for job in world.jobs()]
    assert kept == ["Complete", "Failed", "Complete"]


def test_missed_times_are_made_up_for_once():
    world = CronWorld()
    world.api.clock.jump(150 * 60)
    world.settle()
    assert len(world.jobs()) == 1
    assert "TooManyMissedTimes" in world.words.reasons()
    late = CronWorld(schedule="0 * * * *", startingDeadlineSeconds=30)
    late.api.clock.jump(3600 * 2 - int(late.api.clock.now()) % 3600 + 45)
    late.settle()
    assert late.jobs() == []


def test_suspended_cron_job_creates_nothing():
    world = CronWorld(suspend=True)
    world.minutes(3)
    assert (world.jobs(), world.last.requeue_after) == ([], None)


def test_job_of_a_user_is_named_and_not_active():
    world = CronWorld(suspend=True)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "controller": True}
    cron = world.api.object(CRON_JOBS, KEY)
    assert cron is not None
    metadata = {"name": "manual", "ownerReferences": [{**owner, "uid": cron["metadata"]["uid"]}]}
    world.api.put(BATCH_JOBS, {"metadata": metadata, "spec": {}})
    world.settle()
    assert "active" not in world.status
    assert world.words.reasons() == ["UnexpectedJob"]


@settings(max_examples=examples(40), deadline=None)
@given(
    policy=st.sampled_from(["Allow", "Forbid", "Replace"]),
    history=st.lists(
        st.tuples(st.sampled_from(["minute", "finish", "fail"]), st.lists(st.integers(0, 3), max_size=3)),
        max_size=8,
    ),
)
def test_crashes_change_nothing(policy, history):
    calm, stormy = CronWorld(concurrencyPolicy=policy), CronWorld(concurrencyPolicy=policy)
    for event, crashes in history:
        for world in (calm, stormy):
            if event == "minute":
                world.api.clock.jump(60)
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        for world in (calm, stormy):
            world.settle()
            running = [job for job in world.jobs() if not job.get("status")]
            if event != "minute" and running:
                world.finish(0, "Complete" if event == "finish" else "Failed")
        pictures = [
            (
                [job["metadata"]["name"] for job in world.jobs()],
                [entry["name"] for entry in world.status.get("active") or ()],
                world.status.get("lastScheduleTime"),
            )
            for world in (calm, stormy)
        ]
        assert pictures[0] == pictures[1]

"""CronWorkflows: times, concurrency, history and stops of the controller."""

from __future__ import annotations

import asyncio
from typing import Any

from fakeapi import Crash, FakeApi

from windlass.api.resources import CRON_WORKFLOWS, WORKFLOWS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.cron_workflow.controller import CronWorkflowController
from windlass.controllers.effects import Effects
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]


class CronWorld:
    """One CronWorkflow; the test plays its workflows."""

    def __init__(self, **spec: Any) -> None:
        self.api = FakeApi(FakeClock())
        self.api.status_in_object |= {CRON_WORKFLOWS, WORKFLOWS}
        body = {"schedules": ["* * * * *"], "workflowSpec": {"entrypoint": "m"}, **spec}
        self.api.put(CRON_WORKFLOWS, {"metadata": {"name": "c"}, "spec": body})
        self.last = Effects()
        self.restart()

    def restart(self) -> None:
        self.api.crash_after = None
        self.controller = CronWorkflowController(self.api, self.api.clock)
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def settle(self) -> None:
        async def once() -> bool:
            self.last = await self.controller.reconcile("default/c")
            await self.executor.perform(self.last)
            return bool(self.last.stages)

        for _ in range(20):
            try:
                if not asyncio.run(once()):
                    return
            except BaseExceptionGroup as group:
                raise Crash from group
        raise AssertionError(f"still busy: {self.last}")

    def minutes(self, count: int) -> None:
        for _ in range(count):
            asyncio.run(self.api.clock.advance(60.0))
            self.settle()

    def workflows(self) -> list[Json]:
        return sorted(self.api.objects(WORKFLOWS), key=lambda found: found["metadata"]["name"])

    def end(self, phase: str = "Succeeded") -> None:
        for found in self.workflows():
            if not (found.get("status") or {}).get("finishedAt"):
                status = {"phase": phase, "finishedAt": rfc3339(self.api.clock.now())}
                self.api.change(WORKFLOWS, f"default/{found['metadata']['name']}", status=status)

    @property
    def status(self) -> Json:
        found = self.api.object(CRON_WORKFLOWS, "default/c")
        assert found is not None
        return found.get("status") or {}


def test_workflow_is_created_at_each_time() -> None:
    world = CronWorld()
    world.settle()
    assert world.workflows() == []
    assert 0 < (world.last.requeue_after or 0) <= 60
    world.minutes(2)
    first, second = world.workflows()
    assert int(second["metadata"]["name"][2:]) - int(first["metadata"]["name"][2:]) == 60
    assert first["metadata"]["labels"] == {"workflows.argoproj.io/cron-workflow": "c"}
    assert first["metadata"]["ownerReferences"][0]["kind"] == "CronWorkflow"
    assert first["spec"] == {"entrypoint": "m"}
    assert len(world.status["active"]) == 2


def test_history_is_limited_and_counted() -> None:
    world = CronWorld(successfulJobsHistoryLimit=2)
    for _ in range(4):
        world.minutes(1)
        world.end()
        world.settle()
    assert len(world.workflows()) == 2
    assert world.status["succeeded"] == 4
    world.minutes(1)
    world.end("Failed")
    world.settle()
    assert world.status["failed"] == 1


def test_concurrency_policies() -> None:
    forbid = CronWorld(concurrencyPolicy="Forbid")
    forbid.minutes(3)
    assert len(forbid.workflows()) == 1
    replace = CronWorld(concurrencyPolicy="Replace")
    replace.minutes(2)
    first, second = replace.workflows()
    assert first["spec"]["shutdown"] == "Terminate"
    assert "shutdown" not in second["spec"]


def test_suspended_stopped_and_conditional_ones_create_nothing() -> None:
    for spec in (
        {"suspend": True},
        {"stopStrategy": {"expression": "cronworkflow.succeeded >= 0"}},
        {"when": "1 == 2"},
    ):
        world = CronWorld(**spec)
        world.minutes(3)
        assert world.workflows() == [], spec


def test_missed_time_is_made_up_within_the_deadline_only() -> None:
    for deadline, expected in ((0, 0), (600, 1)):
        world = CronWorld(schedules=["0 * * * *"], startingDeadlineSeconds=deadline)
        world.settle()
        now = world.api.clock.now()
        to_hour = 3600 - now % 3600
        asyncio.run(world.api.clock.advance(to_hour + 300))
        world.settle()
        assert len(world.workflows()) == expected


def test_controller_that_stops_between_any_two_writes_changes_nothing() -> None:
    def play(crashes: int | None) -> list[str]:
        world = CronWorld(successfulJobsHistoryLimit=1)
        world.api.crash_after = crashes
        for _ in range(3):
            asyncio.run(world.api.clock.advance(60.0))
            try:
                world.settle()
            except Crash:
                world.restart()
                world.settle()
            world.end()
        world.settle()
        return [found["metadata"]["name"] for found in world.workflows()]

    calm = play(None)
    for crashes in range(10):
        assert play(crashes) == calm, crashes

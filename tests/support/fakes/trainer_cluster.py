"""A TrainJob in a :class:`fakeapi.FakeApi`, reconciled step by step. The test plays the JobSet controller."""

from __future__ import annotations

import asyncio
from typing import Any

from fakeapi import Crash, FakeApi, Words

from windlass.api import defaults
from windlass.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, TRAIN_JOBS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.trainer.controller import TrainJobController
from windlass.jobs.trainer.builtin import BUILT_IN
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
KEY = "default/t"


def train_job(runtime: str = "torch-distributed", **spec: Any) -> Json:
    return {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": TRAIN_JOBS.kind,
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": 2}, **spec},
    }


class TrainWorld:
    """One TrainJob, its controller and everything else around it."""

    def __init__(self, manifest: Json, *, runtimes: bool = True) -> None:
        self.api = FakeApi(FakeClock())
        self.words = Words()
        self.last = Effects()
        self.restart()
        for runtime in BUILT_IN.values() if runtimes else ():
            self.api.put(CLUSTER_TRAINING_RUNTIMES, dict(runtime))
        defaults.apply(TRAIN_JOBS, manifest)
        self.api.put(TRAIN_JOBS, manifest)

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        self.controller = TrainJobController(self.api, self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def reconcile(self) -> None:
        async def once() -> None:
            self.last = await self.controller.reconcile(KEY)
            for event in self.last.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            outcome = await self.executor.perform(self.last)
            self.controller.note_failures(KEY, outcome.failures)

        try:
            asyncio.run(once())
        except BaseExceptionGroup as group:
            raise Crash from group

    def settle(self, limit: int = 30) -> None:
        for _ in range(limit):
            self.reconcile()
            if not self.last.stages:
                return
        raise AssertionError(f"still busy after {limit} looks: {self.last}")

    @property
    def status(self) -> Json:
        found = self.api.object(TRAIN_JOBS, KEY)
        assert found is not None
        return found.get("status") or {}

    @property
    def state(self) -> str:
        """The printer column: the type of the last condition."""
        return (self.status.get("conditions") or [{}])[-1].get("type", "")

    @property
    def job_set(self) -> Json | None:
        return self.api.object(JOB_SETS, KEY)

    def progress(self, **counts: int) -> None:
        """The JobSet controller writes its counts."""
        entry = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        self.api.change(JOB_SETS, KEY, status={"replicatedJobsStatus": [{**entry, **counts}]})

    def end(self, kind: str, reason: str) -> None:
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": reason,
            "lastTransitionTime": rfc3339(self.api.clock.now()),
        }
        self.api.change(JOB_SETS, KEY, status={"conditions": [condition], "terminalState": kind})

    def change(self, **spec: Any) -> None:
        self.api.change(TRAIN_JOBS, KEY, spec=spec)

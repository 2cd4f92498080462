"""A JobSet in a :class:`fakeapi.FakeApi`, reconciled step by step. The test plays the Job controller."""

from __future__ import annotations

import asyncio
from typing import Any

from fakeapi import Crash, FakeApi, Words

from windlass.api import defaults
from windlass.api.resources import BATCH_JOBS, JOB_SETS, POD_GROUPS
from windlass.controllers.apply_effects import EffectExecutor, EffectOutcome
from windlass.controllers.effects import Effects
from windlass.controllers.jobset.controller import JobSetController
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
KEY = "default/js"


def replicated(name: str, pods: int = 1, replicas: int = 1, **more: Any) -> Json:
    containers = [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": {"containers": containers}}}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def job_set(*jobs: Json, **spec: Any) -> Json:
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"name": "js", "namespace": "default"},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


class JobSetWorld:
    """One JobSet, its controller and everything else around it."""

    def __init__(self, manifest: Json) -> None:
        self.api = FakeApi(FakeClock())
        self.words = Words()
        self.last = Effects()
        self.restart()
        defaults.apply(JOB_SETS, manifest)
        self.api.put(JOB_SETS, manifest)

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        self.controller = JobSetController(self.api, self.api.clock, "volcano")  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def reconcile(self) -> EffectOutcome:
        async def once() -> EffectOutcome:
            self.last = await self.controller.reconcile(KEY)
            for event in self.last.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            outcome = await self.executor.perform(self.last)
            self.controller.note_failures(KEY, outcome.failures)
            return outcome

        try:
            return asyncio.run(once())
        except BaseExceptionGroup as group:
            raise Crash from group

    def settle(self, limit: int = 40) -> None:
        for _ in range(limit):
            self.finish_deletions()
            self.reconcile()
            if not self.last.stages and not self.deleting():
                return
        raise AssertionError(f"still busy after {limit} looks: {self.last}")

    def deleting(self) -> list[str]:
        return [
            job["metadata"]["name"]
            for job in self.api.objects(BATCH_JOBS)
            if job["metadata"].get("deletionTimestamp")
        ]

    def finish_deletions(self) -> None:
        """The garbage collector has deleted the pods of Jobs that end in the foreground."""
        for name in self.deleting():
            self.api.remove(BATCH_JOBS, f"default/{name}")

    @property
    def set(self) -> Json | None:
        return self.api.object(JOB_SETS, KEY)

    @property
    def status(self) -> Json:
        found = self.set
        assert found is not None
        return found.get("status") or {}

    def condition(self, kind: str) -> str:
        """``status/reason`` of a condition; empty if there is none."""
        found = [item for item in self.status.get("conditions") or () if item["type"] == kind]
        return f"{found[0]['status']}/{found[0]['reason']}" if found else ""

    def jobs(self) -> list[str]:
        return sorted(job["metadata"]["name"].removeprefix("js-") for job in self.api.objects(BATCH_JOBS))

    def job(self, name: str) -> Json:
        found = self.api.object(BATCH_JOBS, f"default/js-{name}")
        assert found is not None, name
        return found

    def groups(self) -> dict[str, int]:
        return {
            group["metadata"]["name"]: group["spec"]["minMember"] for group in self.api.objects(POD_GROUPS)
        }

    # The Job controller.

    def run(self, *names: str) -> None:
        for name in names or self.jobs():
            count = self.job(name)["spec"].get("parallelism", 1)
            self.api.change(BATCH_JOBS, f"default/js-{name}", status={"active": count, "ready": count})

    def end(self, name: str, failed: str = "", message: str = "") -> None:
        kind, reason = ("Failed", failed) if failed else ("Complete", "CompletionsReached")
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(self.api.clock.now()),
        }
        self.api.change(
            BATCH_JOBS, f"default/js-{name}", status={"active": 0, "ready": 0, "conditions": [condition]}
        )

    def change(self, **spec: Any) -> None:
        self.api.change(JOB_SETS, KEY, spec=spec)

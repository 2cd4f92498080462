"""A JobFlow in a :class:`fakeapi.FakeApi`, reconciled step by step. The test plays the controller of Volcano Jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from fakeapi import Crash, FakeApi, Words

from windlass.api.resources import JOB_FLOWS, JOB_TEMPLATES, PODS, VOLCANO_JOBS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.jobflow.controller import JobFlowController, JobTemplateController
from windlass.controllers.jobflow.flow import PodCondition
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
KEY = "default/f"


def step(name: str, *targets: str, probe: Json | None = None, patch: Json | None = None) -> Json:
    found: Json = {"name": name}
    if targets or probe:
        found["dependsOn"] = {"targets": list(targets), **({"probe": probe} if probe else {})}
    if patch is not None:
        found["patch"] = {"jobSpec": patch}
    return found


def template_spec(command: str = "true") -> Json:
    container = {"name": "main", "image": "i", "command": [command]}
    return {"tasks": [{"name": "t", "replicas": 1, "template": {"spec": {"containers": [container]}}}]}


class FlowWorld:
    """One flow, its controllers and everything else around it, played by the test."""

    def __init__(self, *steps: Json, retain: str = "", templates: str = "abcde") -> None:
        self.api, self.words = FakeApi(FakeClock()), Words()
        self.listening: set[tuple[str, int, str]] = set()
        self.last = Effects()
        self.restart()
        for name in templates:
            self.template(name)
        spec: Json = {"flows": list(steps), **({"jobRetainPolicy": retain} if retain else {})}
        self.api.put(JOB_FLOWS, {"metadata": {"name": "f"}, "spec": spec})

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        self.controller = JobFlowController(self.api, self.api.clock, self._probe)
        self.templates = JobTemplateController(self.api)
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def template(self, name: str, spec: Json | None = None) -> None:
        self.api.put(JOB_TEMPLATES, {"metadata": {"name": name}, "spec": spec or template_spec()})

    async def _probe(self, address: str, condition: PodCondition) -> bool:
        return (address, condition.port, condition.path) in self.listening

    def settle(self, limit: int = 20) -> None:
        """Reconcile until nothing is written."""

        async def once() -> bool:
            self.last = await self.controller.reconcile(KEY)
            for event in self.last.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            await self.executor.perform(self.last)
            wrote = bool(self.last.stages)
            for template in self.api.objects(JOB_TEMPLATES):
                effects = await self.templates.reconcile(f"default/{template['metadata']['name']}")
                await self.executor.perform(effects)
                wrote = wrote or bool(effects.stages)
            return wrote

        for _ in range(limit):
            try:
                if not asyncio.run(once()):
                    return
            except BaseExceptionGroup as group:
                raise Crash from group
        raise AssertionError(f"still busy after {limit} reconciliations: {self.last}")

    # What is there.

    @property
    def status(self) -> Json:
        found = self.api.object(JOB_FLOWS, KEY)
        assert found is not None
        return found.get("status") or {}

    @property
    def phase(self) -> str:
        return self.status.get("state", {}).get("phase", "")

    def jobs(self) -> list[str]:
        """Names of the jobs, without the name of the flow."""
        found = [job["metadata"]["name"] for job in self.api.objects(VOLCANO_JOBS)]
        return sorted(name.removeprefix("f-") for name in found)

    def job(self, name: str) -> Json:
        found = self.api.object(VOLCANO_JOBS, f"default/f-{name}")
        assert found is not None, name
        return found

    # What others do.

    def enter(self, phase: str, *names: str, **status: Any) -> None:
        """Jobs enter a phase."""
        for name in names:
            state = {"phase": phase, "lastTransitionTime": rfc3339(self.api.clock.now())}
            self.api.change(VOLCANO_JOBS, f"default/f-{name}", status={"state": state, **status})

    def pod(self, job: str, task: str, phase: str = "Running", address: str = "10.0.0.1") -> None:
        labels = {"volcano.sh/job-name": f"f-{job}", "volcano.sh/task-spec": task}
        name = f"f-{job}-{task}-{address.rpartition('.')[2]}"
        status = {"phase": phase, "podIP": address}
        self.api.put(PODS, {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})

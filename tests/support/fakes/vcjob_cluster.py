"""A Volcano Job in a :class:`fakeapi.FakeApi`, driven look by look."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from fakeapi import Crash, FakeApi, Words

from windlass.api.resources import (
    COMMANDS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    VOLCANO_JOBS,
)
from windlass.controllers.apply_effects import EffectExecutor, EffectOutcome
from windlass.controllers.effects import Effects
from windlass.controllers.expectations import identity
from windlass.controllers.vcjob import pods
from windlass.controllers.vcjob.controller import JobController
from windlass.controllers.vcjob.spec import JobSpec, read
from windlass.controllers.vcjob.status import JobState
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
KEY = "default/train"


def task(name: str = "worker", replicas: int = 2, **more: Any) -> Json:
    containers = [{"name": "main", "image": "python", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": containers}}, **more}


def job(*tasks: Json, name: str = "train", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"tasks": list(tasks) or [task()], **spec}}


class World:
    """One job, its controller and everything else around it, played by the test."""

    def __init__(self, manifest: Json | None = None) -> None:
        self.api = FakeApi(FakeClock())
        self.words = Words()
        self.controller = JobController(self.api, self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]
        self.last = Effects()
        if manifest is not None:
            self.api.put(VOLCANO_JOBS, manifest)

    # Looking.

    def reconcile(self) -> EffectOutcome:
        """One look at the job, carried out."""

        async def once() -> EffectOutcome:
            self.last = await self.controller.reconcile(KEY)
            for event in self.last.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            outcome = await self.executor.perform(self.last)
            for event in outcome.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            return outcome

        try:
            return asyncio.run(once())
        except BaseExceptionGroup as group:
            raise Crash from group

    def settle(self, limit: int = 30) -> int:
        """Look until a look does nothing; how many did something."""
        for count in range(limit):
            self.reconcile()
            if not self.last.stages:
                return count
        raise AssertionError(f"still busy after {limit} looks: {self.last}")

    # What is there.

    @property
    def job(self) -> Json:
        found = self.api.object(VOLCANO_JOBS, KEY)
        assert found is not None
        return found

    @property
    def status(self) -> Json:
        return self.job.get("status") or {}

    @property
    def phase(self) -> str:
        return self.status.get("state", {}).get("phase", "")

    @property
    def group_key(self) -> str:
        return f"default/train-{self.job['metadata']['uid']}"

    @property
    def group(self) -> Json | None:
        return self.api.object(POD_GROUPS, self.group_key)

    def pods(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.api.objects(PODS))

    def pod(self, name: str) -> Json:
        found = self.api.object(PODS, f"default/{name}")
        assert found is not None, name
        return found

    # What others do.

    def admit(self, phase: str = "Inqueue") -> None:
        """The scheduler writes the group's phase."""
        self.api.change(POD_GROUPS, self.group_key, status={"phase": phase})

    def run(self, *names: str) -> None:
        """Pods are bound, and run."""
        for name in names or self.pods():
            self.api.change(
                PODS,
                f"default/{name}",
                spec={"nodeName": "node-1"},
                status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            )

    def end(self, name: str, exit_code: int = 0, message: str = "") -> None:
        finished = {"exitCode": exit_code, "finishedAt": rfc3339(self.api.clock.now()), "message": message}
        self.api.change(
            PODS,
            f"default/{name}",
            spec={"nodeName": "node-1"},
            status={
                "phase": "Failed" if exit_code else "Succeeded",
                "containerStatuses": [{"name": "main", "state": {"terminated": finished}}],
                "conditions": [{"type": "Ready", "status": "False"}],
            },
        )

    def take_away(self, name: str) -> None:
        self.api.remove(PODS, f"default/{name}")

    def command(self, action: str, name: str = "do") -> None:
        target = {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "name": "train"}
        self.api.put(COMMANDS, {"metadata": {"name": name}, "action": action, "target": target})

    def priority_class(self, name: str, value: int) -> None:
        self.api.put(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})

    def pass_time(self, seconds: float) -> None:
        self.api.clock.jump(seconds)

    # Shortcuts.

    def start(self) -> None:
        """From nothing to every pod running."""
        self.settle()
        self.admit()
        self.settle()
        self.run()
        self.settle()

    def converge(self, limit: int = 40) -> None:
        """Look and let the agent finish deletions until nothing moves; groups are admitted as they appear."""
        for _ in range(limit):
            self.api.finish_deletions()
            if self.group is not None and not (self.group.get("status") or {}).get("phase"):
                self.admit()
            self.reconcile()
            if not self.last.stages and not any(identity(pod).deleting for pod in self.api.objects(PODS)):
                return
        raise AssertionError("does not converge")


def with_fresh_controller(world: World) -> None:
    """The process died; a new one starts from what is stored."""
    world.api.crash_after = None
    world.controller = JobController(world.api, world.api, world.api.clock)  # type: ignore[arg-type]
    world.executor = EffectExecutor(world.api)  # type: ignore[arg-type]


def settle_with_crashes(world: World, after: list[int]) -> None:
    """The controller dies after so many writes, again and again, and goes on."""
    for writes in after:
        world.api.crash_after = writes
        with contextlib.suppress(Crash):
            world.reconcile()
        with_fresh_controller(world)
    world.settle()


def annotations(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return pod["metadata"]["annotations"]


def gang(*, workers: int = 3, **spec: Any) -> World:
    """A job of one task, of which nothing is made yet."""
    return World(job(task("worker", workers), **spec))


def started(*, workers: int = 3, **spec: Any) -> World:
    """The same, once all its pods run."""
    world = gang(workers=workers, **spec)
    world.start()
    assert world.phase == "Running"
    return world


def spec_of(
    *tasks: Json, annotations: Json | None = None, labels: Json | None = None, **spec: Any
) -> JobSpec:
    manifest = job(*tasks, **spec)
    manifest["metadata"].update(
        uid="u1", namespace="team", annotations=annotations or {}, labels=labels or {}
    )
    return read(manifest)


def build(spec: JobSpec, name: str = "worker", index: int = 0, **classes: int) -> Json:
    found = spec.task(name)
    assert found is not None
    return pods.build(spec, JobState(version=2, retries=1), found, index, classes)


def env_of(container: Json) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", ())}

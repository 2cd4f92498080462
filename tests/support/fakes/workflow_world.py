"""A workflow in a :class:`fakeapi.FakeApi`, reconciled step by step. The test plays pods and their logs."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Callable
from typing import Any

import yaml
from fakeapi import Crash, FakeApi, Words

from windlass.api.resources import PODS, WORKFLOWS, Resource
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.workflow import labels
from windlass.controllers.workflow.controller import WorkflowController
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.workflow.locks import LockTable

Json = dict[str, Any]
Play = Callable[[Json], tuple[int, str]]
"""``play(pod)``: exit code and log of a pod."""


class _Stream:
    def __init__(self, data: bytes) -> None:
        self._parts = [data]

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop()


class LogApi(FakeApi):
    """API with logs of pods."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.texts: dict[str, str] = {}
        self.status_in_object.add(WORKFLOWS)

    async def logs(self, namespace: str, name: str, **_: Any) -> _Stream:
        return _Stream(self.texts.get(name, "").encode())


class WorkflowWorld:
    """Workflows, their controller and the pods around it, played by the test."""

    def __init__(
        self, manifest: str | Json, play: Play = lambda pod: (0, ""), kind: Resource = WORKFLOWS
    ) -> None:
        self.api, self.words, self.play, self.kind = LogApi(), Words(), play, kind
        self.last = Effects()
        self.add(manifest)
        self.restart()

    def add(self, manifest: str | Json) -> None:
        obj = yaml.safe_load(manifest) if isinstance(manifest, str) else manifest
        self.api.put(self.kind, {"metadata": obj.get("metadata") or {"name": "w"}, "spec": obj["spec"]})

    def restart(self, scheduler: str = "") -> None:
        """The process died; a new one starts from what is stored. ``scheduler``: of pods that name none."""
        self.api.crash_after = None
        self.locks = LockTable()
        client: Any = self.api
        self.controller = WorkflowController(
            self.kind, client, client, self.api.clock, self.locks, scheduler=scheduler
        )
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def look(self, name: str = "w") -> bool:
        """Reconcile once. Return whether anything was to be written."""

        async def once() -> bool:
            self.last = await self.controller.reconcile(f"default/{name}")
            for event in self.last.events:
                self.words.event(event.about, event.type, event.reason, event.message)
            outcome = await self.executor.perform(self.last)
            self.controller.note_failures(f"default/{name}", outcome.failures)
            return bool(self.last.stages)

        try:
            return asyncio.run(once())
        except BaseExceptionGroup as group:
            raise Crash from group

    def settle(self, name: str = "w", limit: int = 30) -> None:
        """Reconcile until nothing is written."""
        for _ in range(limit):
            if not self.look(name):
                return
        raise AssertionError(f"still busy after {limit} reconciliations: {self.last}")

    def end_pods(self, finished: float | None = None) -> int:
        """Let all pods end as ``play`` says. Return their number. ``finished``: Unix time of the end."""
        ended = 0
        for pod in self.api.objects(PODS):
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            code, log = self.play(pod)
            name = pod["metadata"]["name"]
            self.api.texts[name] = log
            state: Json = {"exitCode": code, "reason": "Error" if code else "Completed"}
            if finished is not None:
                state["finishedAt"] = rfc3339(finished)
            status = {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [{"name": "main", "state": {"terminated": state}}],
            }
            self.api.change(PODS, f"default/{name}", status=status, spec={"nodeName": "n1"})
            ended += 1
        return ended

    def run(self, name: str = "w", rounds: int = 40) -> None:
        """Reconcile and end pods until the workflow has ended."""
        for _ in range(rounds):
            self.settle(name)
            if self.status(name).get("finishedAt"):
                return
            if not self.end_pods():
                self.advance(1.0)
        raise AssertionError(f"not ended: {self.status(name)}")

    def advance(self, seconds: float) -> None:
        asyncio.run(self.api.clock.advance(seconds))

    # What is there.

    def status(self, name: str = "w") -> Json:
        found = self.api.object(self.kind, f"default/{name}")
        assert found is not None
        return found.get("status") or {}

    def nodes(self, name: str = "w") -> dict[str, Json]:
        """Return the nodes by their display names."""
        status = self.status(name)
        nodes = status.get("nodes")
        if "compressedNodes" in status:
            nodes = json.loads(gzip.decompress(base64.b64decode(status["compressedNodes"])))
        return {node["displayName"]: node for node in (nodes or {}).values()}

    def phases(self, name: str = "w") -> dict[str, str]:
        return {key: node["phase"] for key, node in self.nodes(name).items() if node["type"] != "StepGroup"}

    def pods(self) -> list[str]:
        return sorted(pod["metadata"]["annotations"][labels.NODE_NAME] for pod in self.api.objects(PODS))

    def pod(self, node: str) -> Json:
        (found,) = [
            p for p in self.api.objects(PODS) if p["metadata"]["annotations"][labels.NODE_NAME] == node
        ]
        return found


def captured(**outputs: str) -> str:
    """Return the end of a log with captured outputs; ``result`` and ``parameter_NAME``."""
    lines = []
    for name, value in outputs.items():
        data = base64.b64encode(value.encode()).decode()
        lines.append(f"\n::windlass-output {name.replace('_', '/', 1)} ok\n{data}\n::windlass-end\n")
    return "".join(lines)

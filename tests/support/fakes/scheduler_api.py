"""The fake API with what a scheduler needs besides: bindings, conditions merged by type, capacity checks.

It also keeps the history of bindings, so that tests can say what was never true.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable
from random import Random
from typing import Any

from fakeapi import FakeApi, Json, merge

from windlass.api import errors
from windlass.api.resources import NODES, POD_GROUPS, PODS, QUEUES, Resource
from windlass.kits.clock import FakeClock
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.service import SchedulerService


class SchedulerApi(FakeApi):
    """``refuse_bind(namespace, name, node)`` may give the error that a binding meets."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__(clock)
        self.transport = None
        self.bindings: list[tuple[str, str]] = []
        self.refuse_bind: Callable[[str, str, str], BaseException | None] = lambda *_: None
        self.refuse_eviction: Callable[[str, str], BaseException | None] = lambda *_: None
        self.under_way = 0
        self.most_under_way = 0

    async def evict(self, namespace: str, name: str, *, uid: str | None = None, **_: Any) -> None:
        """As the Eviction API does it: with a condition of its own. ``refuse_eviction`` may say no."""
        problem = self.refuse_eviction(namespace, name)
        if problem is not None:
            raise problem
        present = self.stored.get(PODS, {}).get(f"{namespace}/{name}")
        if present is not None and (not uid or uid == present["metadata"]["uid"]):
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            self.change(PODS, f"{namespace}/{name}", status={"conditions": [condition]})
        await self.delete(PODS, name, namespace, uid=uid)

    async def bind(self, namespace: str, name: str, node: str, *, uid: str, annotations: Any = None) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0)
            problem = self.refuse_bind(namespace, name, node)
            if problem is not None:
                raise problem
            self._bind(f"{namespace}/{name}", node, uid, annotations)
        finally:
            self.under_way -= 1

    def _bind(self, key: str, node: str, uid: str, annotations: Any) -> None:
        present = self.stored.get(PODS, {}).get(key)
        name = key.partition("/")[2]
        if present is None:
            raise errors.not_found(PODS, name)
        if present["metadata"]["uid"] != uid:
            raise errors.conflict(PODS, name, f"Precondition failed: UID in precondition: {uid}")
        if present["metadata"].get("deletionTimestamp"):
            raise errors.conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if present["spec"].get("nodeName"):
            where = present["spec"]["nodeName"]
            raise errors.conflict(PODS, name, f"pod {name} is already assigned to node {where!r}")
        self.bindings.append((key, node))
        changed = copy.deepcopy(present)
        changed["spec"]["nodeName"] = node
        changed["metadata"].setdefault("annotations", {}).update(annotations or {})
        changed["status"].setdefault("conditions", [])
        changed["status"]["conditions"] = [
            c for c in changed["status"]["conditions"] if c["type"] != "PodScheduled"
        ] + [{"type": "PodScheduled", "status": "True"}]
        self._store(PODS, changed)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        namespace: str | None = None,
        *,
        kind: str = "merge",
        **rest: Any,
    ) -> Json:
        if kind == "strategic" and "conditions" in patch.get("status", {}):
            present = self.object(resource, f"{namespace}/{name}") or {}
            kept = {c["type"]: c for c in present.get("status", {}).get("conditions", [])}
            kept.update({c["type"]: {**kept.get(c["type"], {}), **c} for c in patch["status"]["conditions"]})
            patch = copy.deepcopy(patch)
            patch["status"]["conditions"] = list(kept.values())
        return await super().patch(resource, name, patch, namespace, **rest)

    # What tests ask and do.

    def add(self, *objects: Json) -> None:
        kinds = {"Pod": PODS, "Node": NODES, "PodGroup": POD_GROUPS, "Queue": QUEUES}
        for obj in objects:
            self.put(kinds[obj["kind"]], copy.deepcopy(obj))

    def node_of(self, name: str, namespace: str = "default") -> str:
        pod = self.object(PODS, f"{namespace}/{name}")
        return (pod or {}).get("spec", {}).get("nodeName", "")

    def bound(self) -> list[str]:
        return sorted(o["metadata"]["name"] for o in self.objects(PODS) if o["spec"].get("nodeName"))

    def phase(self, name: str) -> str:
        return ((self.object(POD_GROUPS, f"default/{name}") or {}).get("status") or {}).get("phase", "")

    def conditions(self, resource: Resource, key: str) -> dict[str, Json]:
        status = (self.object(resource, key) or {}).get("status") or {}
        return {c["type"]: c for c in status.get("conditions", ())}

    def end(self, name: str, phase: str = "Succeeded") -> None:
        self.change(PODS, f"default/{name}", status={"phase": phase})

    def run(self, name: str) -> None:
        self.change(PODS, f"default/{name}", status={"phase": "Running"})

    def writes(self, plural: str) -> list[tuple[str, str]]:
        return [(verb, key) for verb, kind, key in self.log if kind == plural]


class Recorder:
    """Keeps what was said: (object, reason, message). ``waiting``: what it claims to have in hand."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []
        self.waiting = 0

    def event(self, ref: Any, type: str, reason: str, message: str, *, vital: bool = False) -> None:
        self.said.append((ref.name, reason, message))

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


class Running:
    """A scheduler at work on a fake API; ``settle`` lets time pass and everything finish."""

    def __init__(
        self,
        api: SchedulerApi,
        *,
        registry: Any = None,
        stands_by: bool = False,
        exporter: Any = None,
        **options: Any,
    ) -> None:
        self.api = api
        self.recorder = Recorder()
        self.service = SchedulerService(
            api,  # type: ignore[arg-type]
            clock=api.clock,
            rng=Random(1),
            options=SchedulerOptions(**{"estimate_seconds": 0.0, **options}),
            informers=api,  # type: ignore[arg-type]
            bind_client=api,  # type: ignore[arg-type]
            recorder=self.recorder,  # type: ignore[arg-type]
            registry=registry,
            stands_by=stands_by,
            exporter=exporter,
        )
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Running:
        self.task = asyncio.create_task(self.service.run())
        await self.settle()
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self.task is not None
        if not self.task.done():
            self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def settle(self, seconds: float = 0.1) -> None:
        """Advance the clock in small steps; the service must not have died of it."""
        step = min(0.02, seconds)
        steps = max(1, round(seconds / step))
        if steps > 100:
            step, steps = seconds / 100, 100
        for _ in range(steps):
            await self.api.clock.advance(step)
            for _ in range(6):
                await asyncio.sleep(0)
        if self.task is not None and self.task.done():
            self.task.result()

    def reasons(self, name: str) -> list[str]:
        return [reason for said, reason, _ in self.recorder.said if said == name]


__all__ = ["Recorder", "Running", "SchedulerApi", "merge"]

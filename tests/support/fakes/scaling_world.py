"""An AIGCJob with ``spec.autoscale``: its two controllers, and a test that plays nodes, driver and queue."""

from __future__ import annotations

import asyncio
from typing import Any

from aigc_world import AigcWorld, FakeDriver, Json, aigc_job
from fakeapi import Crash
from vcjob_cluster import KEY

from windlass.api.resources import NODES, PODS, QUEUES
from windlass.client.batch_driver import DriverUnreachable
from windlass.controllers.aigc_scaling.controller import AigcScalingController

UTILISATION, PENDING = "nvidia_gpu_utilization", "pending_aigc_jobs"


class ScalingDriver(FakeDriver):
    """Driver with a class of a user. :attr:`answer`: what it answers; :attr:`asked_for`: the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Json | None = None
        self.calls: list[Json] = []
        self.series: dict[str, Json] = {}
        """Query of Prometheus → answer of the driver."""

    def post(self, path: str, body: Json) -> Json:
        if path == "/v1/metrics":
            return {
                name: self.series.get(query, {"problem": "no series"})
                for name, query in body["queries"].items()
            }
        assert path == "/v1/scaling"
        self.calls.append(body)
        if self.answer is None:
            raise DriverUnreachable("timed out")
        return self.answer


class ScalingWorld(AigcWorld):
    """One job with both of its controllers."""

    def __init__(self, manifest: Json) -> None:
        super().__init__(manifest)

    def restart(self) -> None:
        if not isinstance(self.driver, ScalingDriver):
            self.driver = ScalingDriver()
        super().restart()
        api: Any = self.api
        self.scaler = AigcScalingController(api, api, self.api.clock, self.driver)  # type: ignore[arg-type]

    def scale(self) -> bool:
        """One look of the controller of the number of workers; return whether it wrote."""

        async def once() -> bool:
            effects = await self.scaler.reconcile(KEY)
            outcome = await self.executor.perform(effects)
            for event in (*effects.events, *outcome.events):
                self.words.event(event.about, event.type, event.reason, event.message)
            return bool(outcome.written)

        try:
            return asyncio.run(once())
        except BaseExceptionGroup as group:
            raise Crash from group

    def settle(self, limit: int = 40) -> int:
        for count in range(limit):
            super().settle(limit)
            if not self.scale():
                return count
        raise AssertionError("the number of workers does not settle")

    def begin(self, *, workers: bool = True) -> None:
        super().begin(workers=workers)
        self.pass_time(1)
        self.settle()

    @property
    def record(self) -> Json:
        return self.status.get("scaling") or {}

    @property
    def workers(self) -> int:
        return len([name for name in self.pods() if "worker" in name])

    def told(self, reason: str) -> list[str]:
        """Return the messages of the events with a reason."""
        return [text for _, _, found, text in self.words.said if found == reason]

    def feed(self, **metrics: float) -> None:
        """Write metrics into the annotation of the job."""
        import json

        self.annotate({"aigc.kurator.dev/metrics": json.dumps(metrics)})

    def node(self, labels: Json | None = None, notes: Json | None = None) -> None:
        """Put the node on which all pods are."""
        key = "node-1"
        metadata = {"name": key, "labels": labels or {}, "annotations": notes or {}}
        if self.api.object(NODES, key) is None:
            self.api.put(NODES, {"metadata": metadata})
        else:
            self.api.change(NODES, key, metadata=metadata)

    def queue(self, name: str, capability: Json, allocated: Json | None = None, parent: str = "") -> None:
        spec: Json = {"capability": capability, **({"parent": parent} if parent else {})}
        self.api.put(
            QUEUES, {"metadata": {"name": name}, "spec": spec, "status": {"allocated": allocated or {}}}
        )

    def mark_pods(self, notes: Json) -> None:
        """Annotate all workers."""
        for name in self.pods():
            if "worker" in name:
                self.api.change(PODS, f"default/{name}", metadata={"annotations": notes})


def scaled(
    gpus: int = 1, replicas: int | None = None, notes: Json | None = None, **scale: Any
) -> ScalingWorld:
    """Return a world with a job that scales. Keywords: ``spec.autoscale``."""
    manifest = aigc_job(gpus, notes, replicas=replicas, autoscale=scale, batching={"size": 10})
    world = ScalingWorld(manifest)
    world.node()
    return world

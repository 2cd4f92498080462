"""Scheduling over HTTP with objects alone: a namespace, nodes without machines, and the scheduler that serves them.

Each scene has its own namespace, nodes, queue and scheduler name, so that tests do not see one another's pods as
theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

from clusters import Cluster

from windlass.api.errors import StatusError
from windlass.api.resources import NODES, POD_GROUPS, PODS, QUEUES
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.client.transport import Transport
from windlass.kits.clock import SystemClock
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.service import SchedulerService

Json = dict[str, Any]
PATIENCE = 120.0


class Scene:
    """A namespace with nodes and a queue of its own, and the scheduler that serves it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.namespace = namespace
        self.scheduler = f"windlass-{namespace}"
        self.queue = f"q-{namespace}"
        self.clock = SystemClock()
        self._cluster = cluster
        self.client = self.connect()
        self._running: list[asyncio.Task[None]] = []
        self._nodes: list[str] = []

    @property
    def embedded(self) -> bool:
        return self._cluster.embedded

    def connect(self, agent: str = "test", wrap: Callable[[Transport], Transport] | None = None) -> Client:
        """``wrap``: what stands between the client and its connections (:mod:`fault_transport`)."""
        transport: Transport = HttpTransport(self._cluster.connection)
        made = wrap(transport) if wrap is not None else transport
        return Client(made, user_agent=agent, clock=self.clock, rng=random.Random(1))

    # The scheduler.

    async def start(
        self,
        wrap: Callable[[Transport], Transport] | None = None,
        agent: str = "windlass-scheduler",
        **options: Any,
    ) -> SchedulerService:
        """``agent``: another name where more is asked for than the chart allows by default."""
        client = self.connect(agent, wrap)
        service = SchedulerService(
            client,
            clock=self.clock,
            rng=random.Random(2),
            options=SchedulerOptions(scheduler_names=(self.scheduler,), **options),
        )

        async def run() -> None:
            try:
                await service.run()
            finally:
                await client.close()

        self._running.append(asyncio.create_task(run()))
        await asyncio.wait_for(service.ready.wait(), PATIENCE)
        return service

    async def kill(self) -> None:
        """End all schedulers, at once and without a word."""
        for task in self._running:
            task.cancel()
        for result in await asyncio.gather(*self._running, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result
        self._running.clear()

    async def close(self) -> None:
        await self.kill()
        for obj in (await self.client.list(PODS, self.namespace)).items:
            with contextlib.suppress(StatusError):
                await self.client.delete(PODS, obj["metadata"]["name"], self.namespace, grace_seconds=0)
        for name in self._nodes:
            await self.client.delete(NODES, name)
        await self.client.close()
        self._cluster.close()

    # The world.

    async def node(self, name: str, gpus: int) -> str:
        full = f"{self.namespace}-{name}"
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}],
        }
        labels = {"scene": self.namespace, "kubernetes.io/hostname": full}
        obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": full, "labels": labels},
            "status": status,
        }
        await self.client.create(NODES, obj)
        self._nodes.append(full)
        # a real server's admission marks a new node as not ready until a controller has looked at it
        change = {"spec": {"taints": None, "unschedulable": None}}
        await self.client.patch(NODES, full, change)
        return full

    async def make_queue(self, **spec: Any) -> None:
        obj = {
            "apiVersion": QUEUES.api_version,
            "kind": "Queue",
            "metadata": {"name": self.queue},
            "spec": spec,
        }
        await self.client.create(QUEUES, obj)

    async def gang(self, name: str, members: int, **spec: Any) -> None:
        await self.group_of(name, members, **spec)
        for i in range(members):
            await self.pod(f"{name}-{i}", group=name)

    async def group_of(self, name: str, members: int, **spec: Any) -> None:
        """A gang's PodGroup."""
        obj = {
            "apiVersion": POD_GROUPS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"minMember": members, "queue": self.queue, **spec},
        }
        await self.client.create(POD_GROUPS, obj)

    async def pod(
        self,
        name: str,
        *,
        group: str = "",
        gpus: int = 1,
        scheduler: str = "",
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        notes = {"scheduling.volcano.sh/queue-name": self.queue, **(annotations or {})}
        if group:
            notes["scheduling.k8s.io/group-name"] = group
        obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "annotations": notes,
                "labels": labels or {},
            },
            "spec": {
                "schedulerName": scheduler or self.scheduler,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {"scene": self.namespace},
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
                ],
                **spec,
            },
        }
        await self.client.create(PODS, obj)

    async def phase(self, name: str, phase: str) -> None:
        """What a node agent would say of a pod."""
        await self.client.patch(
            PODS, name, {"status": {"phase": phase}}, self.namespace, kind="strategic", subresource="status"
        )

    # Questions.

    async def pods(self) -> dict[str, Json]:
        found = await self.client.list(PODS, self.namespace)
        return {obj["metadata"]["name"]: obj for obj in found.items}

    async def bound(self) -> dict[str, str]:
        """Pod → node."""
        found = await self.pods()
        return {name: o["spec"]["nodeName"] for name, o in sorted(found.items()) if o["spec"].get("nodeName")}

    async def group(self, name: str) -> Json:
        return await self.client.get(POD_GROUPS, name, self.namespace)

    async def group_phase(self, name: str) -> str:
        return ((await self.group(name)).get("status") or {}).get("phase", "")

    async def check(self) -> None:
        """No device is given twice, no index lies outside the node."""
        taken: dict[tuple[str, str], str] = {}
        for name, obj in (await self.pods()).items():
            devices = obj["metadata"].get("annotations", {}).get("windlass.dev/devices", "")
            where = obj["spec"].get("nodeName", "")
            if not where or obj["metadata"].get("deletionTimestamp"):
                continue
            if (obj["status"].get("phase") or "") in ("Succeeded", "Failed"):
                continue
            for index in filter(None, devices.split(",")):
                other = taken.setdefault((where, index), name)
                assert other == name, f"device {index} of {where} is given to {other} and to {name}"


async def eventually(check: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE) -> Any:
    """Ask until the answer is true."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while True:
        answer = await check()
        if answer:
            return answer
        assert clock.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.05)

"""HAMi's node lock: names the pod to which HAMi's device plugin assigns devices next.

The plugin does not know for which container the kubelet asks. It takes the pod named by
the node's annotation ``hami.io/mutex.lock``, assigns the devices listed in that pod's
annotations, and removes the lock once all containers have theirs, or after a failure.
So pods with GPUs are bound one by one to a node of HAMi, by HAMi's scheduler and by
Windlass.

Invariants: the lock is written with the node's resource version, so one of two writers
fails. A lock older than five minutes, or of a pod that does not exist, is ignored, as
HAMi does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.devices.request import GPU
from windlass.api.errors import StatusError
from windlass.api.reasons import Reason
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.responses import may_pass
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs

EXPIRED_SECONDS = 300.0
"""Maximum age of a lock in seconds, HAMi's ``NodeLockTimeout``."""
PATIENCE_SECONDS = 60.0
"""Timeout in seconds of waiting for another pod's lock."""
RELEASE_SECONDS = 5.0
"""Timeout in seconds of releasing a lock."""
_POLL_SECONDS = 0.1
log = logs.get("scheduler")


class HamiLocks:
    """Locks of HAMi's nodes (:class:`windlass.scheduler.commit.node_locks.SerialNodes`).

    ``model`` has nodes and pods as the informers show them, and records which pods
    wait.
    """

    def __init__(self, client: Client, model: ClusterModel, *, clock: Clock) -> None:
        self._client = client
        self._model = model
        self._nodes: Mapping[str, views.NodeObject] = model.objects.nodes
        self._pods: Mapping[str, views.Pod] = model.objects.pods
        self._clock = clock
        self._queues: dict[str, asyncio.Lock] = {}
        """Node → queue of the binds of this process, in their order."""
        self._acquired: dict[str, str] = {}
        """Pod → resource version of its locked node, until the pod is bound."""

    def applies_to(self, bind: Bind) -> bool:
        node = self._nodes.get(bind.node)
        if node is None or names.REGISTER_HAMI not in node.annotations:
            return False
        pod = self._pods.get(bind.task)
        requests_gpu = pod is not None and any(GPU in dict(request.amounts) for request in pod.shape.devices)
        return requests_gpu and any(share.resource == GPU for share in bind.devices)

    async def acquire(self, bind: Bind) -> str:
        if len(self._queues) > len(self._nodes):  # some nodes do not exist any more
            self._queues = {
                name: queue for name, queue in self._queues.items() if name in self._nodes or queue.locked()
            }
        queue = self._queues.setdefault(bind.node, asyncio.Lock())
        if queue.locked():
            self._awaits(bind, "others that came first")
        try:
            async with queue:
                return await self._acquire(bind)
        finally:
            self._awaits(bind, "")

    async def _acquire(self, bind: Bind) -> str:
        until = self._clock.monotonic() + PATIENCE_SECONDS
        while (node := self._nodes.get(bind.node)) is not None:
            holder = self._holder(node, bind.task)
            if holder == bind.task:
                return ""
            if not holder:
                text = f"{rfc3339(self._clock.now())},{bind.task.replace('/', ',')}"
                problem = await self._write(node.name, node.resource_version, text, bind.task)
                if problem is not None:
                    return problem
            else:
                self._awaits(bind, holder)
            if self._clock.monotonic() >= until:
                return (
                    f"HAMi's device plugin still assigns GPUs of node {bind.node} to another pod ({holder})"
                )
            await self._clock.sleep(_POLL_SECONDS)
        return f"node {bind.node} is gone"

    def _awaits(self, bind: Bind, holder: str) -> None:
        """Record which pod gets devices of the node first. ``""``: this one."""
        what = f"node {bind.node}, {holder}" if holder else ""
        self._model.binds.set_awaited(bind.task, Reason.AWAITING_NODE_LOCK, what)

    async def release(self, bind: Bind) -> None:
        version = self._acquired.pop(bind.task, "")
        if version and await self._write(bind.node, version, None, "") is not None:
            return
        until = self._clock.monotonic() + RELEASE_SECONDS
        while (node := self._nodes.get(bind.node)) is not None and self._clock.monotonic() < until:
            held = self._holder(node, bind.task) == bind.task
            if held and await self._write(node.name, node.resource_version, None, "") is not None:
                return
            await self._clock.sleep(_POLL_SECONDS)

    def bound(self, bind: Bind) -> None:
        self._acquired.pop(bind.task, None)

    def _holder(self, node: views.NodeObject, task: str) -> str:
        """Return the pod that holds the lock, ``""`` if the lock is free.

        Older versions of HAMi write a lock without a pod.
        """
        text = node.annotations.get(names.LOCK_HAMI, "")
        if not text:
            return ""
        time, *owner = text.split(",")
        key = "/".join(owner) if len(owner) == 2 else ""
        if key == task:
            return key
        try:
            expired = self._clock.now() - parse_rfc3339(time) > EXPIRED_SECONDS
        except ValueError:
            expired = True
        return "" if expired or (key and key not in self._pods) else key or "a pod that it does not name"

    async def _write(self, node: str, version: str, text: str | None, task: str) -> str | None:
        """Write the lock for ``task``, or remove it.

        Returns ``""`` if that is done, why it cannot be, or ``None`` for another
        attempt.
        """
        patch = {"metadata": {"resourceVersion": version, "annotations": {names.LOCK_HAMI: text}}}
        try:
            written = await self._client.patch(resources.NODES, node, patch)
        except Unreachable:
            return None
        except StatusError as error:
            if may_pass(error):
                return None
            log.warning("node lock of HAMi's device plugin not written", node=node, why=error.message)
            return f"node {node} is HAMi's, and its lock cannot be taken: {error.message}"
        if task:
            self._acquired[task] = written["metadata"].get("resourceVersion", "")
        return ""

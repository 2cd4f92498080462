"""Whose pod HAMi's device plug-in hands cards to next: an annotation on its node that schedulers take in turn.

The plug-in is not told whose container it is asked about. It goes by the pod that ``hami.io/mutex.lock`` of the node
names, hands out the cards that this pod's annotations list, and takes the lock off once all containers have theirs, or
after a failure. So pods with cards are bound to a node of HAMi one by one, by HAMi's scheduler and by this one.

Invariants: the lock is written with the node's version as it was seen, so that one of two takers fails; a lock of
five minutes ago, or of a pod that is not there any more, counts for nothing, as for HAMi.
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
"""HAMi's ``NodeLockTimeout``."""
PATIENCE_SECONDS = 60.0
"""So long is the lock of another pod waited for; then the scheduler looks elsewhere."""
GIVE_BACK_SECONDS = 5.0
_POLL_SECONDS = 0.1
log = logs.get("scheduler")


class HamiLocks:
    """``model`` has nodes and pods as the watch shows them, and is told who waits."""

    def __init__(self, client: Client, model: ClusterModel, *, clock: Clock) -> None:
        self._client = client
        self._model = model
        self._nodes: Mapping[str, views.NodeObject] = model.nodes
        self._pods: Mapping[str, views.Pod] = model.pods
        self._clock = clock
        self._queues: dict[str, asyncio.Lock] = {}
        """Of this process, those who wait for a node, in their order."""
        self._taken: dict[str, str] = {}
        """Pod → the version of its node with its lock, until it is bound."""

    def due(self, bind: Bind) -> bool:
        node = self._nodes.get(bind.node)
        if node is None or names.REGISTER_HAMI not in node.annotations:
            return False
        pod = self._pods.get(bind.task)
        asks = pod is not None and any(GPU in dict(one.amounts) for one in pod.shape.devices)
        return asks and any(share.resource == GPU for share in bind.devices)

    async def take(self, bind: Bind) -> str:
        if len(self._queues) > len(self._nodes):  # some are gone
            self._queues = {
                name: it for name, it in self._queues.items() if name in self._nodes or it.locked()
            }
        queue = self._queues.setdefault(bind.node, asyncio.Lock())
        if queue.locked():
            self._waits(bind, "others, who came first")
        try:
            async with queue:
                return await self._take(bind)
        finally:
            self._waits(bind, "")

    async def _take(self, bind: Bind) -> str:
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
                self._waits(bind, holder)
            if self._clock.monotonic() >= until:
                return (
                    f"HAMi's device plug-in still hands cards of node {bind.node} to another pod ({holder})"
                )
            await self._clock.sleep(_POLL_SECONDS)
        return f"node {bind.node} is gone"

    def _waits(self, bind: Bind, holder: str) -> None:
        """Who gets cards of the node before this pod; ``""``: nobody any more."""
        what = f"node {bind.node}, {holder}" if holder else ""
        self._model.awaits(bind.task, Reason.AWAITING_NODE_LOCK, what)

    async def give_back(self, bind: Bind) -> None:
        version = self._taken.pop(bind.task, "")
        if version and await self._write(bind.node, version, None, "") is not None:
            return
        until = self._clock.monotonic() + GIVE_BACK_SECONDS
        while (node := self._nodes.get(bind.node)) is not None and self._clock.monotonic() < until:
            held = self._holder(node, bind.task) == bind.task
            if held and await self._write(node.name, node.resource_version, None, "") is not None:
                return
            await self._clock.sleep(_POLL_SECONDS)

    def bound(self, bind: Bind) -> None:
        self._taken.pop(bind.task, None)

    def _holder(self, node: views.NodeObject, task: str) -> str:
        """The pod that the node is locked for, ``""`` if it is free. A word without one is an older HAMi's."""
        text = node.annotations.get(names.LOCK_HAMI, "")
        if not text:
            return ""
        moment, *owner = text.split(",")
        key = "/".join(owner) if len(owner) == 2 else ""
        if key == task:
            return key
        try:
            expired = self._clock.now() - parse_rfc3339(moment) > EXPIRED_SECONDS
        except ValueError:
            expired = True
        return "" if expired or (key and key not in self._pods) else key or "it says not which"

    async def _write(self, node: str, version: str, text: str | None, task: str) -> str | None:
        """Put the lock on a node, for ``task``, or take it off; ``""`` if it is done, why it never can be, or None to
        try again."""
        patch = {"metadata": {"resourceVersion": version, "annotations": {names.LOCK_HAMI: text}}}
        try:
            written = await self._client.patch(resources.NODES, node, patch)
        except Unreachable:
            return None
        except StatusError as error:
            if may_pass(error):
                return None
            log.warning("the lock of HAMi's device plug-in cannot be written", node=node, why=error.message)
            return f"node {node} is HAMi's, and its lock cannot be taken: {error.message}"
        if task:
            self._taken[task] = written["metadata"].get("resourceVersion", "")
        return ""

"""Locks of nodes on which pods must be bound one by one.

A device plugin of another project may read on the node which pod comes next. The only
one known is HAMi's (:mod:`windlass.scheduler.commit.hami_node_lock`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from windlass.api import annotations as names
from windlass.client.client import Client
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler import features


class SerialNodes(Protocol):
    """Nodes on which pods are bound one by one."""

    def applies_to(self, bind: Bind) -> bool:
        """Return whether a bind needs the lock of its node."""
        ...

    async def acquire(self, bind: Bind) -> str:
        """Wait for the lock. Return ``""``, or why it cannot be had."""
        ...

    async def release(self, bind: Bind) -> None:
        """Release the lock of a bind that has failed. Never raises."""
        ...

    def bound(self, bind: Bind) -> None:
        """Leave the lock of a bind that has succeeded to the device plugin."""
        ...


class NodeLocks:
    """Node locks of HAMi's device plugin, loaded when a node has registered with HAMi."""

    def __init__(self, client: Client, model: ClusterModel, *, clock: Clock) -> None:
        self._client = client
        self._model = model
        self._clock = clock

    @cached_property
    def _hami(self) -> SerialNodes:
        module = features.load(features.HAMI_NODE_LOCK)
        return module.HamiLocks(self._client, self._model, clock=self._clock)

    def applies_to(self, bind: Bind) -> bool:
        node = self._model.objects.nodes.get(bind.node)
        if node is None or names.REGISTER_HAMI not in node.annotations:
            return False
        return self._hami.applies_to(bind)

    async def acquire(self, bind: Bind) -> str:
        return await self._hami.acquire(bind)

    async def release(self, bind: Bind) -> None:
        await self._hami.release(bind)

    def bound(self, bind: Bind) -> None:
        self._hami.bound(bind)

"""Reconciler that tells the rendezvous of elastic jobs their worlds, in a cluster.

Keys are ``namespace/name`` of the pods that hold a rendezvous. In a cluster the
controllers reach pods by their addresses. In single-node mode they do not, and the node
agent does this (:mod:`windlass.node.pods.rendezvous`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from windlass.api import annotations as names
from windlass.api.resources import PODS
from windlass.api.views import Pod, decode_pod
from windlass.client import torch_store
from windlass.client.informers import Informer
from windlass.client.rendezvous import announce_once, rendezvous_of, world_of
from windlass.controllers.effects import NOTHING, Effects, EmitEvent, pod_reference
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.rendezvous.state import RendezvousStateError

POLL_SECONDS = 0.25
"""Interval between looks while a round forms."""
SETTLED_SECONDS = 1.0
"""Interval between looks at a round that has the announced world."""
RETRY_SECONDS = 2.0
"""Interval between attempts to connect."""
CONNECT_SECONDS = 2.0
"""Timeout of a connection."""


class RendezvousController:
    """Announcer of all elastic jobs of a cluster."""

    name = "rendezvous"
    pause_seconds = 0.0

    def __init__(self, informers: Informers) -> None:
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)

    def watches(self) -> Iterable[WatchedCollection]:
        return (WatchedCollection(self._pods, _keys),)

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        pod = self._pods.items.get(key)
        rendezvous = rendezvous_of(pod.annotations) if pod is not None else None
        if pod is None or rendezvous is None or pod.phase != "Running" or pod.deleting or not pod.pod_ip:
            return NOTHING
        world = world_of(pod.annotations)
        if not world:
            return NOTHING

        async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(pod.pod_ip, rendezvous.port)

        try:
            store = await torch_store.connect(dial)
        except OSError:
            return Effects(requeue_after=RETRY_SECONDS)
        try:
            result = await announce_once(store, rendezvous, world)
        except RendezvousStateError as error:
            message = f"the rendezvous is not told its world: {error}"
            event = EmitEvent(pod_reference(pod), "Warning", "RendezvousUnreadable", message, lasting=True)
            return Effects(events=(event,), requeue_after=RETRY_SECONDS)
        except (OSError, ValueError):
            return Effects(requeue_after=RETRY_SECONDS)
        finally:
            store.close()
        return Effects(requeue_after=SETTLED_SECONDS if result.settled else POLL_SECONDS)


def _keys(pod: Pod) -> Iterable[str]:
    return (pod.key,) if names.RENDEZVOUS in pod.annotations else ()

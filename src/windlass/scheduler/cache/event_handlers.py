"""Event handlers of the informers: which kinds are followed, and what is told of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from windlass.api import resources, views
from windlass.client.client import Client
from windlass.client.informers import Informer, SharedInformers
from windlass.client.served import is_served
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.kinds import KINDS, PODS, Kind
from windlass.observe import logs

PROBE_SECONDS = 60.0
"""Interval in seconds between checks for optional kinds that the server did not serve."""
ANSWER_SECONDS, RETRY_SECONDS = 30.0, 0.5
"""Timeout and interval in seconds of the first checks for optional kinds.

They follow once all other kinds are synced. A kind with a broken conversion webhook
never answers.
"""
log = logs.get("scheduler")
PodChanged = Callable[[views.Pod | None, views.Pod | None], None]


class EventHandlers:
    """Hands events of the informers to the model.

    ``on_pod(old, new)`` and ``on_queue_removed(name)`` are called after the model has
    changed. ``wake()`` is called after every change. ``client`` asks which optional
    kinds the server serves.
    """

    def __init__(
        self,
        informers: SharedInformers,
        model: ClusterModel,
        client: Client,
        *,
        on_pod: PodChanged,
        on_queue_removed: Callable[[str], None],
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._model = model
        self._client = client
        self._on_pod = on_pod
        self._on_queue_removed = on_queue_removed
        self._wake = wake
        self._clock = clock
        self._informers: list[Informer[Any]] = []
        self._shared = informers
        self._followed: set[resources.Resource] = set()
        self._optional: dict[resources.Resource, Kind] = {}
        for kind in KINDS:
            if kind.resource is None or kind is PODS:
                continue
            if kind.required:
                self._follow(kind.resource, kind)
            else:
                self._optional[kind.resource] = kind
        self._pods = informers.informer(resources.PODS, decode=PODS.decode, early=True)
        self._pods.add_handler(
            lambda new: self._pod(None, new),
            lambda old, new: self._pod(old, new),
            lambda old: self._pod(old, None),
        )

    async def wait_kinds(self) -> None:
        """Return once all kinds but pods are synced, and it is known which optional ones exist.

        Pods are placed and evicted as if a missing kind (claims, budgets, quotas) had
        no objects. A server that has just started may forbid everything for a moment,
        so it is asked again after the other kinds are synced.
        """
        await self._follow_served()
        await self._wait_synced()
        unanswered = await self._follow_served()
        until = self._clock.monotonic() + ANSWER_SECONDS
        while unanswered and self._clock.monotonic() < until:
            await self._clock.sleep(RETRY_SECONDS)
            unanswered = await self._follow_served()
        if unanswered:
            kinds = ",".join(resource.qualified for resource in unanswered)
            log.warning("optional kinds left out: the server does not say whether it has them", kinds=kinds)
        await self._wait_synced()

    async def _follow_served(self) -> list[resources.Resource]:
        """Follow the optional kinds that the server serves and that are not followed yet.

        Returns the kinds about which the server does not answer.
        """
        open_kinds = [kind for kind in self._optional if kind not in self._followed]
        answers = await asyncio.gather(*(is_served(self._client, kind) for kind in open_kinds))
        for resource, served in zip(open_kinds, answers, strict=True):
            if served and resource not in self._followed:  # another call may have followed it meanwhile
                self._followed.add(resource)
                self._follow(resource, self._optional[resource])
        if {resources.STORAGE_CLASSES, resources.PERSISTENT_VOLUME_CLAIMS} <= self._followed:
            self._model.features.volumes.set_served()
        self._model.provisioning.served = resources.PROVISIONING_REQUESTS in self._followed
        return [resource for resource, served in zip(open_kinds, answers, strict=True) if served is None]

    async def follow_new_kinds(self) -> None:
        """Check for optional kinds that are installed later, until cancelled."""
        while len(self._followed) < len(self._optional):
            await self._clock.sleep(PROBE_SECONDS)
            await self._follow_served()

    async def _wait_synced(self) -> None:
        """Return once all followed kinds but pods are synced."""
        for informer in self._informers:
            await informer.wait_synced()

    async def wait_pods(self) -> None:
        """Return once all pods are known. They are handed on as they come."""
        await self._pods.wait_synced()

    def unsynced(self) -> list[str]:
        """Return the kinds that are not synced yet."""
        return [i.resource.qualified for i in (*self._informers, self._pods) if not i.synced]

    def _follow(self, resource: resources.Resource, kind: Kind) -> None:
        def changed(new: Any) -> None:
            kind.upsert(self._model, new)
            self._wake()

        def removed(old: Any) -> None:
            kind.remove(self._model, old)
            if resource is resources.QUEUES:
                self._on_queue_removed(old.name)
            self._wake()

        informer = self._shared.informer(resource, decode=kind.decode)
        informer.add_handler(changed, lambda _, new: changed(new), removed)
        self._informers.append(informer)

    def _pod(self, old: views.Pod | None, new: views.Pod | None) -> None:
        if new is not None:
            self._model.objects.upsert_pod(new)
        elif old is not None:
            self._model.objects.remove_pod(old.key)
        self._on_pod(old, new)
        self._wake()

"""Reconciler of namespaces: it lists the content of a terminating one. Keys are names."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.api.resources import ALIASES, ALL, EVENTS_V1, NAMESPACES, Resource
from windlass.api.views import Namespace, decode_namespace
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.custom_kinds import FollowedKinds
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.namespace.reconcile import Content, NamespaceSnapshot, reconcile
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

CONTENT: tuple[Resource, ...] = tuple(r for r in ALL if r.namespaced and r not in ALIASES and r != EVENTS_V1)
"""Every namespaced kind, once (events of both groups are the same objects)."""
PAGE_SIZE = 500


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


class NamespaceController:
    name = "namespace"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kinds = FollowedKinds(informers)
        self._namespaces: Informer[Namespace] = informers.informer(NAMESPACES, decode=decode_namespace)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(
                self._namespaces, lambda namespace: [namespace.name] if namespace.deleted else []
            ),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        cached = self._namespaces.items.get(key)
        if cached is None or not cached.deleted:
            return NOTHING
        namespace = await self._client.find(NAMESPACES, key)
        if namespace is None or namespace["metadata"].get("uid") != cached.uid:
            return NOTHING
        content = {}
        for resource in (*CONTENT, *(kind for kind in self._kinds.resources() if kind.namespaced)):
            found = await self._client.list(resource, key, limit=PAGE_SIZE, type=_Object)
            content[resource] = [_content(obj.metadata) for obj in found.items]
        return reconcile(namespace, NamespaceSnapshot(content, self._clock.now()))


def _content(meta: _Meta) -> Content:
    return Content(meta.name, meta.uid, meta.deletion_timestamp is not None, meta.finalizers or ())

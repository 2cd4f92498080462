"""Reconciler of CustomResourceDefinitions on the embedded server. Keys are names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.api.structural.definition import resources_of
from windlass.client.client import Client
from windlass.controllers.custom_kinds import FollowedKinds, kinds_of
from windlass.controllers.definitions.reconcile import DefinitionSnapshot, Instance, reconcile
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

PAGE_SIZE = 500


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


class DefinitionController:
    name = "definitions"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kinds = FollowedKinds(informers)

    def watches(self) -> Iterable[WatchedCollection]:
        return (WatchedCollection(self._kinds.informer, self._group),)

    def _group(self, crd: Mapping[str, Any]) -> list[str]:
        """Return the names of all definitions of the group: a change may make a name free."""
        group = crd["spec"]["group"]
        others = [
            name for name, other in self._kinds.informer.items.items() if other["spec"]["group"] == group
        ]
        return [crd["metadata"]["name"], *others]

    def initial_keys(self) -> Iterable[str]:
        return list(self._kinds.informer.items)

    async def reconcile(self, key: str) -> Effects:
        crd = self._kinds.informer.items.get(key)
        if crd is None:
            return NOTHING
        group = crd["spec"]["group"]
        others = [
            other
            for name, other in self._kinds.informer.items.items()
            if name != key and other["spec"]["group"] == group
        ]
        kind = next(iter(kinds_of(crd)), None)
        instances: list[Instance] = []
        if kind is not None and crd["metadata"].get("deletionTimestamp"):
            found = await self._client.list(kind, limit=PAGE_SIZE, type=_Object)
            instances = [_instance(item.metadata) for item in found.items]
        built_in = kind is None and bool(resources_of(crd))
        return reconcile(crd, DefinitionSnapshot(kind, instances, others, self._clock.now(), built_in))


def _instance(meta: _Meta) -> Instance:
    return Instance(meta.name, meta.namespace, meta.uid, meta.deletion_timestamp is not None)

"""The garbage collector: what it follows, and how it judges owners. Keys are uids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from windlass.api.resources import Resource
from windlass.api.views import OwnerReference
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.garbage.graph import COLLECTED, Graph, Item, ItemDecoder, owner_resource
from windlass.controllers.garbage.step import OwnersSnapshot, step
from windlass.controllers.runner import WatchedCollection


class GarbageInformers(Protocol):
    def informer(self, resource: Resource, *, decode: Any = dict) -> Informer[Any]: ...


class GarbageController:
    name = "garbage"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: GarbageInformers) -> None:
        self._client = client
        self.graph = Graph()
        self._informers: list[Informer[Item]] = []
        for resource in COLLECTED:
            informer = informers.informer(resource, decode=ItemDecoder(resource))
            informer.add_handler(self.graph.add, self.graph.update, self.graph.remove)
            self._informers.append(informer)

    def watches(self) -> Iterable[WatchedCollection]:
        return [WatchedCollection(informer, self.graph.concerned, _matters) for informer in self._informers]

    def first_keys(self) -> Iterable[str]:
        return ()

    async def look(self, key: str) -> Effects:
        item = self.graph.get(key)
        if item is None or not (item.owners or item.deleted):
            return NOTHING
        solid: list[OwnerReference] = []
        waiting: list[OwnerReference] = []
        absent: list[OwnerReference] = []
        for owner in item.owners if not item.deleted else ():
            judged = await self._judge(item, owner)
            (solid if judged == "solid" else waiting if judged == "waiting" else absent).append(owner)
        dependents = tuple(self.graph.dependents(item.uid)) if item.deleted or not solid else ()
        return step(item, OwnersSnapshot(tuple(solid), tuple(waiting), tuple(absent), dependents))

    async def _judge(self, item: Item, owner: OwnerReference) -> str:
        """``solid``, ``waiting`` or ``absent``. Absence in the caches is confirmed by the server.

        An owner of a kind that is not served, or a namespaced one of a cluster-wide object, cannot be
        judged: it counts as solid, since nothing is deleted on a guess.
        """
        resource = owner_resource(owner)
        if resource is None or (resource.namespaced and not item.namespace):
            return "solid"
        held = self.graph.get(owner.uid)
        if held is not None and held.resource == resource and self._reachable(item, held):
            return "waiting" if held.waits_for_dependents else "solid"
        if held is None and self.graph.is_gone(owner.uid):
            return "absent"
        namespace = item.namespace if resource.namespaced else None
        found = await self._client.find(resource, owner.name, namespace)
        if found is not None and found["metadata"].get("uid") == owner.uid:
            return "solid"
        if held is None:
            self.graph.remember_gone(owner.uid)
        return "absent"

    @staticmethod
    def _reachable(item: Item, owner: Item) -> bool:
        """An owner is cluster-wide or lives in the dependent's namespace."""
        return not owner.namespace or owner.namespace == item.namespace


def _matters(old: Item, new: Item) -> bool:
    return (
        old.owners != new.owners
        or old.finalizers != new.finalizers
        or old.deleted != new.deleted
        or old.uid != new.uid
    )

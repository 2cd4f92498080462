"""Garbage collector: the objects it follows, and the state of their owners. Keys are UIDs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windlass.api.resources import Resource
from windlass.api.views import OwnerReference
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.custom_kinds import FollowedKinds, kinds_of
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.garbage.graph import COLLECTED, Graph, Item, ItemDecoder
from windlass.controllers.garbage.reconcile import OwnersSnapshot, reconcile
from windlass.controllers.runner import Informers, WatchedCollection


class GarbageController:
    name = "garbage"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self.graph = Graph()
        self._informers: list[Informer[Item]] = []
        for resource in COLLECTED:
            informer = informers.informer(resource, decode=ItemDecoder(resource))
            informer.add_handler(self.graph.add, self.graph.update, self.graph.remove)
            self._informers.append(informer)
        self._source = informers
        self._kinds = FollowedKinds(informers)
        self._follow: Callable[[WatchedCollection], None] = lambda _: None
        self._custom: dict[Resource, Informer[Item]] = {}

    def watches(self) -> Iterable[WatchedCollection]:
        return [
            *(
                WatchedCollection(informer, self.graph.affected_keys, _matters)
                for informer in self._informers
            ),
            WatchedCollection(self._kinds.informer, lambda _: ()),
        ]

    def grow(self, follow: Callable[[WatchedCollection], None]) -> None:
        """Follow the kinds of CustomResourceDefinitions from now on, too."""
        self._follow = follow
        changed = self._follow_kinds
        self._kinds.informer.add_handler(
            lambda _: changed(), lambda _old, _new: changed(), lambda _: changed()
        )

    def _follow_kinds(self) -> None:
        served = dict.fromkeys(self._kinds.resources())
        self.graph.custom = {
            (version.api_version, version.kind): found[0]
            for crd in self._kinds.informer.items.values()
            if (found := kinds_of(crd))
            for version in found
        }
        for resource in [resource for resource in self._custom if resource not in served]:
            self._source.drop(self._custom.pop(resource))
        for resource in served:
            if resource not in self._custom:
                informer = self._source.informer(resource, decode=ItemDecoder(resource), later=True)
                informer.add_handler(self.graph.add, self.graph.update, self.graph.remove)
                self._custom[resource] = informer
                self._follow(WatchedCollection(informer, self.graph.affected_keys, _matters))

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        item = self.graph.get(key)
        if item is None or not (item.owners or item.deleted):
            return NOTHING
        solid: list[OwnerReference] = []
        waiting: list[OwnerReference] = []
        absent: list[OwnerReference] = []
        for owner in item.owners if not item.deleted else ():
            verdict = await self._classify(item, owner)
            (solid if verdict == "solid" else waiting if verdict == "waiting" else absent).append(owner)
        dependents = tuple(self.graph.dependents(item.uid)) if item.deleted or not solid else ()
        return reconcile(item, OwnersSnapshot(tuple(solid), tuple(waiting), tuple(absent), dependents))

    async def _classify(self, item: Item, owner: OwnerReference) -> str:
        """Return ``solid``, ``waiting`` or ``absent``. The server confirms absence.

        An owner is solid if its kind is not served, or if it is namespaced and the
        dependent is cluster-wide: nothing is deleted on a guess.
        """
        resource = self.graph.owner_resource(owner)
        if resource is None or (resource.namespaced and not item.namespace):
            return "solid"
        cached = self.graph.get(owner.uid)
        if cached is not None and cached.resource == resource and self._reachable(item, cached):
            return "waiting" if cached.waits_for_dependents else "solid"
        if cached is None and self.graph.is_absent(owner.uid):
            return "absent"
        namespace = item.namespace if resource.namespaced else None
        found = await self._client.find(resource, owner.name, namespace)
        if found is not None and found["metadata"].get("uid") == owner.uid:
            return "solid"
        if cached is None:
            self.graph.remember_absent(owner.uid)
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

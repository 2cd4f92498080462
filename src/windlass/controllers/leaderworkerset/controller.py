"""Reconciler of LeaderWorkerSets: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.api.fields import leaderworkerset
from windlass.api.resources import (
    CONTROLLER_REVISIONS,
    LEADER_WORKER_SETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from windlass.api.views import PriorityClass, decode_priority_class
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.leaderworkerset.reconcile import (
    LeaderWorkerSetSnapshot,
    reconcile_leader_worker_set,
)
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

_MARK = leaderworkerset.NAME.encode()


def decode_member(raw: msgspec.Raw) -> StoredObject | None:
    """Return an object with the label of a LeaderWorkerSet, and None for all others."""
    return decode_stored_object(raw) if _MARK in bytes(raw) else None


class LeaderWorkerSetController:
    """LeaderWorkerSets. Keys are ``namespace/name``."""

    name = "leaderworkerset"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock, scheduler: str = "") -> None:
        """``scheduler``: as in :class:`LeaderWorkerSetSnapshot`."""
        self._clock, self._scheduler = clock, scheduler
        self._sets: Informer[StoredObject] = informers.informer(
            LEADER_WORKER_SETS, decode=decode_stored_object
        )
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )
        self._members: dict[Resource, Informer[StoredObject]] = {
            resource: informers.informer(resource, decode=decode_member)
            for resource in (PODS, STATEFUL_SETS, POD_GROUPS, CONTROLLER_REVISIONS)
        }
        self._of = {
            resource: RecordIndex(informer, _set_keys, lambda found: found.key)
            for resource, informer in self._members.items()
        }

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._sets, lambda found: [found.key]),
            WatchedCollection(self._services, self._service_keys),
            *(WatchedCollection(informer, _set_keys) for informer in self._members.values()),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._sets.items.get(key)
        if stored is None:
            return NOTHING
        prefix = f"{key.partition('/')[0]}/"
        observed = LeaderWorkerSetSnapshot(
            pods=tuple(found.object for found in self._of[PODS].get(key).values()),
            sets={
                name.removeprefix(prefix): one.object
                for name, one in self._of[STATEFUL_SETS].get(key).items()
            },
            groups={
                name.removeprefix(prefix): one.object for name, one in self._of[POD_GROUPS].get(key).items()
            },
            revisions=tuple(found.object for found in self._of[CONTROLLER_REVISIONS].get(key).values()),
            services=frozenset(
                name.removeprefix(prefix) for name in self._services.items if name.startswith(prefix)
            ),
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            scheduler=self._scheduler,
        )
        return reconcile_leader_worker_set(stored.object, observed)

    def _service_keys(self, service: StoredObject) -> Iterable[str]:
        return [service.key] if service.key in self._sets.items else []


def _set_keys(found: StoredObject) -> Iterable[str]:
    name = (found.object["metadata"].get("labels") or {}).get(leaderworkerset.NAME)
    return (f"{found.key.partition('/')[0]}/{name}",) if name else ()

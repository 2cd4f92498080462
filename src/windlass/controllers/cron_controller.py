"""Caches and snapshots of the reconcilers of kinds that create objects on a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api.resources import Resource
from windlass.client.informers import Informer
from windlass.controllers.cron_schedule import CronSnapshot
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock


class CronController:
    """Reconciler of ``cron_kind``, which controls objects of ``created_kind``. Keys are ``namespace/name``."""

    name: str
    cron_kind: Resource
    created_kind: Resource
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
        self._owned = ControlledBy(self.cron_kind)
        self._crons: Informer[StoredObject] = informers.informer(self.cron_kind, decode=decode_stored_object)
        self._created: Informer[StoredObject] = informers.informer(
            self.created_kind, decode=decode_stored_object
        )
        self._created_of = RecordIndex(self._created, self._owned.uids, lambda found: found.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._crons, lambda cron: [cron.key]),
            WatchedCollection(self._created, self._owned.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._crons.items.get(key)
        return NOTHING if stored is None else self.decide(stored)

    def decide(self, cron: StoredObject) -> Effects:
        """Reconcile one object."""
        raise NotImplementedError

    def created(self, cron: StoredObject) -> Mapping[str, StoredObject]:
        """Return the objects that it controls, by key."""
        return self._created_of.get(cron.uid)

    def snapshot(self, cron: StoredObject) -> CronSnapshot:
        """Return the surroundings of a CronJob."""
        own = self.created(cron)
        prefix = f"{cron.key}-"
        foreign = [name for name in self._created.items if name.startswith(prefix) and name not in own]
        return CronSnapshot(
            jobs=[found.object for found in own.values()],
            foreign=frozenset(name.partition("/")[2] for name in foreign),
            now=self._clock.now(),
        )

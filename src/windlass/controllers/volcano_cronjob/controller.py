"""Reconciler of Volcano's CronJobs: its caches and snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.resources import VOLCANO_CRON_JOBS, VOLCANO_JOBS
from windlass.client.informers import Informer
from windlass.controllers.cron_schedule import CronSnapshot
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.volcano_cronjob.reconcile import reconcile_cron_job
from windlass.kits.clock import Clock

_OWNED = ControlledBy(VOLCANO_CRON_JOBS)


class VolcanoCronJobController:
    """CronJobs of ``batch.volcano.sh``. Keys are ``namespace/name`` of the CronJob."""

    name = "cronvcjob"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
        self._crons: Informer[StoredObject] = informers.informer(
            VOLCANO_CRON_JOBS, decode=decode_stored_object
        )
        self._jobs: Informer[StoredObject] = informers.informer(VOLCANO_JOBS, decode=decode_stored_object)
        self._jobs_of = RecordIndex(self._jobs, _OWNED.uids, lambda job: job.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._crons, lambda cron: [cron.key]),
            WatchedCollection(self._jobs, _OWNED.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._crons.items.get(key)
        if stored is None:
            return NOTHING
        own = self._jobs_of.get(stored.uid)
        prefix = f"{key}-"
        foreign = [name for name in self._jobs.items if name.startswith(prefix) and name not in own]
        observed = CronSnapshot(
            jobs=[found.object for found in own.values()],
            foreign=frozenset(name.partition("/")[2] for name in foreign),
            now=self._clock.now(),
        )
        return reconcile_cron_job(stored.object, observed)

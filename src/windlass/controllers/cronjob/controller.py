"""Reconciler of ``batch/v1`` CronJobs: its caches and snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api.resources import BATCH_JOBS, CRON_JOBS
from windlass.client.informers import Informer
from windlass.controllers.cronjob.reconcile import CronJobSnapshot, reconcile_cron_job
from windlass.controllers.effects import NOTHING, Effects, controller_of
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

Json = dict[str, Any]


class CronJobController:
    """CronJobs. Keys are ``namespace/name`` of the CronJob."""

    name = "cronjob"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
        self._crons: Informer[StoredObject] = informers.informer(CRON_JOBS, decode=decode_stored_object)
        self._jobs: Informer[StoredObject] = informers.informer(BATCH_JOBS, decode=decode_stored_object)
        self._jobs_of = RecordIndex(self._jobs, _uid_of_cron, lambda job: job.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._crons, lambda cron: [cron.key]),
            WatchedCollection(self._jobs, _cron_keys),
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
        observed = CronJobSnapshot(
            jobs=[found.object for found in own.values()],
            foreign=frozenset(name.partition("/")[2] for name in foreign),
            now=self._clock.now(),
        )
        return reconcile_cron_job(stored.object, observed)


def _cron_of(job: StoredObject) -> Json | None:
    owner = controller_of(job.object)
    if owner is None or owner.get("kind") != CRON_JOBS.kind:
        return None
    return owner if owner.get("apiVersion") == CRON_JOBS.api_version else None


def _uid_of_cron(job: StoredObject) -> Iterable[str]:
    owner = _cron_of(job)
    return (owner["uid"],) if owner is not None else ()


def _cron_keys(job: StoredObject) -> Iterable[str]:
    owner = _cron_of(job)
    return (f"{job.key.partition('/')[0]}/{owner['name']}",) if owner is not None else ()

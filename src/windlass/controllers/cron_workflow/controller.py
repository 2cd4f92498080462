"""Reconciler of CronWorkflows: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.resources import CRON_WORKFLOWS, WORKFLOWS
from windlass.client.informers import Informer
from windlass.controllers.cron_workflow.reconcile import CronWorkflowSnapshot, reconcile_cron_workflow
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

_OWNED = ControlledBy(CRON_WORKFLOWS)


class CronWorkflowController:
    """CronWorkflows. Keys are ``namespace/name``."""

    name = "cronworkflow"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
        self._crons: Informer[StoredObject] = informers.informer(CRON_WORKFLOWS, decode=decode_stored_object)
        self._workflows: Informer[StoredObject] = informers.informer(WORKFLOWS, decode=decode_stored_object)
        self._workflows_of = RecordIndex(self._workflows, _OWNED.uids, lambda found: found.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._crons, lambda found: [found.key]),
            WatchedCollection(self._workflows, _OWNED.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._crons.items.get(key)
        if stored is None:
            return NOTHING
        workflows = tuple(found.object for found in self._workflows_of.get(stored.uid).values())
        return reconcile_cron_workflow(stored.object, CronWorkflowSnapshot(workflows, self._clock.now()))

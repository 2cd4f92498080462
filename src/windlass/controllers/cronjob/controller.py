"""Reconciler of ``batch/v1`` CronJobs."""

from __future__ import annotations

from windlass.api.resources import BATCH_JOBS, CRON_JOBS
from windlass.controllers.cron_controller import CronController
from windlass.controllers.cronjob.reconcile import reconcile_cron_job
from windlass.controllers.effects import Effects
from windlass.controllers.expectations import StoredObject


class CronJobController(CronController):
    """CronJobs. Keys are ``namespace/name`` of the CronJob."""

    name = "cronjob"
    cron_kind, created_kind = CRON_JOBS, BATCH_JOBS

    def decide(self, cron: StoredObject) -> Effects:
        return reconcile_cron_job(cron.object, self.snapshot(cron))

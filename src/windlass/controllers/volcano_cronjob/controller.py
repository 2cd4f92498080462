"""Reconciler of Volcano's CronJobs."""

from __future__ import annotations

from windlass.api.resources import VOLCANO_CRON_JOBS, VOLCANO_JOBS
from windlass.controllers.cron_controller import CronController
from windlass.controllers.effects import Effects
from windlass.controllers.expectations import StoredObject
from windlass.controllers.volcano_cronjob.reconcile import reconcile_cron_job


class VolcanoCronJobController(CronController):
    """CronJobs of ``batch.volcano.sh``. Keys are ``namespace/name`` of the CronJob."""

    name = "cronvcjob"
    cron_kind, created_kind = VOLCANO_CRON_JOBS, VOLCANO_JOBS

    def decide(self, cron: StoredObject) -> Effects:
        return reconcile_cron_job(cron.object, self.snapshot(cron))

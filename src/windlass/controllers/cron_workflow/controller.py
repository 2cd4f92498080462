"""Reconciler of CronWorkflows."""

from __future__ import annotations

from windlass.api.resources import CRON_WORKFLOWS, WORKFLOWS
from windlass.controllers.cron_controller import CronController
from windlass.controllers.cron_workflow.reconcile import CronWorkflowSnapshot, reconcile_cron_workflow
from windlass.controllers.effects import Effects
from windlass.controllers.expectations import StoredObject


class CronWorkflowController(CronController):
    """CronWorkflows. Keys are ``namespace/name``."""

    name = "cronworkflow"
    cron_kind, created_kind = CRON_WORKFLOWS, WORKFLOWS

    def decide(self, cron: StoredObject) -> Effects:
        workflows = tuple(found.object for found in self.created(cron).values())
        return reconcile_cron_workflow(cron.object, CronWorkflowSnapshot(workflows, self._clock.now()))

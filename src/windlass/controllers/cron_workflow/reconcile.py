"""Reconciliation of a CronWorkflow: workflows at the times of its schedules.

The name of a workflow follows from its time. A controller that stops after the creation
and before the status therefore creates no second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.api.resources import CRON_WORKFLOWS, WORKFLOWS
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    controller_reference,
    reference,
)
from windlass.kits.cron import last_due, parse_cron
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.expressions import boolean
from windlass.workflow.language.scope import Scope

Json = dict[str, Any]
LATE_SECONDS = 60.0
"""Seconds after its time in which a workflow is created without ``startingDeadlineSeconds``."""
SCHEDULED_TIME = "workflows.argoproj.io/scheduled-time"
CRON_WORKFLOW = "workflows.argoproj.io/cron-workflow"


@dataclass(frozen=True, slots=True)
class CronWorkflowSnapshot:
    """Workflows that a CronWorkflow controls, and the time in Unix seconds."""

    workflows: tuple[Json, ...]
    now: float


def reconcile_cron_workflow(cron: Json, observed: CronWorkflowSnapshot) -> Effects:
    """Reconcile one CronWorkflow. Pure."""
    if cron["metadata"].get("deletionTimestamp"):
        return NOTHING
    return _CronWorkflowReconciliation(cron, observed).effects()


class _CronWorkflowReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, cron: Json, observed: CronWorkflowSnapshot) -> None:
        self.cron, self.now = cron, observed.now
        self.metadata, self.spec = cron["metadata"], cron.get("spec") or {}
        self.status: Json = dict(cron.get("status") or {})
        self.workflows = sorted(observed.workflows, key=lambda one: one["metadata"]["name"])
        self.active = [one for one in self.workflows if not self._ended(one)]
        self.about = reference(CRON_WORKFLOWS, cron)
        self.plan = EffectPlan(about=self.about)

    @staticmethod
    def _ended(workflow: Json) -> bool:
        return bool((workflow.get("status") or {}).get("finishedAt"))

    def effects(self) -> Effects:
        self._count()
        stopped = self._stopped()
        if not stopped and not self.spec.get("suspend"):
            try:
                self._schedule()
            except (ValueError, EvaluationError) as problem:
                self._event("Warning", "InvalidSchedule", str(problem))
        self.status["phase"] = "Stopped" if stopped else "Active"
        self.status["active"] = [
            {
                "apiVersion": WORKFLOWS.api_version,
                "kind": WORKFLOWS.kind,
                "name": one["metadata"]["name"],
                "namespace": one["metadata"].get("namespace"),
                "uid": one["metadata"].get("uid"),
            }
            for one in self.active
        ]
        if self.status != (self.cron.get("status") or {}):
            self.plan.stage(Update(CRON_WORKFLOWS, {**self.cron, "status": self.status}))
        self._limit_history()
        return self.plan.done()

    def _event(self, type_: str, reason: str, message: str) -> None:
        self.plan.event(EmitEvent(self.about, type_, reason, message, lasting=True))

    def _count(self) -> None:
        """Count the workflows that ended since the last time."""
        known = {one.get("uid") for one in self.status.get("active") or ()}
        for workflow in self.workflows:
            if self._ended(workflow) and workflow["metadata"].get("uid") in known:
                phase = workflow["status"].get("phase")
                field = "succeeded" if phase == words.SUCCEEDED else "failed"
                self.status[field] = int(self.status.get(field) or 0) + 1

    def _stopped(self) -> bool:
        strategy = self.spec.get("stopStrategy") or {}
        expression = strategy.get("expression")
        if not expression:
            return False
        try:
            return boolean(self._scope().evaluate(expression))
        except EvaluationError as problem:
            self._event("Warning", "InvalidStopStrategy", str(problem))
            return False

    def _scope(self) -> Scope:
        values: Json = {
            "cronworkflow.name": self.metadata["name"],
            "cronworkflow.namespace": self.metadata.get("namespace", ""),
            "cronworkflow.succeeded": int(self.status.get("succeeded") or 0),
            "cronworkflow.failed": int(self.status.get("failed") or 0),
            "cronworkflow.lastScheduledTime": self.status.get("lastScheduledTime"),
        }
        return Scope(
            {**values, **{name.removeprefix("cronworkflow."): value for name, value in values.items()}}
        )

    def _schedule(self) -> None:
        """Create the workflow that is due, and wake up for the next one."""
        schedules = [*(self.spec.get("schedules") or ()), *filter(None, [self.spec.get("schedule")])]
        zone = self.spec.get("timezone") or ""
        earliest = parse_rfc3339(self.status.get("lastScheduledTime") or self.metadata["creationTimestamp"])
        times = []
        for text in schedules:
            schedule = parse_cron(text, zone)
            due, _ = last_due(schedule, earliest, self.now)
            times += [due] if due is not None else []
            following = schedule.next_after(self.now)
            if following is not None:
                self.plan.requeue(following - self.now)
        if not times:
            return
        due = max(times)
        deadline = max(LATE_SECONDS, float(self.spec.get("startingDeadlineSeconds") or 0))
        if self.now - due > deadline:
            return
        if (when := self.spec.get("when")) and not boolean(self._scope().evaluate(when)):
            self.status["lastScheduledTime"] = rfc3339(due)
            return
        self._begin(due)

    def _begin(self, due: float) -> None:
        policy = self.spec.get("concurrencyPolicy") or "Allow"
        name = f"{self.metadata['name']}-{int(due)}"
        others = [one for one in self.active if one["metadata"]["name"] != name]
        if policy == "Forbid" and others:
            self._event("Warning", "ForbidConcurrent", f"{others[0]['metadata']['name']} has not ended")
            return
        if policy == "Replace":
            stop = {"spec": {"shutdown": words.TERMINATE}}
            self.plan.stage(
                *(
                    Patch(WORKFLOWS, one["metadata"]["name"], stop, self.metadata.get("namespace"))
                    for one in others
                )
            )
        extra = self.spec.get("workflowMetadata") or {}
        metadata = {
            "name": name,
            "namespace": self.metadata.get("namespace"),
            "labels": {**(extra.get("labels") or {}), CRON_WORKFLOW: self.metadata["name"]},
            "annotations": {**(extra.get("annotations") or {}), SCHEDULED_TIME: rfc3339(due)},
            "ownerReferences": [controller_reference(CRON_WORKFLOWS, self.cron)],
        }
        body = {"metadata": metadata, "spec": self.spec.get("workflowSpec") or {}}
        if not any(one["metadata"]["name"] == name for one in self.workflows):
            self.plan.stage(Create(WORKFLOWS, body))
        self.status["lastScheduledTime"] = rfc3339(due)

    def _limit_history(self) -> None:
        """Delete workflows that have ended beyond the limits, the oldest first."""
        for phase_is_good, field, default in (
            (True, "successfulJobsHistoryLimit", 3),
            (False, "failedJobsHistoryLimit", 1),
        ):
            ended = [
                one
                for one in self.workflows
                if self._ended(one) and (one["status"].get("phase") == words.SUCCEEDED) == phase_is_good
            ]
            ended.sort(key=lambda one: str(one["status"].get("finishedAt")))
            limit = self.spec.get(field)
            surplus = len(ended) - (default if limit is None else int(limit))
            self.plan.stage(
                *(
                    Delete(
                        WORKFLOWS,
                        one["metadata"]["name"],
                        self.metadata.get("namespace"),
                        one["metadata"].get("uid"),
                        "Background",
                    )
                    for one in ended[: max(0, surplus)]
                    if not one["metadata"].get("deletionTimestamp")
                )
            )

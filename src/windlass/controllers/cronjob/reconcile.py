"""Reconciliation of a ``batch/v1`` CronJob."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from windlass.api.fields.batch import SCHEDULED_AT
from windlass.api.resources import BATCH_JOBS, CRON_JOBS
from windlass.api.views.wire import moment
from windlass.controllers.cron_schedule import CronReconciliation, CronSnapshot
from windlass.controllers.effects import NOTHING, Create, Delete, Effects

Json = dict[str, Any]


def reconcile_cron_job(cron: Json, observed: CronSnapshot) -> Effects:
    """Reconcile one CronJob. Pure."""
    if cron["metadata"].get("deletionTimestamp"):
        return NOTHING
    return _BatchCronReconciliation(cron, observed).effects()


class _BatchCronReconciliation(CronReconciliation):
    cron_kind, job_kind = CRON_JOBS, BATCH_JOBS
    scheduled_at, succeeded = SCHEDULED_AT, "Complete"

    def follow_jobs(self) -> list[Json]:
        """Return the active Jobs, and report those that ended or went missing since.

        A Job that a user created from the template is controlled too, and not active.
        """
        by_uid = {job["metadata"].get("uid"): job for job in self.observed.jobs}
        known = {entry.get("uid"): entry for entry in self.status.get("active") or ()}
        for uid, entry in known.items():
            job = by_uid.get(uid)
            if job is None:
                self.event("Normal", "MissingJob", f"Active job went missing: {entry.get('name')}")
            elif outcome := self.outcome(job):
                message = f"Saw completed job: {entry.get('name')}, condition: {outcome}"
                self.event("Normal", "SawCompletedJob", message)
        active: list[Json] = []
        scheduled = re.compile(rf"{re.escape(self.metadata['name'])}-\d+")
        for job in self.observed.jobs:
            name, uid = job["metadata"]["name"], job["metadata"].get("uid")
            if self.outcome(job):
                continue
            if uid in known or scheduled.fullmatch(name):
                active.append(job)
            else:
                message = f"Saw a job that the controller did not create or forgot: {name}"
                self.event("Warning", "UnexpectedJob", message, lasting=True)
        self.record_success(
            moment((job.get("status") or {}).get("completionTime"))
            for job in self.observed.jobs
            if self.outcome(job) == "Complete"
        )
        return sorted(active, key=self.age)

    def outcome(self, job: Json) -> str:
        """Return ``Complete`` or ``Failed``; ``""`` while the Job is not finished."""
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
                return condition["type"]
        return ""

    def age(self, job: Json) -> tuple[str, str]:
        started = (job.get("status") or {}).get("startTime")
        return started or job["metadata"].get("creationTimestamp") or "", job["metadata"]["name"]

    def report_schedule(self, problem: ValueError) -> None:
        message = f'unparseable schedule: "{self.spec.get("schedule") or ""}" : {problem}'
        self.event("Warning", "UnparseableSchedule", message, lasting=True)

    def is_too_late(self, due: float) -> bool:
        deadline = self.spec.get("startingDeadlineSeconds")
        if deadline is None or due + deadline >= self.observed.now:
            return False
        late = format_datetime(datetime.fromtimestamp(due, UTC))
        self.event("Warning", "MissSchedule", f"Missed scheduled time to start a job: {late}")
        return True

    def report_active(self) -> None:
        message = "Not starting job because prior execution is running and concurrency policy is Forbid"
        self.event("Normal", "JobAlreadyActive", message)

    def report_foreign(self, name: str) -> None:
        message = (
            f'Error creating job: jobs.batch "{name}" already exists and is not controlled by this CronJob'
        )
        self.event("Warning", "FailedCreate", message, lasting=True)

    def creation(self, job: Json) -> Create:
        message = f"Created job {job['metadata']['name']}"
        return Create(BATCH_JOBS, job, self.event_of("Normal", "SuccessfulCreate", message))

    def deletion(self, name: str, uid: str | None) -> Delete:
        event = self.event_of("Normal", "SuccessfulDelete", f"Deleted job {name}")
        namespace = self.metadata.get("namespace")
        return Delete(BATCH_JOBS, name, namespace, uid, propagation="Background", event=event)

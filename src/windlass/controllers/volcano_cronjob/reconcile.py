"""Reconciliation of a Volcano CronJob."""

from __future__ import annotations

from typing import Any

from windlass.api.resources import VOLCANO_CRON_JOBS, VOLCANO_JOBS
from windlass.api.views.wire import moment
from windlass.controllers.cron_schedule import CronReconciliation, CronSnapshot
from windlass.controllers.effects import NOTHING, Create, Delete, Effects

Json = dict[str, Any]
SCHEDULED_AT = "volcano.sh/cronjob-scheduled-timestamp"
"""Annotation of a job: its time in the schedule (RFC 3339, in the time zone of the CronJob)."""
_FINISHED = frozenset({"Completed", "Failed", "Terminated"})


def reconcile_cron_job(cron: Json, observed: CronSnapshot) -> Effects:
    """Reconcile one CronJob. Pure."""
    if cron["metadata"].get("deletionTimestamp"):
        return NOTHING
    return _VolcanoCronReconciliation(cron, observed).effects()


class _VolcanoCronReconciliation(CronReconciliation):
    cron_kind, job_kind = VOLCANO_CRON_JOBS, VOLCANO_JOBS
    scheduled_at, succeeded = SCHEDULED_AT, "Completed"

    def follow_jobs(self) -> list[Json]:
        """Return the active jobs, and record jobs that ended since."""
        by_uid = {job["metadata"].get("uid"): job for job in self.observed.jobs}
        for entry in self.status.get("active") or ():
            job = by_uid.get(entry.get("uid"))
            if job is None:
                message = f'Active job "{entry.get("name")}" no longer exists (UID: {entry.get("uid")})'
                self.event("Warning", "StaleReference", message)
            elif self.outcome(job) in _FINISHED:
                message = f"Saw completed job: {entry.get('name')} in active, remove"
                self.event("Normal", "SawCompletedJob", message)
        self.record_success(_ended(job) for job in self.observed.jobs if self.outcome(job) == self.succeeded)
        active = [job for job in self.observed.jobs if self.outcome(job) not in _FINISHED]
        return sorted(active, key=self.age)

    def outcome(self, job: Json) -> str:
        """Return the phase of the job, also while it is not finished."""
        return ((job.get("status") or {}).get("state") or {}).get("phase") or ""

    def age(self, job: Json) -> tuple[str, str]:
        return job["metadata"].get("creationTimestamp") or "", job["metadata"]["name"]

    def report_schedule(self, problem: ValueError) -> None:
        message = f"unparseable schedule for cronjob: {self.spec.get('schedule')}: {problem}"
        self.event("Warning", "UnParseableCronJobSchedule", message, lasting=True)

    def report_active(self) -> None:
        message = "Skipping job creation because another job is already running"
        self.event("Warning", "ForbidConcurrent", message)

    def report_foreign(self, name: str) -> None:
        message = f"Job {name} exists but is not owned by this CronJob: delete or rename it"
        self.event("Warning", "ForeignJob", message, lasting=True)

    def report_replacement(self) -> None:
        self.event("Warning", "ReplaceConcurrent", "Replacing active job for CronJob")

    def creation(self, job: Json) -> Create:
        key = f"{self.metadata.get('namespace')}/{self.metadata['name']}"
        message = f"Created job {job['metadata']['name']} for CronJob {key}"
        self.event("Normal", "SuccessfulCreate", message, lasting=True)
        return Create(VOLCANO_JOBS, job)

    def deletion(self, name: str, uid: str | None) -> Delete:
        self.event("Normal", "SuccessfulDelete", f'Deleted job "{name}"')
        return Delete(VOLCANO_JOBS, name, self.metadata.get("namespace"), uid, propagation="Background")


def _ended(job: Json) -> float:
    return moment(((job.get("status") or {}).get("state") or {}).get("lastTransitionTime"))

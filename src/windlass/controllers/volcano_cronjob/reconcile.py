"""Reconciliation of a Volcano CronJob.

The name of a job follows from its time in the schedule. A controller that stops after
the creation therefore finds the job again and creates no second one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windlass.api.resources import VOLCANO_CRON_JOBS, VOLCANO_JOBS
from windlass.api.views.wire import moment
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Update,
    controller_reference,
    reference,
)
from windlass.kits.cron import MANY_MISSED, Schedule, last_due, parse_cron, time_zone
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
SCHEDULED_AT = "volcano.sh/cronjob-scheduled-timestamp"
"""Annotation of a job: its time in the schedule (RFC 3339, in the time zone of the CronJob)."""
_FINISHED = frozenset({"Completed", "Failed", "Terminated"})
_SLACK_SECONDS = 0.1
"""Delay (seconds) after a time of the schedule, for clocks that differ."""


@dataclass(frozen=True, slots=True)
class CronSnapshot:
    """Observed surroundings of a CronJob.

    ``jobs``: jobs that it controls.
    ``foreign``: names of other jobs of the namespace.
    ``now``: Unix seconds.
    """

    jobs: Sequence[Json]
    foreign: frozenset[str]
    now: float


def reconcile_cron_job(cron: Json, observed: CronSnapshot) -> Effects:
    """Reconcile one CronJob. Pure."""
    if cron["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(VOLCANO_CRON_JOBS, cron)
    return _CronReconciliation(cron, observed, EffectPlan(about=about)).effects()


class _CronReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, cron: Json, observed: CronSnapshot, plan: EffectPlan) -> None:
        self.cron, self.observed, self.plan = cron, observed, plan
        self.metadata, self.spec = cron["metadata"], cron["spec"]
        self.status: Json = dict(cron.get("status") or {})
        self.deleted: list[Delete] = []
        self.created: list[Create] = []

    def effects(self) -> Effects:
        active = self._follow_jobs()
        self._limit_history("Completed", self.spec.get("successfulJobsHistoryLimit"))
        self._limit_history("Failed", self.spec.get("failedJobsHistoryLimit"))
        if not self.spec.get("suspend"):
            active = self._run_schedule(active)
        self.status["active"] = [_job_reference(job) for job in active]
        self.plan.stage(*self.deleted)
        self.plan.stage(*self.created)
        status = {name: value for name, value in self.status.items() if value not in (None, [])}
        if status != (self.cron.get("status") or {}):
            self.plan.stage(Update(VOLCANO_CRON_JOBS, {**self.cron, "status": status}, "status"))
        return self.plan.done()

    def _follow_jobs(self) -> list[Json]:
        """Return the active jobs, and record jobs that ended since."""
        by_uid = {job["metadata"].get("uid"): job for job in self.observed.jobs}
        for entry in self.status.get("active") or ():
            job = by_uid.get(entry.get("uid"))
            if job is None:
                message = f'Active job "{entry.get("name")}" no longer exists (UID: {entry.get("uid")})'
                self._event("Warning", "StaleReference", message)
            elif _phase(job) in _FINISHED:
                message = f"Saw completed job: {entry.get('name')} in active, remove"
                self._event("Normal", "SawCompletedJob", message)
        ends = [_ended(job) for job in self.observed.jobs if _phase(job) == "Completed"]
        last = max([*ends, moment(self.status.get("lastSuccessfulTime"))], default=0.0)
        if last:
            self.status["lastSuccessfulTime"] = rfc3339(last)
        active = [job for job in self.observed.jobs if _phase(job) not in _FINISHED]
        return sorted(active, key=_age)

    def _limit_history(self, phase: str, limit: int | None) -> None:
        if limit is None:
            return
        jobs = sorted((job for job in self.observed.jobs if _phase(job) == phase), key=_age)
        for job in jobs[: max(0, len(jobs) - limit)]:
            self._delete(job)

    def _run_schedule(self, active: list[Json]) -> list[Json]:
        """Create the job that is due. Return the jobs that stay active."""
        try:
            schedule = parse_cron(self.spec.get("schedule") or "", self.spec.get("timeZone") or "")
            due, missed = self._due(schedule)
        except ValueError as problem:
            message = f"unparseable schedule for cronjob: {self.spec.get('schedule')}: {problem}"
            self._event("Warning", "UnParseableCronJobSchedule", message, lasting=True)
            return active
        following = schedule.next_after(self.observed.now)
        if following is not None:
            self.plan.requeue(following - self.observed.now + _SLACK_SECONDS)
        if due is None or moment(self.status.get("lastScheduleTime")) == due:
            return active
        if missed > MANY_MISSED:
            self._event(
                "Warning",
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
            )
        name = f"{self.metadata['name']}-{int(due) // 60}"
        if any(job["metadata"]["name"] == name for job in self.observed.jobs):
            self.status["lastScheduleTime"] = rfc3339(due)  # created before the controller stopped
            return active
        return self._start(name, due, active)

    def _due(self, schedule: Schedule) -> tuple[float | None, int]:
        earliest = moment(self.metadata.get("creationTimestamp"))
        if self.status.get("lastScheduleTime"):
            earliest = moment(self.status["lastScheduleTime"])
        deadline = self.spec.get("startingDeadlineSeconds")
        if deadline is not None:
            earliest = max(earliest, self.observed.now - deadline)
        return last_due(schedule, earliest, self.observed.now)

    def _start(self, name: str, due: float, active: list[Json]) -> list[Json]:
        policy = self.spec.get("concurrencyPolicy")
        if active and policy == "Forbid":
            message = "Skipping job creation because another job is already running"
            self._event("Warning", "ForbidConcurrent", message)
            return active
        if name in self.observed.foreign:
            message = f"Job {name} exists but is not owned by this CronJob: delete or rename it"
            self._event("Warning", "ForeignJob", message, lasting=True)
            return active
        if active and policy == "Replace":
            self._event("Warning", "ReplaceConcurrent", "Replacing active job for CronJob")
            for job in active:
                self._delete(job)
            active = []
        self.created.append(Create(VOLCANO_JOBS, self._job(name, due)))
        key = f"{self.metadata.get('namespace')}/{self.metadata['name']}"
        self._event("Normal", "SuccessfulCreate", f"Created job {name} for CronJob {key}", lasting=True)
        self.status["lastScheduleTime"] = rfc3339(due)
        return active

    def _job(self, name: str, due: float) -> Json:
        template = copy.deepcopy(self.spec.get("jobTemplate") or {})
        given = template.get("metadata") or {}
        zone = time_zone(self.spec.get("timeZone") or "")
        scheduled = datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
        return {
            "apiVersion": VOLCANO_JOBS.api_version,
            "kind": VOLCANO_JOBS.kind,
            "metadata": {
                "name": name,
                "namespace": self.metadata.get("namespace"),
                "labels": given.get("labels") or {},
                "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: scheduled},
                "ownerReferences": [controller_reference(VOLCANO_CRON_JOBS, self.cron)],
            },
            "spec": template.get("spec") or {},
        }

    def _delete(self, job: Json) -> None:
        metadata = job["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        namespace, uid = self.metadata.get("namespace"), metadata.get("uid")
        delete = Delete(VOLCANO_JOBS, metadata["name"], namespace, uid, propagation="Background")
        self.deleted.append(delete)
        self._event("Normal", "SuccessfulDelete", f'Deleted job "{metadata["name"]}"')

    def _event(self, kind: str, reason: str, message: str, *, lasting: bool = False) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, kind, reason, message, lasting))


def _phase(job: Mapping[str, Any]) -> str:
    return ((job.get("status") or {}).get("state") or {}).get("phase") or ""


def _ended(job: Mapping[str, Any]) -> float:
    return moment(((job.get("status") or {}).get("state") or {}).get("lastTransitionTime"))


def _age(job: Mapping[str, Any]) -> tuple[str, str]:
    return job["metadata"].get("creationTimestamp") or "", job["metadata"]["name"]


def _job_reference(job: Mapping[str, Any]) -> Json:
    metadata = job["metadata"]
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "name": metadata["name"],
        "namespace": metadata.get("namespace"),
        "uid": metadata.get("uid"),
    }

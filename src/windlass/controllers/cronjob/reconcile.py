"""Reconciliation of a ``batch/v1`` CronJob.

The name of a Job follows from its time in the schedule. A controller that stops after
the creation therefore finds the Job again and creates no second one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from windlass.api.batch_fields import SCHEDULED_AT
from windlass.api.resources import BATCH_JOBS, CRON_JOBS
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
_SLACK_SECONDS = 0.1
"""Delay (seconds) after a time of the schedule, for clocks that differ."""


@dataclass(frozen=True, slots=True)
class CronJobSnapshot:
    """Observed surroundings of a CronJob.

    ``jobs``: Jobs that it controls.
    ``foreign``: names of other Jobs that begin like its own.
    ``now``: Unix seconds.
    """

    jobs: Sequence[Json]
    foreign: frozenset[str]
    now: float


def reconcile_cron_job(cron: Json, observed: CronJobSnapshot) -> Effects:
    """Reconcile one CronJob. Pure."""
    if cron["metadata"].get("deletionTimestamp"):
        return NOTHING
    return _Reconciliation(cron, observed, EffectPlan(about=reference(CRON_JOBS, cron))).effects()


class _Reconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, cron: Json, observed: CronJobSnapshot, plan: EffectPlan) -> None:
        self.cron, self.observed, self.plan = cron, observed, plan
        self.metadata, self.spec = cron["metadata"], cron["spec"]
        self.status: Json = dict(cron.get("status") or {})
        self.deletes: list[Delete] = []
        self.creates: list[Create] = []

    def effects(self) -> Effects:
        active = self._follow_jobs()
        self._limit_history("Complete", self.spec.get("successfulJobsHistoryLimit"))
        self._limit_history("Failed", self.spec.get("failedJobsHistoryLimit"))
        if not self.spec.get("suspend"):
            active = self._run_schedule(active)
        self.status["active"] = [_job_reference(job) for job in active]
        self.plan.stage(*self.deletes)
        self.plan.stage(*self.creates)
        status = {name: value for name, value in self.status.items() if value not in (None, [])}
        if status != (self.cron.get("status") or {}):
            self.plan.stage(Update(CRON_JOBS, {**self.cron, "status": status}, "status"))
        return self.plan.done()

    def _follow_jobs(self) -> list[Json]:
        """Return the active Jobs, and report those that ended or went missing since.

        A Job that a user created from the template is controlled too, and not active.
        """
        by_uid = {job["metadata"].get("uid"): job for job in self.observed.jobs}
        known = {entry.get("uid"): entry for entry in self.status.get("active") or ()}
        for uid, entry in known.items():
            job = by_uid.get(uid)
            if job is None:
                self._event("Normal", "MissingJob", f"Active job went missing: {entry.get('name')}")
            elif outcome := _outcome(job):
                message = f"Saw completed job: {entry.get('name')}, condition: {outcome}"
                self._event("Normal", "SawCompletedJob", message)
        active: list[Json] = []
        scheduled = re.compile(rf"{re.escape(self.metadata['name'])}-\d+")
        for job in self.observed.jobs:
            name, uid = job["metadata"]["name"], job["metadata"].get("uid")
            if _outcome(job):
                continue
            if uid in known or scheduled.fullmatch(name):
                active.append(job)
            else:
                message = f"Saw a job that the controller did not create or forgot: {name}"
                self._event("Warning", "UnexpectedJob", message, lasting=True)
        ends = [
            moment((job.get("status") or {}).get("completionTime"))
            for job in self.observed.jobs
            if _outcome(job) == "Complete"
        ]
        last = max([*ends, moment(self.status.get("lastSuccessfulTime"))])
        if last:
            self.status["lastSuccessfulTime"] = rfc3339(last)
        return sorted(active, key=_age)

    def _limit_history(self, outcome: str, limit: int | None) -> None:
        if limit is None:
            return
        jobs = sorted((job for job in self.observed.jobs if _outcome(job) == outcome), key=_age)
        for job in jobs[: max(0, len(jobs) - limit)]:
            self._delete(job)

    def _run_schedule(self, active: list[Json]) -> list[Json]:
        """Create the Job that is due. Return the Jobs that stay active."""
        text = self.spec.get("schedule") or ""
        try:
            schedule = parse_cron(text, self.spec.get("timeZone") or "")
            due, missed = self._due(schedule)
        except ValueError as problem:
            message = f'unparseable schedule: "{text}" : {problem}'
            self._event("Warning", "UnparseableSchedule", message, lasting=True)
            return active
        following = schedule.next_after(self.observed.now)
        if following is not None:
            self.plan.requeue(following - self.observed.now + _SLACK_SECONDS)
        if due is None or moment(self.status.get("lastScheduleTime")) == due:
            return active
        if missed > MANY_MISSED:
            message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self._event("Warning", "TooManyMissedTimes", message)
        deadline = self.spec.get("startingDeadlineSeconds")
        if deadline is not None and due + deadline < self.observed.now:
            late = format_datetime(datetime.fromtimestamp(due, UTC))
            self._event("Warning", "MissSchedule", f"Missed scheduled time to start a job: {late}")
            return active
        name = f"{self.metadata['name']}-{int(due) // 60}"
        if any(job["metadata"]["name"] == name for job in self.observed.jobs):
            self.status["lastScheduleTime"] = rfc3339(due)  # created before the controller stopped
            return active
        return self._start(name, due, active)

    def _due(self, schedule: Schedule) -> tuple[float | None, int]:
        last = self.status.get("lastScheduleTime") or self.metadata.get("creationTimestamp")
        earliest, deadline = moment(last), self.spec.get("startingDeadlineSeconds")
        if deadline is not None:
            earliest = max(earliest, self.observed.now - deadline)
        return last_due(schedule, earliest, self.observed.now)

    def _start(self, name: str, due: float, active: list[Json]) -> list[Json]:
        policy = self.spec.get("concurrencyPolicy")
        if active and policy == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._event("Normal", "JobAlreadyActive", message)
            return active
        if name in self.observed.foreign:
            message = f'Error creating job: jobs.batch "{name}" already exists and is not controlled by this CronJob'
            self._event("Warning", "FailedCreate", message, lasting=True)
            return active
        if active and policy == "Replace":
            for job in active:
                self._delete(job)
            active = []
        assert self.plan.about is not None
        event = EmitEvent(self.plan.about, "Normal", "SuccessfulCreate", f"Created job {name}")
        self.creates.append(Create(BATCH_JOBS, self._job(name, due), event))
        self.status["lastScheduleTime"] = rfc3339(due)
        return active

    def _job(self, name: str, due: float) -> Json:
        template = copy.deepcopy(self.spec.get("jobTemplate") or {})
        given = template.get("metadata") or {}
        zone = time_zone(self.spec.get("timeZone") or "")
        scheduled = datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
        return {
            "apiVersion": BATCH_JOBS.api_version,
            "kind": BATCH_JOBS.kind,
            "metadata": {
                "name": name,
                "namespace": self.metadata.get("namespace"),
                "labels": given.get("labels") or {},
                "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: scheduled},
                "ownerReferences": [controller_reference(CRON_JOBS, self.cron)],
            },
            "spec": template.get("spec") or {},
        }

    def _delete(self, job: Json) -> None:
        metadata = job["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        assert self.plan.about is not None
        event = EmitEvent(self.plan.about, "Normal", "SuccessfulDelete", f"Deleted job {metadata['name']}")
        self.deletes.append(
            Delete(
                BATCH_JOBS,
                metadata["name"],
                self.metadata.get("namespace"),
                metadata.get("uid"),
                propagation="Background",
                event=event,
            )
        )

    def _event(self, kind: str, reason: str, message: str, *, lasting: bool = False) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, kind, reason, message, lasting))


def _outcome(job: Json) -> str:
    """Return ``Complete`` or ``Failed``; ``""`` while the Job is not finished."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return condition["type"]
    return ""


def _age(job: Json) -> tuple[str, str]:
    started = (job.get("status") or {}).get("startTime")
    return started or job["metadata"].get("creationTimestamp") or "", job["metadata"]["name"]


def _job_reference(job: Json) -> Json:
    metadata = job["metadata"]
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "name": metadata["name"],
        "namespace": metadata.get("namespace"),
        "uid": metadata.get("uid"),
    }

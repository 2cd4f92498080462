"""Steps that the CronJobs of Kubernetes and of Volcano share: the schedule, its next Job, the history.

The name of a Job follows from its time in the schedule. A controller that stops after
the creation therefore finds the Job again and creates no second one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windlass.api.resources import Resource
from windlass.api.views.wire import moment
from windlass.controllers.effects import (
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
class CronSnapshot:
    """Observed surroundings of a CronJob.

    ``jobs``: Jobs that it controls.
    ``foreign``: names of other Jobs that may have the name of the next one.
    ``now``: Unix seconds.
    """

    jobs: Sequence[Json]
    foreign: frozenset[str]
    now: float


class CronReconciliation:
    """State of one reconciliation. Used once. A kind adds its words, and what it takes for an end.

    ``cron_kind``, ``job_kind``: resources. ``scheduled_at``: annotation of a Job with its time.
    ``succeeded``: outcome of a Job that counts as a success.
    """

    cron_kind: Resource
    job_kind: Resource
    scheduled_at: str
    succeeded: str

    def __init__(self, cron: Json, observed: CronSnapshot) -> None:
        self.cron, self.observed = cron, observed
        self.plan = EffectPlan(about=reference(self.cron_kind, cron))
        self.metadata, self.spec = cron["metadata"], cron["spec"]
        self.status: Json = dict(cron.get("status") or {})
        self.deletes: list[Delete] = []
        self.creates: list[Create] = []

    # -- what a kind adds ----------------------------------------------------------------------

    def follow_jobs(self) -> list[Json]:
        """Return the active Jobs, the oldest first, and report those that ended or went missing since."""
        raise NotImplementedError

    def outcome(self, job: Json) -> str:
        """Return the outcome of a Job, by which the history is limited."""
        raise NotImplementedError

    def age(self, job: Json) -> tuple[str, str]:
        """Return the key by which Jobs are ordered, the oldest first."""
        raise NotImplementedError

    def report_schedule(self, problem: ValueError) -> None:
        """Report a schedule that cannot be read."""
        raise NotImplementedError

    def report_active(self) -> None:
        """Report that a Job does not start because another one is active."""
        raise NotImplementedError

    def report_foreign(self, name: str) -> None:
        """Report that the name of the next Job is taken."""
        raise NotImplementedError

    def report_replacement(self) -> None:
        """Report that the active Jobs are replaced, if the kind says so."""

    def is_too_late(self, due: float) -> bool:
        """Return whether the Job of this time is not started any more."""
        return False

    def creation(self, job: Json) -> Create:
        """Return the write of a new Job, and report it."""
        raise NotImplementedError

    def deletion(self, name: str, uid: str | None) -> Delete:
        """Return the removal of a Job, and report it."""
        raise NotImplementedError

    # -- common steps --------------------------------------------------------------------------

    def effects(self) -> Effects:
        active = self.follow_jobs()
        self._limit_history(self.succeeded, self.spec.get("successfulJobsHistoryLimit"))
        self._limit_history("Failed", self.spec.get("failedJobsHistoryLimit"))
        if not self.spec.get("suspend"):
            active = self._run_schedule(active)
        self.status["active"] = [self._job_reference(job) for job in active]
        self.plan.stage(*self.deletes)
        self.plan.stage(*self.creates)
        status = {name: value for name, value in self.status.items() if value not in (None, [])}
        if status != (self.cron.get("status") or {}):
            self.plan.stage(Update(self.cron_kind, {**self.cron, "status": status}, "status"))
        return self.plan.done()

    def record_success(self, ends: Iterable[float]) -> None:
        """Record the last success. ``ends``: of the Jobs that succeeded."""
        last = max([*ends, moment(self.status.get("lastSuccessfulTime"))])
        if last:
            self.status["lastSuccessfulTime"] = rfc3339(last)

    def event(self, kind: str, reason: str, message: str, *, lasting: bool = False) -> None:
        self.plan.event(self.event_of(kind, reason, message, lasting=lasting))

    def event_of(self, kind: str, reason: str, message: str, *, lasting: bool = False) -> EmitEvent:
        assert self.plan.about is not None
        return EmitEvent(self.plan.about, kind, reason, message, lasting)

    def _limit_history(self, outcome: str, limit: int | None) -> None:
        if limit is None:
            return
        jobs = sorted((job for job in self.observed.jobs if self.outcome(job) == outcome), key=self.age)
        for job in jobs[: max(0, len(jobs) - limit)]:
            self._delete(job)

    def _run_schedule(self, active: list[Json]) -> list[Json]:
        """Create the Job that is due. Return the Jobs that stay active."""
        try:
            schedule = parse_cron(self.spec.get("schedule") or "", self.spec.get("timeZone") or "")
            due, missed = self._due(schedule)
        except ValueError as problem:
            self.report_schedule(problem)
            return active
        following = schedule.next_after(self.observed.now)
        if following is not None:
            self.plan.requeue(following - self.observed.now + _SLACK_SECONDS)
        if due is None or moment(self.status.get("lastScheduleTime")) == due:
            return active
        if missed > MANY_MISSED:
            message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self.event("Warning", "TooManyMissedTimes", message)
        if self.is_too_late(due):
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
            self.report_active()
            return active
        if name in self.observed.foreign:
            self.report_foreign(name)
            return active
        if active and policy == "Replace":
            self.report_replacement()
            for job in active:
                self._delete(job)
            active = []
        self.creates.append(self.creation(self._job(name, due)))
        self.status["lastScheduleTime"] = rfc3339(due)
        return active

    def _job(self, name: str, due: float) -> Json:
        template = copy.deepcopy(self.spec.get("jobTemplate") or {})
        given = template.get("metadata") or {}
        zone = time_zone(self.spec.get("timeZone") or "")
        scheduled = datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
        return {
            "apiVersion": self.job_kind.api_version,
            "kind": self.job_kind.kind,
            "metadata": {
                "name": name,
                "namespace": self.metadata.get("namespace"),
                "labels": given.get("labels") or {},
                "annotations": {**(given.get("annotations") or {}), self.scheduled_at: scheduled},
                "ownerReferences": [controller_reference(self.cron_kind, self.cron)],
            },
            "spec": template.get("spec") or {},
        }

    def _delete(self, job: Json) -> None:
        if not job["metadata"].get("deletionTimestamp"):
            self.deletes.append(self.deletion(job["metadata"]["name"], job["metadata"].get("uid")))

    def _job_reference(self, job: Json) -> Json:
        metadata = job["metadata"]
        return {
            "apiVersion": self.job_kind.api_version,
            "kind": self.job_kind.kind,
            "name": metadata["name"],
            "namespace": metadata.get("namespace"),
            "uid": metadata.get("uid"),
        }

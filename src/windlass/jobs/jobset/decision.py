"""Decision about a JobSet: its next status, and the child Jobs to create, delete and change.

A restart is first recorded in the status. From then on the Jobs with a lower attempt in
their label are former ones, which are deleted and created again. A controller that stops
in between therefore decides the same again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.api.fields import jobset
from windlass.jobs.jobset import conditions as words
from windlass.jobs.jobset.children import ChildJob, ChildState, JobCounts, Restarts, count_jobs, read_restarts
from windlass.jobs.jobset.conditions import Conditions, JobSetEvent
from windlass.jobs.jobset.failure import REACHED_MAX_RESTARTS, act_on_failure
from windlass.jobs.jobset.in_place import (
    InPlaceCounters,
    InPlacePod,
    in_place_exceeded,
    left_behind,
    next_in_place,
)
from windlass.jobs.jobset.spec import JobSetDefinition, ReplicatedJob
from windlass.kits.timestamps import parse_rfc3339, rfc3339

Json = Mapping[str, Any]
NOT_IN_PLACE = "InPlaceRestartNotPossible"
"""Reason of a restart by recreation although ``restartStrategy`` is ``InPlaceRestart``."""


@dataclass(slots=True)
class JobSetDecision:
    """Next status and actions.

    ``decided``: the status has to be stored before anything else follows from it.
    ``create``: replicated job and index. ``opened``: names of the replicated jobs that may
    run, of which the gangs are needed.
    ``expired``: the time to live after the end is over: delete the JobSet.
    ``due_seconds``: decide again after this time at the latest.
    """

    status: dict[str, Any] = field(default_factory=dict)
    events: Sequence[JobSetEvent] = ()
    decided: bool = False
    finished: bool = False
    delete: tuple[ChildJob, ...] = ()
    create: tuple[tuple[ReplicatedJob, int], ...] = ()
    suspend: tuple[ChildJob, ...] = ()
    resume: tuple[ChildJob, ...] = ()
    opened: frozenset[str] = frozenset()
    expired: bool = False
    due_seconds: float | None = None


def decide_job_set(
    definition: JobSetDefinition,
    status: Json,
    children: Sequence[ChildJob],
    pods: Sequence[InPlacePod],
    now: float,
) -> JobSetDecision:
    """Return the next status and actions. ``pods``: needed for in-place restarts only."""
    return _JobSetDecider(definition, status, children, pods, now).decide()


class _JobSetDecider:
    """State of one decision. Used once."""

    def __init__(
        self,
        definition: JobSetDefinition,
        status: Json,
        children: Sequence[ChildJob],
        pods: Sequence[InPlacePod],
        now: float,
    ) -> None:
        self.definition, self.before, self.children, self.now = definition, status, children, now
        self.pods = pods
        self.conditions = Conditions(status.get("conditions") or (), now)
        self.restarts = read_restarts(status)
        self.counts = {job.name: count_jobs(children, job.name) for job in definition.replicated}
        self.terminal = str(status.get("terminalState") or "")
        self.started = str(status.get("startTime") or "")
        self.in_place = InPlaceCounters(
            status.get("previousInPlaceRestartAttempt"), status.get("currentInPlaceRestartAttempt")
        )
        self.out = JobSetDecision()

    def decide(self) -> JobSetDecision:
        events: list[JobSetEvent] = []
        if self.conditions.is_true(words.COMPLETED) or self.conditions.is_true(words.FAILED):
            self._after_the_end()
        else:
            self.out.delete = self._present(ChildState.PREVIOUS)
            if not self.definition.suspend and self._all_ready():
                self._restarting_ends("JobsReady", "all jobs are ready")
            events = self._ended_or_restarted()
            if not self.out.decided:
                self._create_and_start()
        self.out.status = self._status()
        self.out.events = (*self.conditions.events, *events)
        return self.out

    # The end.

    def _after_the_end(self) -> None:
        self.out.finished = True
        self.out.delete = (*self._present(ChildState.ACTIVE), *self._present(ChildState.PREVIOUS))
        ttl = self.definition.ttl_seconds
        if ttl is None:
            return
        left = self._ended_at() + ttl - self.now
        self.out.expired = left <= 0
        if left > 0:
            self.out.due_seconds = left

    def _ended_at(self) -> float:
        for condition in self.conditions.items:
            if condition["type"] in (words.COMPLETED, words.FAILED) and condition.get("status") == "True":
                return _seconds(condition.get("lastTransitionTime"), self.now)
        return self.now

    def _ended_or_restarted(self) -> list[JobSetEvent]:
        """Apply the failure policy, the success policy and the deadline."""
        failed = [child for child in self.children if child.state is ChildState.FAILED]
        if failed:
            return self._fail_or_restart(failed)
        done = [child for child in self.children if child.state is ChildState.SUCCEEDED]
        if done and self._has_succeeded(done):
            self.conditions.set(words.COMPLETED, True, "AllJobsCompleted", "jobset completed successfully")
            self._restarting_ends("JobSetCompleted", "jobset completed successfully")
            self.terminal, self.out.decided = words.COMPLETED, True
        elif self._deadline_passed():
            limit = self.definition.deadline_seconds
            self._fail("DeadlineExceeded", f"jobset was active longer than activeDeadlineSeconds ({limit} s)")
        elif self.definition.in_place:
            return self._restart_in_place()
        return []

    def _fail_or_restart(self, failed: Sequence[ChildJob]) -> list[JobSetEvent]:
        action = act_on_failure(self.definition.failure, failed, self.restarts)
        if action.fails:
            self._fail(action.reason, action.message)
            return []
        self.restarts, self.out.decided = action.restarts, True
        if action.condition:
            self.conditions.set(words.RESTARTING, True, action.condition, action.message, warning=True)
        return [JobSetEvent(action.reason, action.message, warning=True)]

    def _fail(self, reason: str, message: str) -> None:
        self.conditions.set(words.FAILED, True, reason, message, warning=True)
        self._restarting_ends("JobSetFailed", "jobset failed")
        self.terminal, self.out.decided = words.FAILED, True

    def _restarting_ends(self, reason: str, message: str) -> None:
        if self.conditions.is_true(words.RESTARTING):
            self.conditions.set(words.RESTARTING, False, reason, message)

    def _has_succeeded(self, done: Sequence[ChildJob]) -> bool:
        matching = sum(self.definition.decides(child.replicated_job) for child in done)
        if self.definition.success_any:
            return matching >= 1
        wanted = sum(job.replicas for job in self.definition.replicated if self.definition.decides(job.name))
        return matching >= wanted

    def _deadline_passed(self) -> bool:
        limit = self.definition.deadline_seconds
        if limit is None or self.definition.suspend:
            self.started = ""
            return False
        self.started = self.started or rfc3339(self.now)
        left = _seconds(self.started, self.now) + limit - self.now
        if left > 0:
            self.out.due_seconds = left
        return left <= 0

    def _restart_in_place(self) -> list[JobSetEvent]:
        uncounted = self.restarts.total - self.restarts.counted
        if in_place_exceeded(self.definition, self.pods, uncounted):
            self._fail(REACHED_MAX_RESTARTS, "jobset failed due to reaching max number of restarts")
            return []
        if pod := left_behind(self.pods):
            message = f"pod {pod} has succeeded and cannot be restarted in place: all Jobs are recreated"
            self.restarts = replace(
                self.restarts, total=self.restarts.total + 1, counted=self.restarts.counted + 1
            )
            self.out.decided = True
            self.conditions.set(words.RESTARTING, True, NOT_IN_PLACE, message, warning=True)
            return []
        before, self.in_place = self.in_place, next_in_place(self.definition, self.pods, self.in_place)
        return _in_place_events(before, self.in_place)

    # Creation, order of the start, suspension.

    def _create_and_start(self) -> None:
        definition = self.definition
        in_order = definition.in_order and not definition.suspend
        create: list[tuple[ReplicatedJob, int]] = []
        resume: list[ChildJob] = []
        opened: set[str] = set()
        waiting = False
        for job in definition.replicated:
            if not self._may_start(job):
                continue
            opened.add(job.name)
            if in_order and self.counts[job.name].started == job.replicas:
                continue
            create += self._missing(job)
            if not definition.suspend:
                resume += [child for child in self._active(job) if child.suspended]
            if in_order:
                waiting = True
                break
        self.out.create, self.out.resume, self.out.opened = tuple(create), tuple(resume), frozenset(opened)
        self._start_conditions(in_order, waiting)

    def _start_conditions(self, in_order: bool, waiting: bool) -> None:
        if in_order and waiting:
            self.conditions.set(
                words.STARTUP_IN_PROGRESS,
                True,
                "InOrderStartupPolicyInProgress",
                "in order startup policy is in progress",
            )
        elif in_order:
            self.conditions.set(
                words.STARTUP_COMPLETED,
                True,
                "InOrderStartupPolicyCompleted",
                "in order startup policy has completed",
            )
        if self.definition.suspend:
            self.out.suspend = tuple(
                child for child in self.children if child.state is ChildState.ACTIVE and not child.suspended
            )
            self.conditions.set(words.SUSPENDED, True, "SuspendedJobs", "jobset is suspended")
            self._restarting_ends("JobSetSuspended", "jobset is suspended")
        elif self.conditions.is_true(words.SUSPENDED):
            self.conditions.set(words.SUSPENDED, False, "ResumeJobs", "jobset is resumed")

    def _may_start(self, job: ReplicatedJob) -> bool:
        for dependency in job.depends_on:
            other = self.definition.job(dependency.name)
            counts = self.counts.get(dependency.name, JobCounts())
            reached = counts.succeeded if dependency.complete else counts.started
            if other is None or reached != other.replicas:
                return False
        return True

    def _missing(self, job: ReplicatedJob) -> list[tuple[ReplicatedJob, int]]:
        previous = any(child.state is ChildState.PREVIOUS for child in self.children)
        policy = self.definition.failure
        if previous and policy is not None and policy.strategy == jobset.BLOCKING_RECREATE:
            return []
        present = {child.name for child in self.children}
        return [
            (job, index)
            for index in range(job.replicas)
            if jobset.job_name(self.definition.name, job.name, index) not in present
        ]

    # What is there, and the status.

    def _present(self, state: ChildState) -> tuple[ChildJob, ...]:
        return tuple(child for child in self.children if child.state is state and not child.deleting)

    def _active(self, job: ReplicatedJob) -> list[ChildJob]:
        return [
            child
            for child in self.children
            if child.state is ChildState.ACTIVE and child.replicated_job == job.name
        ]

    def _all_ready(self) -> bool:
        ready = sum(counts.ready + counts.succeeded for counts in self.counts.values())
        return ready == self.definition.replicas

    def _status(self) -> dict[str, Any]:
        status = dict(self.before)
        optional = {
            "terminalState": self.terminal or None,
            "restartsCountTowardsMax": self.restarts.counted or None,
            "startTime": self.started or None,
            "previousInPlaceRestartAttempt": self.in_place.previous,
            "currentInPlaceRestartAttempt": self.in_place.current,
        }
        for name, value in optional.items():
            if value is None:
                status.pop(name, None)
            else:
                status[name] = value
        status["restarts"] = self.restarts.total
        if self.conditions.items:
            status["conditions"] = self.conditions.items
        status["replicatedJobsStatus"] = [
            _entry(job, self.counts[job.name], self.restarts) for job in self.definition.replicated
        ]
        return status


def _in_place_events(before: InPlaceCounters, after: InPlaceCounters) -> list[JobSetEvent]:
    """Return the events of a restart in place that begins or ends. JobSet's controller has none."""
    if after.previous != before.previous and after.previous is not None:
        attempt = after.previous + 1
        message = f"restarting the containers of all pods in place: attempt {attempt}"
        return [JobSetEvent("InPlaceRestart", message, warning=True)]
    if after.current != before.current and after.current:
        message = f"all pods have reached attempt {after.current}: their containers start together"
        return [JobSetEvent("InPlaceRestarted", message)]
    return []


def _entry(job: ReplicatedJob, counts: JobCounts, restarts: Restarts) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": job.name,
        "ready": counts.ready,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "active": counts.active,
        "suspended": counts.suspended,
    }
    for field_name, found in (
        ("jobRestarts", restarts.jobs),
        ("jobRestartsCountTowardsMax", restarts.jobs_counted),
    ):
        if job.name in found:
            given = found[job.name]
            entry[field_name] = [*given, *[0] * (job.replicas - len(given))]
    return entry


def _seconds(text: Any, default: float) -> float:
    try:
        return parse_rfc3339(text) if text else default
    except ValueError:
        return default

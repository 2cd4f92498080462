"""Status of a JobFlow, as Volcano writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from windlass.api.views.wire import moment
from windlass.kits import durations
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]


class FlowPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEED = "Succeed"
    FAILED = "Failed"
    TERMINATING = "Terminating"


COMPLETED = "Completed"
_LISTS = {
    "Pending": "pendingJobs",
    "Running": "runningJobs",
    "Failed": "failedJobs",
    COMPLETED: "completedJobs",
    "Terminated": "terminatedJobs",
}
"""Phase of a job → list of the status. Completing and Terminating jobs are in no list."""
_UNLISTED = frozenset({"Completing", "Terminating"})
_OTHERS = "unKnowJobs"


@dataclass(frozen=True, slots=True)
class FlowJob:
    """Job of a flow. ``obj`` is ``None`` if it completed and was deleted since."""

    name: str
    phase: str
    obj: Json | None


def flow_jobs(flow: Mapping[str, Any], jobs: Mapping[str, Json]) -> list[FlowJob]:
    """Return the flow's jobs by name, with those that completed and are gone.

    A completed job may be deleted by its ``ttlSecondsAfterFinished`` while the flow
    goes on. It is not created again.
    """
    found = {name: FlowJob(name, job_phase(job), job) for name, job in jobs.items()}
    for entry in (flow.get("status") or {}).get("jobStatusList") or ():
        name = entry.get("name") or ""
        if name not in found and entry.get("state") == COMPLETED:
            found[name] = FlowJob(name, COMPLETED, None)
    return [found[name] for name in sorted(found)]


def job_phase(job: Mapping[str, Any]) -> str:
    return ((job.get("status") or {}).get("state") or {}).get("phase") or ""


def next_phase(before: FlowPhase, jobs: Sequence[FlowJob], steps: int) -> FlowPhase:
    """Return the phase of the flow by Volcano's rules. Succeed and Failed are final."""
    phases = [job.phase for job in jobs]
    running, completed = phases.count("Running"), phases.count(COMPLETED)
    failed, terminated = phases.count("Failed"), phases.count("Terminated")
    if before is FlowPhase.PENDING:
        if (running or completed) and not failed:
            return FlowPhase.RUNNING
        return FlowPhase.FAILED if failed or terminated else FlowPhase.PENDING
    if before is FlowPhase.RUNNING:
        if completed == steps:
            return FlowPhase.SUCCEED
        return FlowPhase.FAILED if failed or terminated else FlowPhase.RUNNING
    return before


def flow_phase(flow: Mapping[str, Any]) -> FlowPhase:
    text = ((flow.get("status") or {}).get("state") or {}).get("phase")
    try:
        return FlowPhase(text or FlowPhase.PENDING)
    except ValueError:
        return FlowPhase.PENDING


def flow_status(flow: Mapping[str, Any], jobs: Sequence[FlowJob], phase: FlowPhase, now: float) -> Json:
    """Return the whole status. Empty fields are left out."""
    lists: dict[str, list[str]] = {}
    for job in jobs:
        if job.phase not in _UNLISTED:
            lists.setdefault(_LISTS.get(job.phase, _OTHERS), []).append(job.name)
    old = flow.get("status") or {}
    before = {entry.get("name"): entry for entry in old.get("jobStatusList") or ()}
    entries = dict(before)
    conditions: dict[str, Json] = {}
    for job in jobs:
        if job.obj is None:
            conditions[job.name] = (old.get("conditions") or {}).get(job.name) or {"phase": job.phase}
            continue
        entries[job.name] = _entry(job.name, job.obj, before.get(job.name) or {}, now)
        conditions[job.name] = _condition(job.obj)
    status = {
        **lists,
        "jobStatusList": list(entries.values()),
        "conditions": conditions,
        "state": {"phase": str(phase)},
    }
    return {name: value for name, value in status.items() if value}


def _condition(job: Json) -> Json:
    status = job.get("status") or {}
    found = {
        "phase": job_phase(job),
        "createTime": job["metadata"].get("creationTimestamp"),
        "runningDuration": status.get("runningDuration"),
        "taskStatusCount": status.get("taskStatusCount"),
    }
    return {name: value for name, value in found.items() if value}


def _entry(name: str, job: Json, before: Json, now: float) -> Json:
    status, created = job.get("status") or {}, job["metadata"].get("creationTimestamp")
    entry = {
        "name": name,
        "state": job_phase(job),
        "startTimestamp": created,
        "endTimestamp": _end(created, status.get("runningDuration")),
        "restartCount": status.get("retryCount"),
        "runningHistories": _histories(before.get("runningHistories") or [], job_phase(job), now),
    }
    return {field: value for field, value in entry.items() if value}


def _end(created: str | None, ran: str | None) -> str | None:
    if not ran or not created:
        return None
    try:
        return rfc3339(moment(created) + durations.parse(ran))
    except ValueError:
        return None


def _histories(before: list[Json], phase: str, now: float) -> list[Json]:
    if not phase or (before and before[-1].get("state") == phase):
        return before
    histories = [dict(entry) for entry in before]
    if histories:
        histories[-1]["endTimestamp"] = rfc3339(now)
    return [*histories, {"startTimestamp": rfc3339(now), "state": phase}]

"""Child Jobs of a JobSet as observed, and the counts per replicated job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from windlass.api.fields import jobset
from windlass.kits.timestamps import stored_time

Json = Mapping[str, Any]


class ChildState(StrEnum):
    """State of a child Job."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREVIOUS = "previous"
    """It belongs to an attempt before the last restart."""


@dataclass(frozen=True, slots=True)
class ChildJob:
    """Child Job.

    ``ready``: as many pods are ready or have succeeded as the Job runs at a time.
    ``failed_at``: Unix seconds; 0.0 unless it failed.
    ``suspended``: ``spec.suspend``.
    """

    name: str
    uid: str
    replicated_job: str
    index: int
    state: ChildState
    deleting: bool
    ready: bool
    has_active_pods: bool
    suspended: bool
    reason: str
    message: str
    failed_at: float
    object: Json


@dataclass(frozen=True, slots=True)
class Restarts:
    """Counters of ``status``. ``jobs`` and ``jobs_counted``: replicated job → count per index."""

    total: int
    counted: int
    jobs: Mapping[str, tuple[int, ...]]
    jobs_counted: Mapping[str, tuple[int, ...]]

    @property
    def towards_max(self) -> int:
        return self.counted + sum(sum(counts) for counts in self.jobs_counted.values())

    def of_job(self, name: str, index: int) -> int:
        """Return how often one Job was restarted by itself."""
        counts = self.jobs.get(name, ())
        return counts[index] if index < len(counts) else 0


def read_restarts(status: Json) -> Restarts:
    """Return the counters of a status."""
    entries = status.get("replicatedJobsStatus") or ()
    return Restarts(
        int(status.get("restarts") or 0),
        int(status.get("restartsCountTowardsMax") or 0),
        {entry["name"]: tuple(entry["jobRestarts"]) for entry in entries if entry.get("jobRestarts")},
        {
            entry["name"]: tuple(entry["jobRestartsCountTowardsMax"])
            for entry in entries
            if entry.get("jobRestartsCountTowardsMax")
        },
    )


def read_children(jobs: Iterable[Json], restarts: Restarts) -> tuple[ChildJob, ...]:
    """Return the child Jobs, ordered by name."""
    return tuple(sorted((_child(job, restarts) for job in jobs), key=lambda child: child.name))


def _child(job: Json, restarts: Restarts) -> ChildJob:
    metadata, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    labels = metadata.get("labels") or {}
    name, index = labels.get(jobset.REPLICATED_JOB_NAME) or "", _number(labels.get(jobset.JOB_INDEX))
    ended = {
        condition.get("type"): condition
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    failed = ended.get("Failed") or {}
    attempt = _number(labels.get(jobset.RESTART_ATTEMPT))
    own = _number(labels.get(jobset.JOB_RESTART_ATTEMPT))
    if attempt < restarts.total or own < restarts.of_job(name, index):
        state = ChildState.PREVIOUS
    elif failed:
        state = ChildState.FAILED
    else:
        state = ChildState.SUCCEEDED if "Complete" in ended else ChildState.ACTIVE
    done = int(status.get("succeeded") or 0) + int(status.get("ready") or 0)
    return ChildJob(
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        replicated_job=name,
        index=index,
        state=state,
        deleting=bool(metadata.get("deletionTimestamp")),
        ready=done >= jobset.pods_of_job(spec),
        has_active_pods=bool(status.get("active")),
        suspended=bool(spec.get("suspend")),
        reason=failed.get("reason") or "",
        message=failed.get("message") or "",
        failed_at=stored_time(failed.get("lastTransitionTime")),
        object=job,
    )


def _number(text: Any) -> int:
    """Return a number of a label; 0 if it is absent or was changed to something else."""
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Counts of the Jobs of one replicated job, as in ``replicatedJobsStatus``."""

    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    suspended: int = 0

    @property
    def started(self) -> int:
        return self.ready + self.succeeded + self.failed


def count_jobs(children: Sequence[ChildJob], name: str) -> JobCounts:
    """Return the counts of one replicated job. Jobs of former attempts do not count."""
    mine = [child for child in children if child.replicated_job == name]
    active = [child for child in mine if child.state is ChildState.ACTIVE]
    return JobCounts(
        ready=sum(child.ready for child in active),
        succeeded=sum(child.state is ChildState.SUCCEEDED for child in mine),
        failed=sum(child.state is ChildState.FAILED for child in mine),
        active=sum(child.has_active_pods for child in active),
        suspended=sum(child.suspended for child in active),
    )

"""Status of a TrainJob: its conditions, and the counts of its JobSet.

The newest condition is the last one, because the printer column shows that one. Kubeflow
has no condition for a job that runs, so a resumed job is shown as suspended there. Here
``Running`` follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.kits.timestamps import parse_rfc3339, rfc3339

Json = Mapping[str, Any]
SUSPENDED, RUNNING, COMPLETE, FAILED = "Suspended", "Running", "Complete", "Failed"
CREATION_FAILED = "CreationFailed"
"""Condition while the server refuses an object of the job."""
FINAL = (COMPLETE, FAILED)
_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")
_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)")


class TrainConditions:
    """Conditions of one TrainJob while it is reconciled."""

    def __init__(self, conditions: Sequence[Json], now: float) -> None:
        self.items = [dict(condition) for condition in conditions]
        self._now = rfc3339(now)

    def find(self, kind: str) -> Json | None:
        return next((found for found in self.items if found.get("type") == kind), None)

    def is_true(self, kind: str) -> bool:
        found = self.find(kind)
        return found is not None and found.get("status") == "True"

    @property
    def finished(self) -> bool:
        return any(self.is_true(kind) for kind in FINAL)

    def set(self, kind: str, value: bool, reason: str, message: str) -> None:
        """Set a condition. One that becomes true moves to the end; one that was never true is not added as false."""
        status = "True" if value else "False"
        present = self.find(kind)
        if present is None and not value:
            return
        wanted = {"type": kind, "status": status, "reason": reason, "message": message}
        if present is not None and all(present.get(name) == text for name, text in wanted.items()):
            return
        changed = present is None or present.get("status") != status
        since = self._now if changed else (present or {}).get("lastTransitionTime", self._now)
        new = {**wanted, "lastTransitionTime": since}
        if not changed:
            self.items = [new if found.get("type") == kind else found for found in self.items]
            return
        rest = [found for found in self.items if found.get("type") != kind]
        # A condition that ended must not be shown as the state of the job.
        self.items = [*rest, new] if value else [new, *rest]


def job_counts(job_set: Json | None) -> list[dict[str, Any]]:
    """Return ``jobsStatus`` from the status of the JobSet."""
    entries = ((job_set or {}).get("status") or {}).get("replicatedJobsStatus") or ()
    return [
        {"name": entry.get("name"), **{name: int(entry.get(name) or 0) for name in _COUNTS}}
        for entry in entries
    ]


def is_running(counts: Sequence[Json]) -> bool:
    """Return whether pods of the job run or have run."""
    return any(entry.get("active") or entry.get("ready") or entry.get("succeeded") for entry in counts)


def started_at(train_job: Json, conditions: TrainConditions, now: float) -> float | None:
    """Return since when the deadline counts: the creation, or the last resume."""
    resumed = conditions.find(SUSPENDED)
    if conditions.is_true(SUSPENDED):
        return now  # it is being resumed
    text = train_job["metadata"].get("creationTimestamp")
    if resumed is not None and resumed.get("status") == "False":
        text = resumed.get("lastTransitionTime") or text
    try:
        return parse_rfc3339(text) if text else None
    except ValueError:
        return None


def remedy(message: str, namespace: str) -> str:
    """Return what can be done about a refused object."""
    quota = _QUOTA.search(message)
    if quota is not None:
        return f"raise it with: kubectl edit resourcequota {quota[1]} -n {namespace}, or delete what uses it"
    return f"correct the TrainJob or its runtime, or see: kubectl get events -n {namespace}"

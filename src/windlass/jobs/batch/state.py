"""Status of a ``batch/v1`` Job, read from its object and written back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.jobs.batch.spec import indexes_text, parse_indexes
from windlass.kits.timestamps import parse_rfc3339, rfc3339

COMPLETE, FAILED = "Complete", "Failed"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"
SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class BatchCondition:
    """Condition of a Job. ``at``: Unix seconds of its last change."""

    type: str
    status: str
    reason: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class BatchState:
    """Status of a Job. Times are Unix seconds, 0.0: unset.

    ``succeeded`` and ``failed``: pods that are counted.
    ``uncounted_succeeded`` and ``uncounted_failed``: uids of finished pods that still
        had their finalizer when the status was written.
    ``failed_indexes``: ``None`` without ``backoffLimitPerIndex``.
    """

    started: float = 0.0
    completed: float = 0.0
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    uncounted_succeeded: tuple[str, ...] = ()
    uncounted_failed: tuple[str, ...] = ()
    completed_indexes: frozenset[int] = frozenset()
    failed_indexes: frozenset[int] | None = None
    conditions: tuple[BatchCondition, ...] = ()

    def condition(self, kind: str) -> BatchCondition | None:
        """Return the condition of this type."""
        return next((found for found in self.conditions if found.type == kind), None)

    def holds(self, kind: str) -> bool:
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def finished(self) -> bool:
        return self.holds(COMPLETE) or self.holds(FAILED)

    @property
    def finished_at(self) -> float:
        """Return when the Job finished (Unix seconds)."""
        end = self.condition(COMPLETE) if self.holds(COMPLETE) else self.condition(FAILED)
        assert end is not None
        return end.at

    @property
    def uncounted(self) -> bool:
        return bool(self.uncounted_succeeded or self.uncounted_failed)


def with_condition(
    conditions: Iterable[BatchCondition], wanted: BatchCondition
) -> tuple[BatchCondition, ...] | None:
    """Return the conditions with this one added or changed; ``None`` if nothing changes.

    A condition that is absent is not added with the status False.
    """
    found = list(conditions)
    for position, other in enumerate(found):
        if other.type == wanted.type:
            if (other.status, other.reason, other.message) == (wanted.status, wanted.reason, wanted.message):
                return None
            found[position] = wanted
            return tuple(found)
    return (*found, wanted) if wanted.status != "False" else None


def read_state(obj: Mapping[str, Any], indexes: int) -> BatchState:
    """Read the status of an object. ``indexes``: indexes from there on are left out."""
    status = obj.get("status") or {}
    uncounted = status.get("uncountedTerminatedPods") or {}
    failed = status.get("failedIndexes")
    return BatchState(
        started=_moment(status.get("startTime")),
        completed=_moment(status.get("completionTime")),
        active=int(status.get("active") or 0),
        ready=int(status.get("ready") or 0),
        terminating=int(status.get("terminating") or 0),
        succeeded=int(status.get("succeeded") or 0),
        failed=int(status.get("failed") or 0),
        uncounted_succeeded=tuple(uncounted.get("succeeded") or ()),
        uncounted_failed=tuple(uncounted.get("failed") or ()),
        completed_indexes=_indexes(status.get("completedIndexes"), indexes),
        failed_indexes=None if failed is None else _indexes(failed, indexes),
        conditions=tuple(_condition(found) for found in status.get("conditions") or ()),
    )


def render_state(state: BatchState, indexed: bool) -> dict[str, Any]:
    """Return the status of an object."""
    uncounted = {
        "succeeded": list(state.uncounted_succeeded),
        "failed": list(state.uncounted_failed),
    }
    status: dict[str, Any] = {
        "conditions": [_rendered(found) for found in state.conditions],
        "startTime": rfc3339(state.started) if state.started else None,
        "completionTime": rfc3339(state.completed) if state.completed else None,
        "active": state.active,
        "succeeded": state.succeeded,
        "failed": state.failed,
        "completedIndexes": indexes_text(state.completed_indexes) if indexed else "",
        "failedIndexes": None,
    }
    status = {name: value for name, value in status.items() if value}
    if state.failed_indexes is not None:
        status["failedIndexes"] = indexes_text(state.failed_indexes)
    status["terminating"], status["ready"] = state.terminating, state.ready
    status["uncountedTerminatedPods"] = {name: uids for name, uids in uncounted.items() if uids}
    return status


def _moment(text: object) -> float:
    return parse_rfc3339(text) if isinstance(text, str) else 0.0


def _indexes(text: object, limit: int) -> frozenset[int]:
    if not isinstance(text, str):
        return frozenset()
    return frozenset(index for index in parse_indexes(text) if index < limit)


def _condition(found: Mapping[str, Any]) -> BatchCondition:
    return BatchCondition(
        str(found.get("type")),
        str(found.get("status")),
        found.get("reason") or "",
        found.get("message") or "",
        _moment(found.get("lastTransitionTime")),
    )


def _rendered(condition: BatchCondition) -> dict[str, Any]:
    moment = rfc3339(condition.at)
    body = {
        "type": condition.type,
        "status": condition.status,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
    }
    if condition.reason:
        body["reason"] = condition.reason
    if condition.message:
        body["message"] = condition.message
    return body

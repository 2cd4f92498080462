"""Stored form of what the status of a job kind has no field for: restarts and cause of the end. Pure.

It is JSON in the annotation ``windlass.dev/job-record`` of the job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.jobs.decision import LifecycleState, RestartCounts
from windlass.jobs.definition import Json
from windlass.jobs.members import LossCause


def record_text(state: LifecycleState) -> str:
    """Return the annotation of a state; empty if there is nothing to record."""
    record: dict[str, Any] = {}
    if state.restarts.by_cause:
        record["restarts"] = {str(cause): count for cause, count in sorted(state.restarts.by_cause.items())}
    if state.restarts.counted:
        record["counted"] = sorted(state.restarts.counted)
    if state.cause:
        record["cause"] = state.cause
    return msgspec.json.encode(record).decode() if record else ""


def stored_text(obj: Json) -> str:
    """Return the annotation that a job has; empty without one."""
    return ((obj.get("metadata") or {}).get("annotations") or {}).get(names.JOB_RECORD) or ""


def read_record(obj: Json) -> tuple[str, RestartCounts]:
    """Return the cause of the end and the restarts. What a user has made unreadable counts as absent."""
    try:
        record = msgspec.json.decode(stored_text(obj) or "{}")
    except msgspec.DecodeError:
        record = {}
    if not isinstance(record, dict):
        record = {}
    counts, counted = record.get("restarts"), record.get("counted")
    by_cause = {
        cause: int(counts[cause])
        for cause in LossCause
        if isinstance(counts, dict) and isinstance(counts.get(cause), int)
    }
    seen = frozenset(counted) if isinstance(counted, list) else frozenset()
    return str(record.get("cause") or ""), RestartCounts(by_cause, seen)

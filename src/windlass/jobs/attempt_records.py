"""Stored form of the attempt ledger of a job, and of a pod's checkpoint report: JSON in annotations. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.jobs.attempts import Attempt, AttemptLedger, CheckpointReport

_FIELDS = {
    "number": "n",
    "queued": "q",
    "started": "s",
    "ended": "e",
    "cause": "c",
    "detail": "d",
    "signalled": "t",
    "saved": "v",
    "checkpoint_seconds": "k",
    "watched": "w",
    "restarts": "r",
    "sizes": "z",
}
"""Field → key in the stored JSON. Default values are left out."""


def ledger_text(ledger: AttemptLedger) -> str:
    """Return the ledger as the JSON of an annotation."""
    record: dict[str, Any] = {
        "attempts": [
            {key: value for name, key in _FIELDS.items() if (value := getattr(one, name))}
            for one in ledger.attempts
        ]
    }
    if ledger.spent:
        record["spent"] = ledger.spent
    if ledger.dropped:
        record["dropped"] = [
            ledger.dropped,
            round(ledger.dropped_queue_seconds, 1),
            round(ledger.dropped_running_seconds, 1),
        ]
    return msgspec.json.encode(record).decode()


def read_ledger(text: str | None) -> AttemptLedger:
    """Return the stored ledger; an empty one if ``text`` is absent or was overwritten by a user."""
    if not text:
        return AttemptLedger()
    try:
        stored = msgspec.json.decode(text, type=_Stored)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return AttemptLedger()
    count, queued, running = (*stored.dropped, 0.0, 0.0, 0.0)[:3]
    return AttemptLedger(
        tuple(Attempt(**dict(_fields(one))) for one in stored.attempts),
        stored.spent,
        int(count),
        queued,
        running,
    )


class _StoredAttempt(msgspec.Struct):
    n: int = 1
    q: float = 0.0
    s: float = 0.0
    e: float = 0.0
    c: str = ""
    d: str = ""
    t: float = 0.0
    v: float = 0.0
    k: float = 0.0
    w: bool = False
    r: int = 0
    z: tuple[tuple[float, int], ...] = ()


class _Stored(msgspec.Struct):
    attempts: tuple[_StoredAttempt, ...] = ()
    spent: tuple[str, ...] = ()
    dropped: tuple[float, ...] = ()


def _fields(stored: _StoredAttempt) -> list[tuple[str, Any]]:
    return [(name, getattr(stored, key)) for name, key in _FIELDS.items()]


def read_report(text: str | None) -> CheckpointReport:
    """Return the report that a node wrote on a pod."""
    if not text:
        return CheckpointReport()
    try:
        found = msgspec.json.decode(text, type=dict[str, float | bool])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return CheckpointReport()
    return CheckpointReport(
        signalled=float(found.get("signalled") or 0.0),
        saved=float(found.get("saved") or 0.0),
        seconds=float(found.get("seconds") or 0.0),
        watched=bool(found.get("watched")),
    )


def report_text(report: CheckpointReport) -> str:
    """Return a report as the JSON of an annotation."""
    record: Mapping[str, float | bool] = {
        "signalled": round(report.signalled, 2),
        "saved": round(report.saved, 2),
        "seconds": round(report.seconds, 2),
        "watched": report.watched,
    }
    return msgspec.json.encode({key: value for key, value in record.items() if value}).decode()

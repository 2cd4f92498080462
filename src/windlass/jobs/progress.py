"""Progress of a job as its program reports it: percent, seconds left, metrics.

A program sends ``{"trainerStatus": …}`` (Kubeflow's KEP-2779) to the status endpoint of
its job. A TrainJob keeps the report in ``status.trainerStatus``. Each other kind keeps
it in the annotation ``windlass.dev/progress`` of the job, in the same form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windlass.api import annotations as names

Json = Mapping[str, Any]
TRAIN_JOB = "TrainJob"
MAX_METRICS = 256
"""Maximum number of metrics in a report."""
MAX_TEXT = 64
"""Maximum length of a metric's name and of its value, in characters."""


class ReportError(ValueError):
    """Report that cannot be stored. ``field``: path in the body."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field, self.message = field, message


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """Last report of a job's program.

    ``percent``: 0 to 100. ``remaining_seconds``: estimate. ``None``: not reported.
    ``metrics``: name and value, as text. ``updated``: RFC 3339.
    """

    percent: int | None
    remaining_seconds: int | None
    metrics: tuple[tuple[str, str], ...]
    updated: str

    @property
    def updated_at(self) -> float:
        """Time of the report in Unix seconds; 0.0 if it cannot be read."""
        return _seconds(self.updated) or 0.0

    def body(self) -> dict[str, Any]:
        """Return the record in the form of ``trainerStatus``."""
        found: dict[str, Any] = {}
        if self.percent is not None:
            found["progressPercentage"] = self.percent
        if self.remaining_seconds is not None:
            found["estimatedRemainingSeconds"] = self.remaining_seconds
        if self.metrics:
            found["metrics"] = [{"name": name, "value": value} for name, value in self.metrics]
        found["lastUpdatedTime"] = self.updated
        return found


def parse_report(body: Any, now: str) -> ProgressRecord | None:
    """Read the body of a request to the status endpoint. Raises :class:`ReportError`.

    ``now``: stands for a missing ``lastUpdatedTime`` (RFC 3339).
    A body without ``trainerStatus`` reports nothing and is accepted, as by Kubeflow.
    """
    if not isinstance(body, Mapping):
        raise ReportError("", 'the body must be a JSON object such as {"trainerStatus": {…}}')
    status = body.get("trainerStatus")
    return None if status is None else _record(status, now)


def read_progress(obj: Json) -> ProgressRecord | None:
    """Return the last report of a job of any kind, or ``None`` if there is none that can be read."""
    status = (obj.get("status") or {}).get("trainerStatus") if obj.get("kind") == TRAIN_JOB else None
    if status is None:
        text = ((obj.get("metadata") or {}).get("annotations") or {}).get(names.PROGRESS)
        if not text:
            return None
        try:
            status = json.loads(text)
        except ValueError:
            return None
    try:
        return _record(status, "")
    except ReportError:
        return None


def progress_patch(kind: str, record: ProgressRecord) -> tuple[str, dict[str, Any]]:
    """Return the subresource (empty: the object) and the merge patch that store a report."""
    if kind == TRAIN_JOB:
        absent = dict.fromkeys(("progressPercentage", "estimatedRemainingSeconds", "metrics"))
        return "status", {"status": {"trainerStatus": {**absent, **record.body()}}}
    text = json.dumps(record.body(), ensure_ascii=False, separators=(",", ":"))
    return "", {"metadata": {"annotations": {names.PROGRESS: text}}}


def _record(status: Any, now: str) -> ProgressRecord:
    where = "trainerStatus"
    if not isinstance(status, Mapping):
        raise ReportError(where, "must be an object")
    updated = status.get("lastUpdatedTime") or now
    if not isinstance(updated, str) or _seconds(updated) is None:
        raise ReportError(f"{where}.lastUpdatedTime", "must be a time such as 2026-01-31T12:00:00Z")
    return ProgressRecord(
        _whole(status, "progressPercentage", 100),
        _whole(status, "estimatedRemainingSeconds", 2**31 - 1),
        _metrics(status.get("metrics") or (), f"{where}.metrics"),
        updated,
    )


def _whole(status: Json, name: str, maximum: int) -> int | None:
    value = status.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise ReportError(f"trainerStatus.{name}", f"must be a whole number from 0 to {maximum}")
    return value


def _metrics(metrics: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(metrics, list | tuple):
        raise ReportError(where, "must be a list of {name, value}")
    if len(metrics) > MAX_METRICS:
        raise ReportError(where, f"must have at most {MAX_METRICS} entries")
    return tuple(
        (_text(metric, "name", f"{where}[{i}]"), _text(metric, "value", f"{where}[{i}]"))
        for i, metric in enumerate(metrics)
    )


def _text(metric: Any, name: str, where: str) -> str:
    value = metric.get(name) if isinstance(metric, Mapping) else None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_TEXT:
        raise ReportError(f"{where}.{name}", f"must be a text of 1 to {MAX_TEXT} characters")
    return value


def _seconds(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None

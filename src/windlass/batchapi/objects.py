"""Objects of the interface: files, batches, errors and pages, as OpenAI's client reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

WINDOW = "24h"
"""The only completion window of OpenAI's interface."""
WINDOW_SECONDS = 24 * 3600
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
VALIDATING, RUNNING, FINALIZING = "validating", "in_progress", "finalizing"
COMPLETED, FAILED, CANCELLING, CANCELLED, EXPIRED = (
    "completed",
    "failed",
    "cancelling",
    "cancelled",
    "expired",
)
ENDED = frozenset({COMPLETED, FAILED, CANCELLED, EXPIRED})
"""Statuses after which a batch does not change."""


class ApiError(Exception):
    """Refused request. ``status``: HTTP status. ``param``: field of the request, if one is to blame."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's form."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class StoredFile:
    """Uploaded or produced file. ``created_at``: Unix seconds."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int

    def body(self) -> dict[str, Any]:
        """Return the file as OpenAI's client reads it."""
        return {"object": "file", "status": "processed", **asdict(self)}


@dataclass(frozen=True)
class LineError:
    """Fault of one line of an input file. ``line``: from 1."""

    line: int | None
    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True)
class StoredBatch:
    """Batch. ``job``: namespace and name of its AIGCJob; empty before it exists.

    Times are Unix seconds; ``None``: not reached.
    """

    id: str
    endpoint: str
    input_file_id: str
    created_at: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    job: str = ""
    status: str = VALIDATING
    errors: tuple[LineError, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    expired_at: int | None = None

    def body(self) -> dict[str, Any]:
        """Return the batch as OpenAI's client reads it."""
        found = asdict(self)
        counts = {name: found.pop(name) for name in ("total", "completed", "failed")}
        del found["job"]
        found["errors"] = {"object": "list", "data": found["errors"]} if self.errors else None
        return {
            "object": "batch",
            "completion_window": WINDOW,
            "expires_at": self.created_at + WINDOW_SECONDS,
            **found,
            "metadata": dict(self.metadata) or None,
            "request_counts": counts,
        }


def read_batch(document: Mapping[str, Any]) -> StoredBatch:
    """Return the batch that was stored as ``dataclasses.asdict``."""
    known = {each.name for each in fields(StoredBatch)}
    values = {name: value for name, value in document.items() if name in known}
    values["errors"] = tuple(LineError(**each) for each in values.get("errors") or ())
    return StoredBatch(**values)


def page(found: Sequence[Mapping[str, Any]], after: str, limit: int) -> dict[str, Any]:
    """Return the objects behind ``after``, at most ``limit``. Raises :class:`ApiError`."""
    begin = 0
    if after:
        ids = [each["id"] for each in found]
        if after not in ids:
            raise ApiError(400, f"no object {after!r} to list from", param="after")
        begin = ids.index(after) + 1
    data = list(found[begin : begin + limit])
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": begin + limit < len(found),
    }

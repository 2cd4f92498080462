"""Errors with a code, evidence and a remedy; and Kubernetes' Status objects, both ways.

Every failure that a person sees is a :class:`WindlassError`: *what* (message), *why* (evidence, with
numbers), and *try* (remedies: commands to copy). The wire form is :class:`StatusError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import Resource


class _Told(Exception):
    """An error that can be pickled whatever its constructor takes: what a process of a pool raises is told to the
    one that waits for it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[_Told], args: tuple[Any, ...]) -> _Told:
    return kind.__new__(kind, *args)  # its attributes come with the state


class WindlassError(_Told):
    """``code`` is stable and documented (``windlass help CODE``); see :mod:`windlass.api.error_codes`."""

    def __init__(self, code: str, message: str, *, evidence: str = "", remedies: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.evidence = evidence
        self.remedies = tuple(remedies)

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "evidence": self.evidence,
            "remedies": list(self.remedies),
        }


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field. ``reason`` is a cause type of Kubernetes (``FieldValueInvalid`` …)."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    @staticmethod
    def required(field: str, hint: str = "") -> FieldError:
        return FieldError(field, f"Required value{': ' + hint if hint else ''}", "FieldValueRequired")

    @staticmethod
    def invalid(field: str, value: object, why: str) -> FieldError:
        shown = f'"{value}"' if isinstance(value, str) else _compact(value)
        return FieldError(field, f"Invalid value: {shown}: {why}", "FieldValueInvalid")

    @staticmethod
    def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
        choices = ", ".join(f'"{choice}"' for choice in supported)
        return FieldError(
            field, f'Unsupported value: "{value}": supported values: {choices}', "FieldValueNotSupported"
        )

    @staticmethod
    def duplicate(field: str, value: object) -> FieldError:
        return FieldError(field, f'Duplicate value: "{value}"', "FieldValueDuplicate")

    @staticmethod
    def forbidden(field: str, why: str) -> FieldError:
        return FieldError(field, f"Forbidden: {why}", "FieldValueForbidden")

    @staticmethod
    def not_found(field: str, value: object) -> FieldError:
        return FieldError(field, f'Not found: "{value}"', "FieldValueNotFound")


def _compact(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class StatusError(_Told):
    """An answer of the API server that is not success: HTTP code, reason, and the Status object."""

    def __init__(self, status: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status.get("message", ""))
        self.status = dict(status)
        self.headers = dict(headers or {})

    @property
    def code(self) -> int:
        return int(self.status.get("code", 500))

    @property
    def reason(self) -> str:
        return str(self.status.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.status.get("message", ""))

    @property
    def details(self) -> dict[str, Any]:
        return self.status.get("details") or {}

    @property
    def retry_after_seconds(self) -> int | None:
        return self.details.get("retryAfterSeconds")


def failure(
    code: int,
    reason: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> StatusError:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = dict(details)
    status["code"] = code
    return StatusError(status, headers)


def _details(resource: Resource, name: str, kind: str | None = None, **extra: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    details.update(extra)
    return details


def not_found(resource: Resource, name: str) -> StatusError:
    return failure(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def already_exists(resource: Resource, name: str, *, deleting: bool = False) -> StatusError:
    """Return the 409 of a create. ``deleting``: the existing object waits for its deletion to finish."""
    prefix = "object is being deleted: " if deleting else ""
    message = f'{prefix}{resource.qualified} "{name}" already exists'
    return failure(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str | None = None) -> StatusError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    return failure(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}',
        _details(resource, name),
    )


def invalid(resource: Resource, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422. ``kind`` in details is the Kind; every field error is a cause."""
    texts = [f"{error.field}: {error.message}" for error in errors]
    body = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    causes = [{"reason": e.reason, "message": e.message, "field": e.field} for e in errors]
    return failure(
        422,
        "Invalid",
        f'{kind} "{name}" is invalid: {body}',
        _details(resource, name, kind=resource.kind, causes=causes),
    )


def forbidden(
    resource: Resource, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()
) -> StatusError:
    details = _details(resource, name)
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    return failure(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', details)


def bad_request(message: str) -> StatusError:
    return failure(400, "BadRequest", message)


def expired(message: str = "The resourceVersion for the provided list is too old.") -> StatusError:
    return failure(410, "Expired", message)

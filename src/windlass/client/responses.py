"""Interpretation of responses: objects, Status errors, warnings, watch events. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from windlass.api.errors import StatusError, failure
from windlass.api.resources import Resource
from windlass.client import errors

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation on the bookmark that ends the initial events of a WatchList."""


class WatchEvent(msgspec.Struct, gc=False):
    """Watch event: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR. ``object``: undecoded JSON."""

    type: str
    object: msgspec.Raw


class Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Envelope(msgspec.Struct, gc=False):
    """Fields of any object that a cache needs."""

    metadata: Metadata


class SlimMetadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class SlimEnvelope(msgspec.Struct, gc=False):
    metadata: SlimMetadata


class ListMeta(msgspec.Struct, rename={"continue_token": "continue"}):
    continue_token: str = ""
    resourceVersion: str = ""
    remainingItemCount: int | None = None


class ListResponse(msgspec.Struct, Generic[T]):
    """One response to a list request."""

    metadata: ListMeta
    items: list[T] | None = None


class ListResult(msgspec.Struct, Generic[T], frozen=True):
    """Objects of a list.

    ``resource_version``: version from which to watch.
    ``continue_token``: "" unless ``limit`` cut the list.
    """

    items: list[T]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


decode_any = msgspec.json.Decoder().decode
decode_event_lines = msgspec.json.Decoder(WatchEvent).decode_lines
decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_slim_envelope = msgspec.json.Decoder(SlimEnvelope).decode

_decoders: dict[Any, Callable[[Any], Any]] = {dict: decode_any}
_page_decoders: dict[Any, Callable[[Any], ListResponse[Any]]] = {}


def decoder(kind: type[T]) -> Callable[[Any], T]:
    """Return a decoder of one object: ``dict``, ``msgspec.Raw`` or a Struct type; one per type."""
    known = _decoders.get(kind)
    if known is None:
        known = _decoders[kind] = msgspec.json.Decoder(kind).decode
    return known


def decoded(kind: type[T], body: bytes) -> T:
    """Return the object in a response.

    Raises :class:`Unreachable` if it is not JSON (a proxy's page).
    """
    try:
        return decoder(kind)(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as problem:
        raise errors.garbled("the server", str(problem)) from problem


def page_decoder(kind: type[T]) -> Callable[[Any], ListResponse[T]]:
    known = _page_decoders.get(kind)
    if known is None:
        known = _page_decoders[kind] = msgspec.json.Decoder(ListResponse[kind]).decode  # type: ignore[valid-type]
    return known


def list_result(resource: Resource, kind: type[Any], body: bytes) -> ListResult[Any]:
    """Return the page in the response to a list. Raises :class:`Unreachable` if there is none."""
    try:
        page = page_decoder(kind)(body)
    except msgspec.DecodeError as problem:
        raise errors.garbled(f"the list of {resource.qualified}", str(problem)) from problem
    items = page.items or []
    if kind is dict:
        for item in items:  # items of built-in kinds come without
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
    meta = page.metadata
    return ListResult(items, meta.resourceVersion, meta.continue_token, meta.remainingItemCount)


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def error(status: int, headers: Mapping[str, str], body: bytes) -> StatusError:
    """Return the error of a response with status 300 or above (redirects are not followed).

    A body that is not a Status is wrapped into one.
    """
    try:
        decoded = decode_any(body)
    except msgspec.DecodeError:
        decoded = None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status":
        decoded.setdefault("code", status)
        made = StatusError(decoded, headers)
    else:
        text = body.decode("utf-8", "replace").strip()[:500] or f"the server answered {status}"
        made = failure(status, _REASONS.get(status, ""), text, None, headers)
    return made


def event_error(obj: Any) -> StatusError:
    """Return the Status of an ERROR event."""
    if not isinstance(obj, dict):
        obj = {"message": f"an ERROR event without a Status: {obj!r}"}
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, **obj}
    return StatusError(status)


def is_expired(problem: StatusError) -> bool:
    """Return whether the server no longer knows the resourceVersion or the continue token."""
    return problem.code == 410 or problem.reason in ("Expired", "Gone")


def is_missing(problem: StatusError) -> bool:
    """Return whether the server says that the object does not exist.

    A 404 that names no object comes from a proxy without a route, or from a server that does not serve the kind.
    """
    return problem.code == 404 and bool(problem.details.get("name"))


_PASSING = frozenset({401, 408, 409, 410, 425, 429})


def may_pass(problem: StatusError) -> bool:
    """Return whether the same request may succeed later.

    The cause is then not the request, but a server or proxy that is overloaded, failing, outdated or unreachable,
    or a concurrent write.
    """
    if problem.code == 404:
        return not is_missing(problem)
    return not 400 <= problem.code < 500 or (problem.code in _PASSING and problem.reason != "AlreadyExists")


def is_another(problem: StatusError) -> bool:
    """Return whether the object exists with another UID than the request was for."""
    named = "UID in" in problem.message or "metadata.uid" in problem.message
    return problem.code in (409, 422) and named


def refusal_by_budget(problem: StatusError) -> str:
    """Return the message of the Eviction API if a PodDisruptionBudget rejected the eviction.

    Returns ``""`` for any other rejection, such as that of an overloaded server.
    """
    if problem.code != 429:
        return ""
    message = [
        cause for cause in problem.details.get("causes") or () if cause.get("reason") == "DisruptionBudget"
    ]
    return (message[0].get("message") or problem.message) if message else ""


def is_too_large(problem: StatusError) -> bool:
    """Return whether the resourceVersion is newer than any that the server knows."""
    causes = problem.details.get("causes") or ()
    return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes)


def retry_after(problem: StatusError) -> float | None:
    """Return the seconds that the server requests to wait; ``None`` if it does not."""
    header = problem.headers.get("retry-after", "")
    if header.isdigit():
        return float(header)
    seconds = problem.retry_after_seconds
    return float(seconds) if seconds is not None else None


_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def warnings(headers: Mapping[str, str]) -> list[str]:
    """Return the texts of ``Warning: 299 - "text"`` headers."""
    value = headers.get("warning")
    if not value:
        return []
    return [_ESCAPED.sub(r"\1", text) for text in _WARNING.findall(value)]


def watched(event: WatchEvent, decode: Callable[[Any], T]) -> tuple[str, T]:
    """Return type and decoded object. An ERROR event is raised as :class:`StatusError`."""
    if event.type == "ERROR":
        raise event_error(decode_any(event.object))
    return event.type, decode(event.object)


class LineSplitter:
    """Splitter of a byte stream into batches of decoded watch events.

    A last line without its newline waits for its rest. At the end of the stream, it is
    half an event and is dropped (``rest`` tells).
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def feed(self, chunk: bytes) -> list[WatchEvent]:
        """Return the events in these bytes.

        Raises :class:`Unreachable` for a line that is not an event.
        """
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            self._kept.append(chunk)
            return []
        whole = chunk if end == len(chunk) else chunk[:end]
        if self._kept:
            whole = b"".join((*self._kept, whole))
            self._kept.clear()
        if end != len(chunk):
            self._kept.append(chunk[end:])
        try:
            return decode_event_lines(whole)
        except msgspec.DecodeError as problem:
            raise errors.garbled("the watch stream", str(problem)) from problem

    @property
    def rest(self) -> int:
        """Bytes of an unfinished line."""
        return sum(map(len, self._kept))

"""Context of all verbs: store, clock, randomness and admission, and the current request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from windlass.api.errors import (
    FieldError,
    StatusError,
    bad_request,
    conflict,
    failure,
    invalid,
    not_found,
)
from windlass.api.resources import Resource
from windlass.client.transport import Request
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.server.auth.pod_tokens import PodTokens
from windlass.server.custom_kinds import CustomKinds
from windlass.server.log_source import LogSource
from windlass.server.request.negotiation import PLAIN, Representation
from windlass.server.request.params import parse_query
from windlass.server.request.routing import RequestTarget
from windlass.server.request.users import UserInfo
from windlass.server.stream_source import StreamSource
from windlass.store import errors as store_errors
from windlass.store.records import Entry
from windlass.store.store import Store

_decode = msgspec.json.Decoder().decode

_SHARED_CHUNKS = 8
_AS_STORED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the server: limits and intervals (seconds).

    ``git_version``: version that ``/version`` reports.
    """

    git_version: str = "v1.36.0+windlass"
    bookmark_seconds: float = 60.0
    watch_min_seconds: float = 1800.0
    """Minimum duration of a watch without ``timeoutSeconds``; the maximum is twice as long."""
    future_wait_seconds: float = 3.0
    """Timeout of a read that waits for a future resourceVersion."""
    chunk_objects: int = 500
    body_limit_bytes: int = 3 * 2**20


class AdmissionResult(Protocol):
    """Result of admission: the object to be stored, and warnings for the client."""

    @property
    def object(self) -> dict[str, Any]: ...

    @property
    def warnings(self) -> list[str]: ...


class Admitter(Protocol):
    """Changes and checks objects before they are stored. Raises StatusError."""

    def review(
        self,
        operation: str,
        resource: Resource,
        new: dict[str, Any] | None,
        old: dict[str, Any] | None,
        context: AdmissionContext,
    ) -> AdmissionResult: ...


class AdmissionContext(msgspec.Struct, frozen=True):
    """Request under review.

    ``subresource`` is empty for the object itself.
    """

    user: UserInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    dry_run: bool = False


class Call(msgspec.Struct):
    """Request in progress."""

    request: Request
    target: RequestTarget
    user: UserInfo
    params: dict[str, str] = msgspec.field(default_factory=dict)
    form: Representation = PLAIN
    warnings: list[str] = msgspec.field(default_factory=list)

    @staticmethod
    def of(request: Request, target: RequestTarget, user: UserInfo) -> Call:
        return Call(request, target, user, parse_query(request.query))

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "")


@dataclass(slots=True)
class ServerCore:
    """Components of the server, and helpers that most verbs share."""

    store: Store
    clock: Clock
    rng: Random
    admission: Admitter
    options: ServerOptions
    logs: LogSource | None = None
    streams: StreamSource | None = None
    open_watches: int = 0
    tokens: PodTokens | None = None
    """Issuer of tokens of service accounts."""
    report_rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Service account → how many more reports of progress it may send, and since when."""
    stopping: bool = False
    """True from shutdown on: watches and followed logs end."""
    kinds: CustomKinds = field(init=False)
    _chunks: dict[tuple[str, str, int, int], bytes] = field(default_factory=dict)

    _stopped: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self.kinds = CustomKinds(self.store)

    def stopped(self) -> asyncio.Future[None]:
        """Return a future that is done when the server shuts down. It must not be cancelled."""
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_future()
            if self.stopping:
                self._stopped.set_result(None)
        return self._stopped

    def stop(self) -> None:
        """End all streams cleanly."""
        self.stopping = True
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)
        self.store.end_watches()

    def shared_chunk(self, key: tuple[str, str, int, int]) -> bytes | None:
        """Return watch lines that were encoded for another watcher.

        ``key``: (table, representation, from position, to position).
        """
        return self._chunks.get(key)

    def share_chunk(self, key: tuple[str, str, int, int], data: bytes) -> None:
        if len(self._chunks) >= _SHARED_CHUNKS:
            del self._chunks[next(iter(self._chunks))]
        self._chunks[key] = data

    def admit(
        self,
        call: Call,
        operation: str,
        new: dict[str, Any] | None,
        old: dict[str, Any] | None,
        *,
        dry_run: bool = False,
        name: str = "",
    ) -> dict[str, Any]:
        """Run admission, add its warnings to the response, and return the object.

        Raises StatusError.
        """
        target = call.target
        context = AdmissionContext(
            call.user, target.namespace, name or target.name, target.subresource, dry_run
        )
        reviewed = self.admission.review(operation, target.stored, new, old, context)
        call.warnings.extend(reviewed.warnings)
        return reviewed.object

    def head(self, target: RequestTarget) -> Entry | None:
        return self.store.head(target.table, target.namespace, target.name)


def decoded(resource: Resource, entry: Entry) -> dict[str, Any]:
    """Return a stored object as a new dict, with kind and apiVersion."""
    obj: dict[str, Any] = {"kind": resource.kind, "apiVersion": resource.api_version}
    obj.update(_decode(entry.data))
    return obj if resource.definition is None else resource.definition.read(obj)


def translated(error: store_errors.StoreError, resource: Resource, name: str) -> StatusError:
    """Return the StatusError for an error of the store."""
    if isinstance(error, store_errors.Missing):
        return not_found(resource, name)
    if isinstance(error, store_errors.Conflict):
        return conflict(resource, name, _AS_STORED)
    if isinstance(error, store_errors.Unindexable):
        return bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        )
    return failure(500, "InternalError", str(error))


def metadata_of(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object's metadata, created if absent.

    Raises 400 if it is not a JSON object.
    """
    metadata = obj.setdefault("metadata", {})
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata of the object is not an object")
    return metadata


def require_name(resource: Resource, metadata: Mapping[str, Any]) -> str:
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(
            resource, "", [FieldError.required("metadata.name", "name or generateName is required")]
        )
    return name

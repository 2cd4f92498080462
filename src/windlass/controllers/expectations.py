"""Indexed caches of reconcilers, and expectations about their own writes.

A cache lags behind the server. A reconciler must not run again before its caches show
what it has written: otherwise it would write twice, or would take its own new pod for a
deleted one. :class:`Expectations` delays the key until the caches have caught up (as in
client-go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from windlass.api.resources import Resource
from windlass.client.informers import Informer, Route, key_of

T = TypeVar("T")
EXPECTATION_TIMEOUT_SECONDS = 15.0
"""Timeout (seconds) of an expectation. After it the key is reconciled all the same."""
MAX_GONE = 20_000
"""Maximum number of deletions that are remembered while writes are in progress."""


class StoredOwner(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Owner reference of a stored object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Names(msgspec.Struct, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class _NamesAndOwners(_Names, rename="camel", gc=False):
    owner_references: list[StoredOwner] | None = None


class _Owned(msgspec.Struct, gc=False):
    metadata: _NamesAndOwners


class BareObject(msgspec.Struct, gc=False):
    """Any object of which only the existence matters."""

    metadata: _Names

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version

    @property
    def key(self) -> str:
        return key_of(self.metadata.namespace, self.metadata.name)


_owned = msgspec.json.Decoder(_Owned)
_whole = msgspec.json.Decoder()


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """Whole object, kept as JSON (a tenth of the decoded size) and decoded on access."""

    key: str
    uid: str
    resource_version: str
    deleted: float
    raw: bytes
    controller: StoredOwner | None = None
    """The owner with ``controller: true``, if there is one."""

    @property
    def object(self) -> dict[str, Any]:
        """Decode the object. The caller owns the result."""
        return _whole.decode(self.raw)


def decode_stored_object(raw: msgspec.Raw) -> StoredObject:
    meta = _owned.decode(raw).metadata
    return StoredObject(
        key_of(meta.namespace, meta.name),
        meta.uid,
        meta.resource_version,
        1.0 if meta.deletion_timestamp else 0.0,
        bytes(raw),
        next((owner for owner in meta.owner_references or () if owner.controller), None),
    )


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """Incarnation of a cached object.

    ``uid`` and ``version`` are ``""`` if the view drops them.
    """

    key: str
    uid: str
    version: str
    deleting: bool


def identity(record: Any) -> ObjectIdentity:
    """Return the identity of a raw object or a view."""
    if isinstance(record, dict):
        metadata = record["metadata"]
        return ObjectIdentity(
            key_of(metadata.get("namespace") or "", metadata["name"]),
            metadata.get("uid", ""),
            metadata.get("resourceVersion", ""),
            bool(metadata.get("deletionTimestamp")),
        )
    return ObjectIdentity(
        getattr(record, "key", "") or record.name,
        getattr(record, "uid", ""),
        getattr(record, "resource_version", ""),
        bool(getattr(record, "deleted", 0.0)),
    )


class RecordIndex(Generic[T]):
    """Index of an informer's records. ``by(record)`` returns the index values of a record."""

    def __init__(
        self,
        informer: Informer[T],
        by: Callable[[T], Iterable[str]],
        key: Callable[[T], str],
        route: Route[T] | None = None,
    ) -> None:
        """``route``: the records to index; ``None``: all."""
        self._by = by
        self._key = key
        self._groups: dict[str, dict[str, T]] = {}
        informer.add_handler(self._add, self._update, self._remove, route=route)

    def get(self, group: str) -> Mapping[str, T]:
        """Key → record of one group; a live view that must not be changed."""
        return self._groups.get(group, {})

    def groups(self) -> Iterable[str]:
        return self._groups.keys()

    def _add(self, record: T) -> None:
        key = self._key(record)
        for group in self._by(record):
            self._groups.setdefault(group, {})[key] = record

    def _remove(self, record: T) -> None:
        key = self._key(record)
        for group in self._by(record):
            members = self._groups.get(group)
            if members is not None:
                members.pop(key, None)
                if not members:
                    del self._groups[group]

    def _update(self, old: T, new: T) -> None:
        key, groups = self._key(new), tuple(self._by(new))
        if key == self._key(old) and groups == tuple(self._by(old)):
            for group in groups:
                self._groups[group][key] = new
            return
        self._remove(old)
        self._add(new)


class NamespaceView(Mapping[str, T]):
    """The objects of one namespace by name: a view on a cache, without a copy."""

    __slots__ = ("_items", "_prefix")

    def __init__(self, items: Mapping[str, T], namespace: str) -> None:
        self._items = items
        self._prefix = f"{namespace}/"

    def __getitem__(self, name: str) -> T:
        return self._items[f"{self._prefix}{name}"]

    def __iter__(self) -> Iterator[str]:
        prefix = self._prefix
        return (key[len(prefix) :] for key in self._items if key.startswith(prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Written:
    """Response of the server to a write.

    ``deleted``: it was a deletion, so the object is gone or terminating.
    ``terminating``: the object was being deleted when it was written, so it may be gone.
    """

    resource: Resource
    key: str
    uid: str
    version: str
    deleted: bool = False
    terminating: bool = False


@dataclass(slots=True)
class _Expectation:
    write: Written
    until: float
    seen_deleted: bool = False


class Expectations:
    """Writes that a controller's caches do not show yet, by the key that caused them.

    An object may be deleted, and its deletion arrive, before the response to a write is
    taken in. So deletions are remembered while writes are in progress.
    """

    def __init__(self) -> None:
        self._writing = 0
        self._gone: dict[tuple[Resource, str], str] = {}
        """Address → uid of objects that were deleted since the first write in progress began."""
        self._caches: dict[Resource, Mapping[str, Any]] = {}
        self._open: dict[str, list[_Expectation]] = {}
        self._awaited: dict[tuple[Resource, str], list[_Expectation]] = {}

    def follow(self, informer: Informer[Any]) -> None:
        """Track writes to the informer's resource from now on."""
        resource = informer.resource
        self._caches[resource] = informer.items
        informer.add_handler(on_delete=lambda record: self._deleted(resource, record))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Writes are in progress. :meth:`expect` is called with their responses before the context ends."""
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            if not self._writing:
                self._gone.clear()

    def _deleted(self, resource: Resource, record: Any) -> None:
        if not self._writing and not self._awaited:
            return
        deleted = identity(record)
        if self._writing and deleted.uid:
            self._gone[resource, deleted.key] = deleted.uid
            if len(self._gone) > MAX_GONE:
                del self._gone[next(iter(self._gone))]
        for expectation in self._awaited.get((resource, deleted.key), ()):
            if not deleted.uid or expectation.write.uid == deleted.uid:
                expectation.seen_deleted = True

    def expect(self, cause: str, writes: Iterable[Written], now: float) -> None:
        """Expect these writes, which were done in this order. The last one to an object counts."""
        last = {(write.resource, write.key): write for write in writes}
        for write in last.values():
            if write.resource not in self._caches:
                continue
            if self._gone.get((write.resource, write.key)) == write.uid != "":
                continue
            expectation = _Expectation(write, now + EXPECTATION_TIMEOUT_SECONDS)
            self._open.setdefault(cause, []).append(expectation)
            self._awaited.setdefault((write.resource, write.key), []).append(expectation)

    def satisfied(self, cause: str, now: float) -> bool:
        """Return whether the caches show all writes caused by this key, or their timeout passed."""
        expectations = self._open.get(cause)
        if expectations is None:
            return True
        while expectations:
            expectation = expectations[-1]
            if not self._is_met(expectation) and now < expectation.until:
                return False
            self._forget(expectation)
            expectations.pop()
        del self._open[cause]
        return True

    def _forget(self, expectation: _Expectation) -> None:
        address = (expectation.write.resource, expectation.write.key)
        awaited = self._awaited.get(address, [])
        awaited[:] = [other for other in awaited if other is not expectation]
        if not awaited:
            self._awaited.pop(address, None)

    def _is_met(self, expectation: _Expectation) -> bool:
        write = expectation.write
        record = self._caches[write.resource].get(write.key)
        if record is None:
            return write.deleted or write.terminating or expectation.seen_deleted
        cached = identity(record)
        if not cached.uid:  # a view without uid does not identify incarnations
            return not write.deleted
        if cached.uid != write.uid:
            return write.deleted or expectation.seen_deleted or _at_least(cached.version, write.version)
        if write.deleted:
            return cached.deleting
        return _at_least(cached.version, write.version)


def _at_least(cached: str, written: str) -> bool:
    """resourceVersions are decimal numbers, on the embedded server and on Kubernetes."""
    if cached.isdecimal() and written.isdecimal():
        return int(cached) >= int(written)
    return cached == written

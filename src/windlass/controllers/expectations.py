"""What reconcilers see of the server: informers with indexes, and the promise to see their own writes.

A cache lags behind the server. A reconciler that has written must not look again before its caches show
what it wrote, else it would do it twice or take its own new pod for one that somebody deleted. The
:class:`Expectations` holds such a key back until the caches have caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from windlass.api.resources import Resource
from windlass.client.informers import Informer, key_of

T = TypeVar("T")
PATIENCE_SECONDS = 15.0
"""How long a write may stay unseen before the key is looked at all the same (its event got lost)."""


class _Names(msgspec.Struct, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Bare(msgspec.Struct, gc=False):
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


_bare = msgspec.json.Decoder(Bare)
_whole = msgspec.json.Decoder()


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A whole object kept as the bytes it came in (a tenth of the decoded size) and decoded when looked at."""

    key: str
    uid: str
    resource_version: str
    deleted: float
    raw: bytes

    @property
    def object(self) -> dict[str, Any]:
        """Decoded anew each time; the caller's own."""
        return _whole.decode(self.raw)


def decode_stored(raw: msgspec.Raw) -> Stored:
    meta = _bare.decode(raw).metadata
    return Stored(
        key_of(meta.namespace, meta.name),
        meta.uid,
        meta.resource_version,
        1.0 if meta.deletion_timestamp else 0.0,
        bytes(raw),
    )


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """What a cache knows of an object's incarnation; ``uid`` and ``version`` are "" where a view drops them."""

    key: str
    uid: str
    version: str
    deleting: bool


def identity(record: Any) -> ObjectIdentity:
    """Of a raw object or of a view."""
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
    """Records by something else than their key: ``by(record)`` names the groups that it belongs to."""

    def __init__(
        self, informer: Informer[T], by: Callable[[T], Iterable[str]], key: Callable[[T], str]
    ) -> None:
        self._by = by
        self._key = key
        self._groups: dict[str, dict[str, T]] = {}
        informer.add_handler(self._add, self._update, self._remove)

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
            held = self._groups.get(group)
            if held is not None:
                held.pop(key, None)
                if not held:
                    del self._groups[group]

    def _update(self, old: T, new: T) -> None:
        self._remove(old)
        self._add(new)


class Within(Mapping[str, T]):
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
    """An answer of the server to a write. ``gone``: it is deleted or being deleted."""

    resource: Resource
    key: str
    uid: str
    version: str
    gone: bool = False


@dataclass(slots=True)
class _Promise:
    write: Written
    until: float
    seen_gone: bool = False


class Expectations:
    """Which writes of a controller its caches do not show yet, by the key that caused them."""

    def __init__(self) -> None:
        self._caches: dict[Resource, Mapping[str, Any]] = {}
        self._open: dict[str, list[_Promise]] = {}
        self._awaited: dict[tuple[Resource, str], list[_Promise]] = {}

    def follow(self, informer: Informer[Any]) -> None:
        """Promises about the informer's resource are kept from now on."""
        resource = informer.resource
        self._caches[resource] = informer.items
        informer.add_handler(on_delete=lambda record: self._deleted(resource, record))

    def _deleted(self, resource: Resource, record: Any) -> None:
        gone = identity(record)
        for promise in self._awaited.get((resource, gone.key), ()):
            if not gone.uid or promise.write.uid == gone.uid:
                promise.seen_gone = True

    def promise(self, cause: str, writes: Iterable[Written], now: float) -> None:
        for write in writes:
            if write.resource not in self._caches:
                continue
            promise = _Promise(write, now + PATIENCE_SECONDS)
            self._open.setdefault(cause, []).append(promise)
            self._awaited.setdefault((write.resource, write.key), []).append(promise)

    def settled(self, cause: str, now: float) -> bool:
        """Whether the caches show everything that was written because of this key."""
        pending = self._open.get(cause)
        if pending is None:
            return True
        while pending:
            promise = pending[-1]
            if not self._kept(promise) and now < promise.until:
                return False
            self._forget(promise)
            pending.pop()
        del self._open[cause]
        return True

    def _forget(self, promise: _Promise) -> None:
        place = (promise.write.resource, promise.write.key)
        held = self._awaited.get(place, [])
        held[:] = [other for other in held if other is not promise]
        if not held:
            self._awaited.pop(place, None)

    def _kept(self, promise: _Promise) -> bool:
        write = promise.write
        record = self._caches[write.resource].get(write.key)
        if record is None:
            return write.gone or promise.seen_gone
        seen = identity(record)
        if not seen.uid:  # a view that does not tell incarnations apart
            return not write.gone
        if seen.uid != write.uid:
            return write.gone or promise.seen_gone or _at_least(seen.version, write.version)
        if write.gone:
            return seen.deleting
        return _at_least(seen.version, write.version)


def _at_least(seen: str, written: str) -> bool:
    """resourceVersions are decimal numbers, on the embedded server and on Kubernetes."""
    if seen.isdecimal() and written.isdecimal():
        return int(seen) >= int(written)
    return seen == written

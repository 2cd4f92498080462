"""What admission looks up: the newest submitted state of other objects, decoded once per version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from windlass.api.resources import Resource
from windlass.store.filters import StoreFilter
from windlass.store.records import Entry
from windlass.store.store import Store

_decode = msgspec.json.Decoder().decode
_CACHE_LIMIT = 4096
_SHORT_LIST = 64


class Objects(Protocol):
    """Reads what has been stored or will be (submitted writes count). Results must not be changed."""

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None: ...

    def list(self, resource: Resource, namespace: str | None = None) -> list[dict[str, Any]]: ...

    def keys(self, resource: Resource, namespace: str) -> Iterable[str]:
        """``namespace/name`` of every object in one namespace."""
        ...

    def changed(self, resource: Resource, since: int | None) -> tuple[int, list[str] | None]:
        """A position in history, and the keys that may have changed since another; ``None``: any may have."""
        ...

    def version(self, resource: Resource, key: str) -> int | None:
        """Changes whenever the object does; ``None`` when it is not there."""
        ...

    def by_key(self, resource: Resource, key: str) -> dict[str, Any] | None: ...


class StoreObjects:
    """:class:`Objects` on the embedded store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
        self._lists: dict[tuple[str, str | None], tuple[int, list[dict[str, Any]]]] = {}
        """Short lists, and where the history of their kind stood."""

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        entry = self._store.head(resource.qualified, namespace if resource.namespaced else "", name)
        return None if entry is None else self._object(resource, entry)

    def list(self, resource: Resource, namespace: str | None = None) -> list[dict[str, Any]]:
        table = resource.qualified
        position = self._store.quiet_at(table)
        known = self._lists.get((table, namespace))
        if known is not None and known[0] == position:
            return known[1]
        entries = self._store.heads(table, StoreFilter(namespace=namespace))
        found = [self._object(resource, entry) for entry in entries]
        if position is not None and len(found) <= _SHORT_LIST:
            if len(self._lists) >= _CACHE_LIMIT:
                self._lists.clear()
            self._lists[table, namespace] = position, found
        return found

    def keys(self, resource: Resource, namespace: str) -> Iterable[str]:
        return (
            entry.key for entry in self._store.heads(resource.qualified, StoreFilter(namespace=namespace))
        )

    def changed(self, resource: Resource, since: int | None) -> tuple[int, list[str] | None]:
        return self._store.changes(resource.qualified, since)

    def version(self, resource: Resource, key: str) -> int | None:
        namespace, _, name = key.rpartition("/")
        entry = self._store.head(resource.qualified, namespace, name)
        return None if entry is None else entry.rv

    def by_key(self, resource: Resource, key: str) -> dict[str, Any] | None:
        namespace, _, name = key.rpartition("/")
        return self.get(resource, namespace, name)

    def _object(self, resource: Resource, entry: Entry) -> dict[str, Any]:
        key = (resource.qualified, entry.key)
        cached = self._cache.get(key)
        if cached is not None and cached[0] == entry.rv:
            return cached[1]
        obj = _decode(entry.data)
        if len(self._cache) >= _CACHE_LIMIT:
            self._cache.clear()
        self._cache[key] = (entry.rv, obj)
        return obj

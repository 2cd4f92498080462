"""Stored objects that admission reads: newest submitted state, decoded once per version."""

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


_Keys = list[str]
_Documents = list[dict[str, Any]]


class Objects(Protocol):
    """Reader of stored and submitted objects. Results must not be changed."""

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None: ...

    def list(self, resource: Resource, namespace: str | None = None) -> _Documents: ...

    def keys(self, resource: Resource, namespace: str) -> Iterable[str]:
        """Return ``namespace/name`` of every object in one namespace."""
        ...

    def changed(self, resource: Resource, since: int | None) -> tuple[int, _Keys | None]:
        """Return the current position in history, and keys that may have changed since ``since``.

        ``None`` instead of keys: any object may have changed.
        """
        ...

    def version(self, resource: Resource, key: str) -> int | None:
        """Return the version of an object; ``None`` if it does not exist."""
        ...

    def by_key(self, resource: Resource, key: str) -> dict[str, Any] | None: ...


class StoreObjects:
    """:class:`Objects` on the embedded store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
        self._lists: dict[tuple[str, str | None], tuple[int, list[dict[str, Any]]]] = {}
        """Short lists, each with the position in the history of its kind."""

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        entry = self._store.head(resource.qualified, namespace if resource.namespaced else "", name)
        return None if entry is None else self._object(resource, entry)

    def list(self, resource: Resource, namespace: str | None = None) -> _Documents:
        table = resource.qualified
        position = self._store.quiet_at(table)
        known = self._lists.get((table, namespace))
        if known is not None and known[0] == position:
            return known[1]
        entries = self._store.heads(table, StoreFilter(namespace=namespace))
        objects = [self._object(resource, entry) for entry in entries]
        if position is not None and len(objects) <= _SHORT_LIST:
            if len(self._lists) >= _CACHE_LIMIT:
                self._lists.clear()
            self._lists[table, namespace] = position, objects
        return objects

    def keys(self, resource: Resource, namespace: str) -> Iterable[str]:
        return (
            entry.key for entry in self._store.heads(resource.qualified, StoreFilter(namespace=namespace))
        )

    def changed(self, resource: Resource, since: int | None) -> tuple[int, _Keys | None]:
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

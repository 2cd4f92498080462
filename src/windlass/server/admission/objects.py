"""What admission looks up: the newest submitted state of other objects, decoded once per version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import msgspec

from windlass.api.resources import Resource
from windlass.store.filters import Filter
from windlass.store.records import Entry
from windlass.store.store import Store

_decode = msgspec.json.Decoder().decode
_CACHE_LIMIT = 4096


class Stored(NamedTuple):
    """One object. ``version`` changes whenever it does; ``object`` must not be changed."""

    key: str
    version: int
    object: dict[str, Any]


class Objects(Protocol):
    """Reads what has been stored or will be (submitted writes count). Results must not be changed."""

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None: ...

    def list(self, resource: Resource, namespace: str | None = None) -> list[dict[str, Any]]: ...

    def versions(self, resource: Resource, namespace: str | None = None) -> Iterable[tuple[str, int]]:
        """(key, version) of every object, cheaply; :meth:`by_key` gives the object."""
        ...

    def by_key(self, resource: Resource, key: str) -> dict[str, Any] | None: ...


class StoreObjects:
    """:class:`Objects` on the embedded store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        entry = self._store.head(resource.qualified, namespace if resource.namespaced else "", name)
        return None if entry is None else self._object(resource, entry)

    def list(self, resource: Resource, namespace: str | None = None) -> list[dict[str, Any]]:
        entries = self._store.heads(resource.qualified, Filter(namespace=namespace))
        return [self._object(resource, entry) for entry in entries]

    def versions(self, resource: Resource, namespace: str | None = None) -> Iterable[tuple[str, int]]:
        return ((e.key, e.rv) for e in self._store.heads(resource.qualified, Filter(namespace=namespace)))

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

"""Served kinds: the built-in ones, and those of CustomResourceDefinitions in the store.

The set follows from the store alone, so it is the same after a restart. A snapshot holds the
documents that describe it (discovery, OpenAPI), which are created on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from windlass.api import resources
from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from windlass.api.structural.definition import resources_of
from windlass.store.store import Store

_TABLE = CUSTOM_RESOURCE_DEFINITIONS.qualified
_BUILT_IN = frozenset((resource.group, resource.plural) for resource in resources.ALL)
_decode = msgspec.json.Decoder().decode
_T = TypeVar("_T")


def is_built_in(group: str, plural: str) -> bool:
    """Return whether Windlass serves this kind itself, in any version."""
    return (group, plural) in _BUILT_IN


class ServedKinds:
    """Kinds of CustomResourceDefinitions at one time. It must not be changed."""

    def __init__(self, custom: Iterable[Resource] = ()) -> None:
        self.custom = tuple(custom)
        self.groups = frozenset(resource.group for resource in self.custom)
        self._by_plural = {(r.group, r.version, r.plural): r for r in self.custom}
        self._documents: dict[Any, Any] = {}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_plural.get((group, version, plural))

    def document(self, key: Any, build: Callable[[], _T]) -> _T:
        """Return the document of ``key``, created by ``build`` on first use."""
        if key not in self._documents:
            self._documents[key] = build()
        return self._documents[key]


BUILT_IN_ONLY = ServedKinds()


def _resources(data: bytes) -> list[Resource]:
    crd = _decode(data)
    own = is_built_in(crd["spec"]["group"], crd["spec"]["names"]["plural"])
    return [] if own else resources_of(crd)


class CustomKinds:
    """Kinds that the CustomResourceDefinitions of a store declare."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._position = -1
        self._served = BUILT_IN_ONLY
        self._kinds: dict[str, tuple[int, list[Resource]]] = {}
        """Version and kinds of each definition."""

    def current(self) -> ServedKinds:
        """Return the kinds that are served now."""
        position, _ = self._store.changes(_TABLE, None)
        if position != self._position:
            before, self._kinds = self._kinds, {}
            for entry in self._store.select(_TABLE):
                known = before.get(entry.key)
                if known is None or known[0] != entry.rv:
                    known = entry.rv, _resources(entry.data)
                self._kinds[entry.key] = known
            custom = [resource for _, found in self._kinds.values() for resource in found]
            self._served = ServedKinds(custom) if custom else BUILT_IN_ONLY
            self._position = position
        return self._served

"""Records that a controller derives from those of an informer, made once for each version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from windlass.client.informers import Informer, Route

T = TypeVar("T")
V = TypeVar("V")


class DerivedRecords(Generic[T, V]):
    """Derived records of an informer, by the record that they were made of.

    A reconciliation of a gang looks at all of its pods, of which few have changed.
    """

    def __init__(
        self,
        informer: Informer[T],
        derive: Callable[[T], V],
        key: Callable[[T], str],
        route: Route[T] | None = None,
    ) -> None:
        """``derive(record)`` depends on nothing else. ``route``: as of the records that are asked for."""
        self._derive = derive
        self._key = key
        self._known: dict[str, tuple[T, V]] = {}
        informer.add_handler(on_delete=self._forget, route=route)

    def of(self, record: T) -> V:
        """Return what is derived from a record of the informer."""
        key = self._key(record)
        known = self._known.get(key)
        if known is None or known[0] is not record:
            known = self._known[key] = (record, self._derive(record))
        return known[1]

    def _forget(self, record: T) -> None:
        self._known.pop(self._key(record), None)

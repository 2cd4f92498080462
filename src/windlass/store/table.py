"""Objects of one kind in memory: committed state, submitted writes, and key order.

Readers see committed versions only. Writers build on the newest submitted version
(``head``), which is safe because a failed commit ends all writing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge
from itertools import islice

from windlass.store.families import StoreFamily
from windlass.store.filters import StoreFilter
from windlass.store.index import FieldIndex, indexer
from windlass.store.records import Entry, Op, StoreEvent, key_of
from windlass.store.ring import Ring

_FEW = 64


class KeyOrder:
    """Sorted keys. Changes are collected, and merged by the next read."""

    __slots__ = ("_added", "_keys", "_removed")

    def __init__(self, keys: list[str]) -> None:
        self._keys = sorted(keys)
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def add(self, key: str) -> None:
        if key in self._removed:
            self._removed.discard(key)
        else:
            self._added.add(key)

    def discard(self, key: str) -> None:
        if key in self._added:
            self._added.discard(key)
        else:
            self._removed.add(key)

    def keys(self) -> list[str]:
        """All keys, sorted. Valid until the next change; not to be changed."""
        keys = self._keys
        if len(self._added) + len(self._removed) <= _FEW:
            for key in self._removed:
                del keys[bisect_left(keys, key)]
            for key in self._added:
                insort(keys, key)
        else:
            if self._removed:
                removed = self._removed
                keys = [key for key in keys if key not in removed]
            keys.extend(sorted(self._added))
            keys.sort()
            self._keys = keys
        self._added.clear()
        self._removed.clear()
        return keys


class Table:
    """Everything about one resource, by its qualified name."""

    def __init__(self, resource: str, family: StoreFamily, ring: Ring) -> None:
        self.resource = resource
        self.family = family
        self.ring = ring
        self.current: dict[str, Entry] = {}
        self.order = KeyOrder([])
        self.watchers: set[Wakeable] = set()
        self.quiet_until = 0.0
        """Time of the event loop before which watchers are not woken again."""
        self.wake_planned = False
        self._heads: dict[str, StoreEvent] = {}
        self._index = indexer(resource)

    def index(self, data: bytes, like: Entry | None = None) -> FieldIndex:
        """Return the index of ``data``, sharing equal parts of ``like``'s. Raises ``Unindexable``."""
        found = self._index(data)
        if like is not None:
            labels = like.labels if like.labels == found.labels else found.labels
            fields = like.fields if like.fields == found.fields else found.fields
            return FieldIndex(labels, fields)
        return found

    @property
    def pending(self) -> bool:
        """Return whether a submitted write is not committed yet."""
        return bool(self._heads)

    def head(self, key: str) -> Entry | None:
        """The newest submitted version; ``None`` if absent or about to be deleted."""
        pending = self._heads.get(key)
        if pending is None:
            return self.current.get(key)
        return None if pending.op is Op.DELETED else pending.entry

    def heads(self) -> dict[str, Entry | None]:
        """Return submitted, uncommitted versions by key; ``None`` for deletions."""
        return {key: None if event.op is Op.DELETED else event.entry for key, event in self._heads.items()}

    def submitted(self, event: StoreEvent) -> None:
        self._heads[event.entry.key] = event

    def apply(self, event: StoreEvent) -> None:
        """The event is durable: make it visible."""
        entry = event.entry
        key = entry.key
        if event.op is Op.DELETED:
            del self.current[key]
            self.order.discard(key)
        else:
            if event.op is Op.ADDED:
                self.order.add(key)
            self.current[key] = entry
        if self._heads.get(key) is event:
            del self._heads[key]
        self.ring.append(event)

    def wake(self) -> None:
        """Wake all watchers."""
        for watcher in tuple(self.watchers):
            watcher.wake()

    def load(self, entries: dict[str, Entry]) -> None:
        self.current = entries
        self.order = KeyOrder(list(entries))

    # -- reading

    def span(self, namespace: str | None, start: str = "") -> tuple[list[str], int, int]:
        """The ordered keys, and the range in them of ``namespace`` from key ``start`` on."""
        keys = self.order.keys()
        low, high = 0, len(keys)
        if namespace is not None:
            low, high = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")
        if start:
            low = max(low, bisect_left(keys, start))
        return keys, low, high

    def snapshot(self, namespace: str | None) -> list[Entry]:
        """The committed versions of ``namespace`` (``None``: all) in key order."""
        keys, low, high = self.span(namespace)
        if low == 0 and high == len(keys):
            return list(map(self.current.__getitem__, keys))
        return [self.current[key] for key in keys[low:high]]

    def versions(self, namespace: str | None, start: str, rv: int | None) -> Iterator[Entry]:
        """Yield entries in key order from ``start`` on: committed ones, or those visible at ``rv``.

        Consume it before the next ``await``. ``rv`` must not be older than
        ``ring.start_rv``.
        """
        undone: dict[str, Entry | None] = {}
        if rv is not None:
            for event in self.ring.newer(rv):
                undone[event.entry.key] = event.previous if event.op is not Op.ADDED else None
        keys, low, high = self.span(namespace, start)
        current = self.current
        if not undone:
            for position in range(low, high):
                yield current[keys[position]]
            return
        removed = sorted(
            key
            for key, entry in undone.items()
            if entry is not None
            and key not in current
            and key >= start
            and namespace in (None, entry.namespace)
        )
        for key in merge(islice(keys, low, high), removed):
            entry = undone[key] if key in undone else current[key]
            if entry is not None:
                yield entry

    def candidates(self, wanted: StoreFilter) -> list[Entry]:
        """Return committed versions that include all matches (one lookup if a name is set)."""
        if not self.current:
            return []
        name = wanted.name
        if name is None:
            return self.snapshot(wanted.namespace)
        if wanted.namespace is not None:
            found = self.current.get(key_of(wanted.namespace, name))
            return [found] if found is not None else []
        return [entry for entry in self.snapshot(None) if entry.name == name]


class Wakeable:
    """Receiver of notifications about changes of a table."""

    __slots__ = ()

    def wake(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

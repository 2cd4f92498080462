"""Cache of decoded segments, bounded by bytes and by the time since their last use.

The rows themselves are durable elsewhere: input rows in the file of input rows, results in
the journal. So a driver that was killed fills its cache again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(slots=True)
class ContextEntry:
    """Row of a segment. ``used``: Unix time of its last use."""

    number: int
    row: Row
    size: int
    used: float


class ContextCache:
    """Entries by ``<job>/<stream>/<segment>``, the least recently used first.

    ``needed``: whether a segment lies before one without a result. Its entry is kept even if
    all entries together exceed ``max_bytes``. ``open``: whether the stream of a segment has
    segments without a result. Its entries are kept even if their time has passed.
    """

    def __init__(
        self,
        max_bytes: int,
        ttl_seconds: float,
        needed: Callable[[int], bool],
        open: Callable[[int], bool],
    ) -> None:
        self.max_bytes, self.ttl_seconds = max_bytes, ttl_seconds
        self._needed, self._open = needed, open
        self._entries: OrderedDict[str, ContextEntry] = OrderedDict()
        self.bytes = self.hits = self.misses = self.evictions = self.expired = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str, now: float) -> Row | None:
        """Return a row and note its use."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        entry.used = now
        self._entries.move_to_end(key)
        return entry.row

    def put(self, key: str, number: int, row: Row, size: int, now: float) -> None:
        """Add a row, and evict others if there are too many bytes."""
        before = self._entries.pop(key, None)
        self.bytes += size - (before.size if before else 0)
        self._entries[key] = ContextEntry(number, row, size, now)
        if self.bytes > self.max_bytes:
            self._evict()

    def expire(self, now: float) -> None:
        """Drop expired entries of finished streams."""
        for key, entry in list(self._entries.items()):
            if now - entry.used <= self.ttl_seconds:
                return
            if not self._open(entry.number):
                self._drop(key)
                self.expired += 1

    def _evict(self) -> None:
        for key, entry in list(self._entries.items()):
            if self.bytes <= self.max_bytes:
                return
            if not self._needed(entry.number):
                self._drop(key)
                self.evictions += 1

    def _drop(self, key: str) -> None:
        self.bytes -= self._entries.pop(key).size

"""Recent history of one table in memory. Watchers hold positions in it, and no copies.

Positions count events since the start of the process and never repeat. The ring keeps
superseded versions alive, so it is bounded by their bytes. Older history is in the log.
"""

from __future__ import annotations

from bisect import bisect_right

from windlass.store.records import StoreEvent


class Ring:
    """All events with ``rv > start_rv`` are in it, in order."""

    __slots__ = ("_base", "_events", "_held", "_max_bytes", "_max_events", "appended", "start_rv")

    def __init__(self, max_bytes: int, max_events: int, start_rv: int = 0) -> None:
        self._events: list[StoreEvent] = []
        self._base = 0
        self._held = 0
        self._max_bytes = max_bytes
        self._max_events = max_events
        self.appended = 0
        """Bytes of all events ever appended."""
        self.start_rv = start_rv

    def __len__(self) -> int:
        return len(self._events)

    @property
    def start(self) -> int:
        """Return the position of the oldest event."""
        return self._base

    @property
    def end(self) -> int:
        """Position that the next event will have."""
        return self._base + len(self._events)

    def append(self, event: StoreEvent) -> None:
        event.offset = self.appended
        self.appended += len(event.entry.data)
        if event.previous is not None:
            self._held += len(event.previous.data)
        self._events.append(event)
        if self._held > self._max_bytes or len(self._events) > self._max_events:
            self._drop(max(1, len(self._events) // 8))

    def _drop(self, count: int) -> None:
        dropped = self._events[:count]
        if not dropped:
            return
        self.start_rv = dropped[-1].rv
        self._held -= sum(len(event.previous.data) for event in dropped if event.previous is not None)
        del self._events[:count]
        self._base += count

    def forget(self, rv: int) -> None:
        """Drop events up to version ``rv``."""
        self._drop(bisect_right(self._events, rv, key=lambda event: event.rv))

    def after(self, rv: int) -> int:
        """Return the position of the first event newer than ``rv``. Requires ``rv >= start_rv``."""
        return self._base + bisect_right(self._events, rv, key=lambda event: event.rv)

    def slice(self, position: int, count: int) -> list[StoreEvent]:
        index = position - self._base
        return self._events[index : index + count]

    def newer(self, rv: int) -> list[StoreEvent]:
        """Events after ``rv``, newest first."""
        return self._events[self.after(rv) - self._base :][::-1]

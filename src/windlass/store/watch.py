"""Watch of one kind from a version on: first from the log, then from the ring, then live.

A watcher holds a position and no buffer, so a slow watcher costs no memory. One that
falls too far behind is ended (:class:`TooSlow`), and its client resumes at its last
version.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from windlass.store.database import Database, ReplayRow
from windlass.store.errors import Expired, TooSlow
from windlass.store.filters import StoreFilter
from windlass.store.records import Entry, Op, StoreEvent
from windlass.store.table import Table, Wakeable

if TYPE_CHECKING:
    from windlass.store.store import Store

_SCAN = 1_000
"""Maximum number of events processed before the event loop runs other tasks."""
_REPLAY_ROWS = 1_000


class WatchChange(NamedTuple):
    """Change delivered to a watcher. ``op`` is relative to its selection.

    ``shared``: all watchers that receive this event with this ``op`` get the same
    ``entry``.
    """

    op: Op
    entry: Entry
    shared: bool


def match_event(wanted: StoreFilter, event: StoreEvent) -> WatchChange | None:
    """Return ``event`` relative to ``wanted``: objects enter as ADDED and leave as DELETED.

    Raises :class:`Expired` if that depends on an older version that the log has
    dropped.
    """
    entry, op = event.entry, event.op
    if op is Op.MODIFIED and (event.reindexed or wanted.paths) and wanted.selective:
        now = wanted.matches(entry)
        if event.previous is None:
            raise Expired(event.rv - 1, event.rv)
        before = wanted.matches(event.previous)
        if now:
            return WatchChange(Op.MODIFIED if before else Op.ADDED, entry, True)
        return WatchChange(Op.DELETED, event.previous.at(event.rv), False) if before else None
    if op is Op.DELETED and event.reindexed and event.previous is not None:
        return WatchChange(op, entry, True) if wanted.matches(event.previous) else None
    return WatchChange(op, entry, True) if wanted.matches(entry) else None


class Watcher(Wakeable):
    """Watcher. ``batch`` returns the changes since the last call. ``close`` is idempotent."""

    __slots__ = (
        "_closed",
        "_cursor_rv",
        "_interrupted",
        "_live",
        "_position",
        "_since",
        "_store",
        "_table",
        "_waiting",
        "wanted",
    )

    def __init__(self, store: Store, table: Table, wanted: StoreFilter, since: int) -> None:
        self._store = store
        self._table = table
        self.wanted = wanted
        self._since = since
        self._cursor_rv = since
        self._position = table.ring.after(since)
        self._live = since >= table.ring.start_rv
        self._waiting: asyncio.Future[None] | None = None
        self._interrupted = False
        self._closed = False
        table.watchers.add(self)

    def close(self) -> None:
        self._closed = True
        self._table.watchers.discard(self)
        self.wake()

    def wake(self) -> None:
        """The table has changed."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def interrupt(self) -> None:
        """Make the present or the next ``batch`` return even if nothing has happened."""
        self._interrupted = True
        self.wake()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def position(self) -> int:
        """Return the position in the ring up to which changes were delivered."""
        return self._position

    @property
    def delivered_rv(self) -> int | None:
        """Return the version up to which all changes were delivered; ``None`` while it is behind."""
        if not self._live or self._position != self._table.ring.end:
            return None
        return max(self._since, self._store.rv)

    async def batch(self) -> list[WatchChange]:
        """Wait for the next changes and return them; an empty list if interrupted or closed.

        Raises :class:`Expired` (the history is gone) or :class:`TooSlow`.
        """
        while not self._closed:
            replaying, before = not self._live, self._position
            changes = await self._replay() if replaying else self.poll()
            if changes:
                return changes
            if self._interrupted:
                self._interrupted = False
                return []
            if replaying:
                continue
            if self._position != before:
                await asyncio.sleep(0)
                continue
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return []

    def poll(self) -> list[WatchChange]:
        """Return changes in memory, up to :data:`_SCAN` events. Raises like :meth:`batch`."""
        ring = self._table.ring
        if self._position < ring.start:
            raise TooSlow(f"more than the history kept in memory behind ({self._table.resource})")
        events = ring.slice(self._position, _SCAN)
        if not events:
            return []
        if ring.appended - events[0].offset > self._store.options.lag_bytes:
            raise TooSlow(f"more than {self._store.options.lag_bytes} bytes behind ({self._table.resource})")
        self._position += len(events)
        if events[0].rv <= self._since:  # the requested version did not exist yet
            events = [event for event in events if event.rv > self._since]
        wanted = self.wanted
        if wanted.everything:
            return [WatchChange(event.op, event.entry, True) for event in events]
        return [change for event in events if (change := match_event(wanted, event)) is not None]

    async def _replay(self) -> list[WatchChange]:
        """One step through the log on the disk, until the ring takes over."""
        ring, table = self._table.ring, self._table
        if self._cursor_rv >= ring.start_rv:
            self._position = ring.after(self._cursor_rv)
            self._live = True
            return []
        since, upto = self._cursor_rv, ring.start_rv
        self._store.require_history(table, since)

        def read(database: Database) -> tuple[list[ReplayRow], int]:
            return database.replay(table.family.name, table.resource, since, upto, _REPLAY_ROWS)

        rows, last = await self._store.on_database(read)
        self._store.require_history(table, since)
        self._cursor_rv = last
        changes = []
        for row in rows:
            change = match_event(self.wanted, _event(table, row))
            if change is not None:
                changes.append(change._replace(shared=False))
        return changes


def _event(table: Table, row: ReplayRow) -> StoreEvent:
    labels, fields = table.index(row.data)
    entry = Entry(row.namespace, row.name, row.rv, row.id, row.data, labels, fields)
    previous = None
    if row.previous_data is not None:
        labels, fields = table.index(row.previous_data, entry)
        previous = Entry(row.namespace, row.name, row.previous, row.id, row.previous_data, labels, fields)
    return StoreEvent(row.rv, Op(row.op), entry, previous, bool(row.reindexed))

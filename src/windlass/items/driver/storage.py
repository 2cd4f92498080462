"""Durable storage of a running batch: journal and ledger, written in groups.

Requests add their changes and wait for the next write. While one write is under way, the
changes of all other requests collect for the next one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from windlass.items.ledger.changes import ItemState, LedgerEffects
from windlass.items.ledger.database import LedgerFile, PendingWrites
from windlass.items.ledger.journal import RowJournal
from windlass.items.places import PlaceError, Places, unwritable
from windlass.kits.clock import Clock

RETRY_SECONDS = 1.0
"""Interval between attempts to write while the disk is full (seconds)."""
PATIENCE_SECONDS = 600.0
"""Maximum time during which writes may fail before the driver ends (seconds)."""
Value = TypeVar("Value")


class Storage:
    """Open journal and ledger of a batch.

    ``blocked``: set while writes fail, for example because the disk is full.
    """

    def __init__(self, places: Places, ledger: LedgerFile, journal: RowJournal, clock: Clock) -> None:
        self.ledger, self.journal = ledger, journal
        self.blocked: PlaceError | None = None
        self._places = places
        self._clock = clock
        self._writes = PendingWrites()
        self._written: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "storage")

    def add(self, effects: LedgerEffects) -> None:
        """Store effects with the next write, without waiting for it."""
        if effects:
            self._writes.add(effects)
            self._wake.set()

    async def durable(self) -> None:
        """Wait until all that was added so far is stored."""
        if self._writes:
            if self._written is None:
                self._written = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._written)
        elif self._under_way is not None:
            await asyncio.shield(self._under_way)

    _under_way: asyncio.Future[None] | None = None

    async def in_thread(self, call: Callable[[], Value]) -> Value:
        """Run a call that uses the ledger, apart from writes."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def run(self) -> None:
        """Write until cancelled. Raises :class:`PlaceError` after lasting failures."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._writes:
                await self._flush()

    async def _flush(self) -> None:
        writes, self._writes = self._writes, PendingWrites()
        loop = asyncio.get_running_loop()
        future, self._written = self._written or loop.create_future(), None
        self._under_way = future
        started = self._clock.monotonic()
        while True:
            try:
                placed = await self.in_thread(lambda: self._write(writes))
                break
            except (OSError, sqlite3.OperationalError) as error:
                self.blocked = self._told(error)
                if self._clock.monotonic() - started > PATIENCE_SECONDS:
                    future.set_exception(self.blocked)
                    raise self.blocked from None
                await self._clock.sleep(RETRY_SECONDS)
        self.blocked = None
        self._under_way = None
        self.stored(placed)
        future.set_result(None)

    def stored(self, placed: list[tuple[int, int, int]]) -> None:
        """Called after a write with number, offset and length of each new output."""

    def _told(self, error: Exception) -> PlaceError:
        if isinstance(error, OSError):
            return unwritable(self._places.output, error)
        if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
            import errno

            return unwritable(self._places.output, OSError(errno.ENOSPC, "No space left on device"))
        return PlaceError("OutputUnwritable", f"{self._places.ledger} cannot be written: {error}")

    def _write(self, writes: PendingWrites) -> list[tuple[int, int, int]]:
        before = self.journal.end
        rows = writes.rows()
        places = self.journal.append(rows) if rows else []
        try:
            self.ledger.store(writes, places, self.journal.end)
        except BaseException:
            self.journal.cut(before)
            raise
        written = [change for change in writes.items if change.has_row]
        return [
            (one.number, place, len(one.row))
            for one, place in zip(written, places, strict=True)
            if one.state == ItemState.DONE
        ]

    async def close(self) -> None:
        """Write what is left and close the files."""
        while self._writes or self._under_way is not None:
            self._wake.set()
            await self.durable()
        await self.in_thread(self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        self.journal.close()
        self.ledger.close()

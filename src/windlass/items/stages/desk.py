"""Stage before the last: serves its workers, and passes rows on to the next stage."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from windlass.items.driver.messages import LeaseRequest, LeaseResponse
from windlass.items.driver.service import Driver
from windlass.items.ledger.changes import ItemChange, ItemState, LedgerEffects
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.database import LedgerFile, Stored
from windlass.items.ledger.journal import RowJournal, RowSpool
from windlass.items.ledger.table import ItemTable
from windlass.items.places import Places
from windlass.items.spec import BatchSpec, StageSpec
from windlass.items.stages.sizes import BoundedSizes
from windlass.items.stages.storage import StageStorage
from windlass.kits.clock import Clock


class StageDesk(Driver):
    """Requests of the workers of one stage.

    ``waiting``: number of rows that wait behind the stage. ``changed``: called after a change.
    """

    def __init__(
        self,
        stage: StageSpec,
        batch: BatchSpec,
        environment: Mapping[str, str],
        clock: Clock,
        waiting: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(batch, environment, clock)
        self.stage = stage
        self._waiting, self._on_change = waiting, changed
        self.writer: asyncio.Task[None] | None = None
        self._over = False
        self.foreign = 0
        """Number of items that another stage has given up."""

    def open(
        self,
        places: Places,
        file: LedgerFile,
        stored: Stored,
        groups: list[Any],
        rows: RowSpool | RowJournal,
        journal: RowJournal,
        died: Callable[[list[ItemChange]], None],
        left: Callable[[list[tuple[int, int, int]]], None],
    ) -> None:
        """Begin to serve. ``rows``: the input rows. ``journal``: gets the outputs."""
        ledger = Ledger(self.batch, stored.table, groups, lambda: uuid.uuid4().hex[:16])
        ledger.sizes = BoundedSizes(self.batch.batching, self.room)
        for seconds in stored.seconds:
            ledger.latencies.add(seconds)
        now = self._clock.monotonic()
        for lease in stored.leases:
            ledger.adopt(lease, now)
        self._spool, self._started = rows, now
        self._storage = StageStorage(places, file, journal, self._clock, died, left)
        self._ledger = ledger
        self.writer = asyncio.create_task(self._storage.run())
        self.check_end()

    @property
    def opened(self) -> Ledger | None:
        """Return the ledger; ``None`` before it is open."""
        return self._ledger

    @property
    def ledger(self) -> Ledger:
        assert self._ledger is not None
        return self._ledger

    @property
    def storage(self) -> StageStorage:
        assert isinstance(self._storage, StageStorage)
        return self._storage

    def room(self) -> int:
        """Return the number of items that may be leased until the spool behind the stage is full."""
        leased = self.ledger.table.counts[ItemState.LEASED]
        return self.stage.max_items - leased - self._waiting()

    def has_more(self, behind: Ledger) -> bool:
        """Return whether the stage may pass further rows on while those behind it wait."""
        held, table = behind.table.counts[ItemState.HELD], self.ledger.table
        storing = held > table.open  # rows that are done, with outputs that are not stored yet
        return held > 0 and (storing or table.counts[ItemState.LEASED] > 0 or self.room() > 0)

    def store(self, effects: LedgerEffects) -> None:
        """Store effects that do not come from a worker."""
        self.storage.add(effects)
        self.wake()

    def wake(self) -> None:
        """Let requests that wait look again."""
        super()._wake()

    def _wake(self) -> None:
        self.check_end()
        super()._wake()
        self._on_change()

    def check_end(self) -> None:
        """Tell the workers to end once each item has left the stage or was given up."""
        ended = self._over or self.ledger.table.open == 0
        self._final = {"finished": True} if ended else None

    def finish(self) -> None:
        """Tell the workers to end in any case: the batch has ended."""
        self._over = True
        self._final = {"finished": True}
        super()._wake()

    def expire(self) -> None:
        """End lost leases."""
        self._expire()

    def _try_lease(self, request: LeaseRequest) -> LeaseResponse | None:
        if self._ledger is not None and self.room() <= 0:
            self._ledger.heartbeat(request.worker, request.instance, (), self._clock.monotonic())
            return None
        found = super()._try_lease(request)
        if found is not None:
            self._on_change()  # the stage before may have room again
        return found

    async def close(self) -> None:
        """Store what is left and close the files."""
        writer, self.writer = self.writer, None
        if self._storage is not None and writer is not None and not writer.done():
            await self._storage.close()
            writer.cancel()


def join(table: ItemTable, before: LedgerFile | None, ended: ItemTable) -> int:
    """Bring a stored table of a stage into the state of its neighbours; return the foreign ends.

    ``before``: ledger of the stage before. Items that have not left it are held. ``ended``: table
    of the last stage: what it has given up was given up by a stage.
    """
    foreign = 0
    if before is not None:
        there = bytearray(len(table))
        for number, state, place, length in before.rows():
            if state == ItemState.DONE and length:
                there[number] = 1
                table.offset[number], table.length[number] = place, length
        for number, state in enumerate(table.state):
            if state == ItemState.PENDING and not there[number]:
                table.move(number, ItemState.HELD)
    if ended is not table:
        for number, state in enumerate(table.state):
            if ended.state[number] == ItemState.DEAD and state in (ItemState.PENDING, ItemState.HELD):
                table.move(number, ItemState.DEAD)
                foreign += 1
    return foreign

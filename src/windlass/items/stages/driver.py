"""Driver of a batch with stages.

Each stage has a ledger of the same items. An item that stage *k* has done, with its output
stored, becomes an item of stage *k* + 1, with that output as its row. Ledgers are joined again
from what is stored when the driver is started: no item passes a stage twice, and none is lost.
The ledger of the last stage is that of the batch: it has the ends of all items.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from windlass.items.driver.messages import LeaseRequest, LeaseResponse, RetryRequest
from windlass.items.driver.service import Driver
from windlass.items.driver.storage import Storage
from windlass.items.ledger.changes import ItemChange, ItemState
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.database import LedgerFile
from windlass.items.ledger.held import bury, hold, release
from windlass.items.ledger.journal import RowJournal, RowSpool
from windlass.items.ledger.table import ItemTable
from windlass.items.places import Places
from windlass.items.spec import RETRY_DEAD, BatchSpec
from windlass.items.stages import storage as files
from windlass.items.stages.batches import admitted_batch, batch_of_stage
from windlass.items.stages.desk import StageDesk, join
from windlass.items.stages.sizes import MeasuredSizes
from windlass.items.stages.status import stage_status
from windlass.kits.clock import Clock

GIVEN_UP = "given up in stage {stage}: {message}"


class StagedDriver(Driver):
    """Driver of the last stage, with a :class:`StageDesk` for each stage before it."""

    def __init__(self, batch: BatchSpec, environment: Mapping[str, str], clock: Clock) -> None:
        super().__init__(batch_of_stage(batch, batch.stages[-1].name), environment, clock)
        self._whole = batch
        self._early = [
            StageDesk(
                stage,
                batch_of_stage(batch, stage.name),
                environment,
                clock,
                partial(self._waiting, index + 1),
                partial(self._stage_changed, index),
            )
            for index, stage in enumerate(batch.stages[:-1])
        ]
        self.desks = {desk.stage.name: desk for desk in self._early} | {batch.stages[-1].name: self}
        self._names = [desk.stage.name for desk in self._early]
        self._lost: dict[int, list[ItemChange]] = {}
        """Stage → items that it gave up, found before the last ledger is open."""

    def _admitted_batch(self) -> BatchSpec:
        return admitted_batch(self._whole)

    # Opening

    def _prepare(self, places: Places, file: LedgerFile, table: ItemTable) -> None:
        if not files.are_complete(places, file, self._names):
            files.create_all(places, file, self._names, uuid.uuid4().hex)
        groups = file.load().groups
        rows: RowSpool | RowJournal = RowSpool(places.spool)
        before: LedgerFile | None = None
        self._lost = {}
        for index, desk in enumerate(self._early):
            one = LedgerFile(files.ledger_path(places, desk.stage.name))
            journal = RowJournal(files.journal_path(places, desk.stage.name))
            journal.cut(int(one.meta("journal_end") or 0))
            stored = one.load()
            desk.foreign = join(stored.table, before, table)
            died, left = partial(self._died, index), partial(self._left, index)
            self._lost[index] = [
                ItemChange(number, ItemState.DEAD, attempts, losses, reason=reason, message=message)
                for number, attempts, losses, reason, message in one.given_up()
            ]
            desk.open(places, one, stored, groups, rows, journal, died, left)
            rows, before = journal, one
        join(table, before, table)

    def _open_storage(self, places: Places) -> Storage:
        storage = super()._open_storage(places)
        # The last stage reads the outputs of the stage before, unless it is the only one.
        assert self._ledger is not None
        self._ledger.sizes = MeasuredSizes(self.batch.batching)
        for index, desk in enumerate(self._early):
            behind = self._ledger_of(index + 1)
            assert behind is not None
            behind.gathering.more = partial(desk.has_more, behind)
        if self._early:
            self._spool = self._early[-1].storage.journal
        for index, changes in self._lost.items():
            if changes:
                self._died(index, changes)
        self._lost = {}
        if self._environment.get(RETRY_DEAD, "").lower() == "true":
            self._retry_early(None)
        return storage

    async def _until_ended(self, writer: asyncio.Task[None]) -> None:
        ended = asyncio.ensure_future(super()._until_ended(writer))
        writers = [desk.writer for desk in self._early if desk.writer is not None]
        try:
            done, _ = await asyncio.wait({ended, *writers}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            ended.cancel()

    async def _run(self, places: Places) -> int:
        try:
            return await super()._run(places)
        finally:
            for desk in self._early:
                desk.finish()
                await desk.close()

    async def _finish(self, places: Places, storage: Storage) -> int:
        for desk in self._early:
            desk.finish()
        code = await super()._finish(places, storage)
        for desk in self._early:
            await desk.close()
        await asyncio.to_thread(files.remove_all, places, self._names)
        return code

    # Rows between stages

    def _ledger_of(self, index: int) -> Ledger | None:
        """Return the ledger of a stage; ``None`` before it is open."""
        return self._ledger if index == len(self._early) else self._early[index].opened

    def _waiting(self, index: int) -> int:
        """Return the number of rows that wait for a stage."""
        ledger = self._ledger_of(index)
        return ledger.table.counts[ItemState.PENDING] if ledger is not None else 0

    def _left(self, index: int, placed: list[tuple[int, int, int]]) -> None:
        """Pass stored outputs of a stage on to the next one."""
        ledger = self._ledger_of(index + 1)
        if ledger is None:
            return  # it is joined when it opens
        now = self._clock.monotonic()
        for number, place, length in placed:
            release(ledger, number, place, length, now)
        self._wake_stage(index + 1)

    def _died(self, index: int, changes: list[ItemChange]) -> None:
        """Give up items in all stages behind the one that gave them up."""
        name = self._whole.stages[index].name
        for later in range(index + 1, len(self._early)):
            desk = self._early[later]
            desk.foreign += len(bury(desk.ledger, changes).items)
            desk.check_end()
        if self._ledger is None or self._storage is None:
            return  # found again when the ledger is open
        told = [
            ItemChange(
                one.number,
                ItemState.DEAD,
                one.attempts,
                one.losses,
                reason=one.reason,
                message=GIVEN_UP.format(stage=name, message=one.message),
            )
            for one in changes
        ]
        self._storage.add(bury(self._ledger, told))
        self._wake()

    def _stage_changed(self, index: int) -> None:
        """Wake the stage before, which may have room, and the one behind, which may have ended."""
        if index > 0:
            self._early[index - 1].wake()
        self._wake_stage(index + 1)

    def _wake_stage(self, index: int) -> None:
        if index == len(self._early):
            self._wake()
        else:
            self._early[index].check_end()
            self._early[index].wake()

    def _expire(self) -> None:
        super()._expire()
        if self._ledger is not None:
            for desk in self._early:
                desk.expire()

    def _try_lease(self, request: LeaseRequest) -> LeaseResponse | None:
        found = super()._try_lease(request)
        if found is not None and self._early:
            self._early[-1].wake()
        return found

    # Requests about the batch

    async def retry(self, request: RetryRequest) -> dict[str, Any]:
        if self._ledger is None or self._storage is None or self._final is not None:
            return await super().retry(request)
        storage = self._storage
        numbers = None
        if request.ids:
            numbers = await storage.in_thread(lambda: storage.ledger.numbers_of(request.ids))
        count = self._retry_early(numbers)
        for desk in self._early:
            await desk.storage.durable()
        answer = await super().retry(request)
        return {"retried": count + answer["retried"]}

    def _retry_early(self, numbers: Iterable[int] | None) -> int:
        """Try the dead letters of stages before the last again; return their number."""
        assert self._ledger is not None
        assert self._storage is not None
        count = 0
        for index, desk in enumerate(self._early):
            effects = desk.ledger.retry_dead(numbers)
            again = [change.number for change in effects.items]
            if not again:
                continue
            count += len(again)
            for later in self._early[index + 1 :]:
                later.foreign -= len(hold(later.ledger, again).items)
                later.check_end()
            self._storage.add(hold(self._ledger, again))
            desk.store(effects)
        return count

    def all_told(self) -> bool:
        return super().all_told() and all(desk.all_told() for desk in self._early)

    def _more(self) -> dict[str, Any]:
        found = super()._more()
        now = self._clock.monotonic()
        stages = []
        for index, stage in enumerate(self._whole.stages):
            desk = self.desks[stage.name]
            ledger = self._ledger_of(index)
            if ledger is None:
                continue
            early = desk if isinstance(desk, StageDesk) else None
            stages.append(stage_status(stage, ledger, early.foreign if early else None, desk.started, now))
            stages[-1]["full"] = bool(early and early.room() <= 0)
        models = sum((Counter(desk.model_counts()) for desk in self.desks.values()), Counter[str]())
        return found | ({"model": dict(models)} if models else {}) | {"stages": stages}

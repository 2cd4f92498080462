"""Service of one batch: admission, leases, and the end with its outputs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.items import admission
from windlass.items.driver.api import NotReady
from windlass.items.driver.finish import Outputs
from windlass.items.driver.messages import (
    CommitRequest,
    CommitResponse,
    HeartbeatResponse,
    LeasedItem,
    LeaseRequest,
    LeaseResponse,
    ResultMessage,
    RetryRequest,
)
from windlass.items.driver.status import status_of
from windlass.items.driver.storage import Storage
from windlass.items.ledger.changes import Flag, ItemResult
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.database import VERSION, LedgerFile
from windlass.items.ledger.journal import RowJournal, RowSpool
from windlass.items.outputs import flagged
from windlass.items.places import PlaceError, Places, places_of, prepare, unwritable
from windlass.items.rows import InputError
from windlass.items.spec import RETRY_DEAD, BatchSpec
from windlass.kits.clock import Clock
from windlass.kits.files import FileLock, write_atomic

TICK_SECONDS = 0.5
"""Interval between checks of lost leases and delayed items (seconds)."""
LOCK_SECONDS = 60.0
"""Time to wait for an earlier driver of the same outputs to end (seconds)."""
_log = logging.getLogger(__name__)


class Driver:
    """Driver of one batch. Times are monotonic seconds of ``clock``."""

    def __init__(self, batch: BatchSpec, environment: Mapping[str, str], clock: Clock) -> None:
        self.batch = batch
        self.told: set[str] = set()
        self._models: dict[str, str] = {}
        """Worker → where the files of its model came from."""
        self.status_read = False
        self._environment, self._clock = environment, clock
        self._ledger: Ledger | None = None
        self._storage: Storage | None = None
        self._spool: RowSpool | None = None
        self._changed = asyncio.Event()
        self._admitted = 0
        self._started = clock.monotonic()
        self._failure: tuple[str, str] | None = None
        self._final: dict[str, Any] | None = None
        self._outputs_written = False

    # Life of a batch

    async def run(self) -> int:
        """Work until the batch has ended; return the exit code of the process."""
        try:
            places = places_of(self.batch, self._environment)
            prepare(places)
        except PlaceError as error:
            return self._fail(error.reason, str(error), None)
        lock = FileLock(places.state / "lock")
        if not await self._lock(lock):
            message = f"another job writes to {places.output}: wait for its end, or choose another path"
            return self._fail("OutputInUse", message, None)
        try:
            return await self._run(places)
        finally:
            lock.release()
            self._wake()  # workers that wait are told to end

    async def _run(self, places: Places) -> int:
        try:
            done = await asyncio.to_thread(self._open, places)
        except InputError as error:
            return self._fail("InputUnreadable", str(error), places)
        except OSError as error:
            problem = unwritable(places.output, error)
            return self._fail(problem.reason, str(problem), places)
        if done is not None:
            self._final = done
            return 1 if "failure" in done else 0
        storage = self._open_storage(places)
        writer = asyncio.create_task(storage.run())
        ticker = asyncio.create_task(self._tick())
        try:
            await self._until_ended(writer)
            return await self._finish(places, storage)
        except PlaceError as error:
            return self._fail(error.reason, str(error), places)
        finally:
            ticker.cancel()
            if not writer.done():
                await storage.close()
                writer.cancel()

    async def _lock(self, lock: FileLock) -> bool:
        deadline = self._clock.monotonic() + LOCK_SECONDS
        while not lock.acquire():
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(0.5)
        return True

    def _open(self, places: Places) -> dict[str, Any] | None:
        """Admit the rows, unless this job has done so; return the status of a job that has ended."""
        state = _stored(places, self.batch.uid)
        again = self._environment.get(RETRY_DEAD, "").lower() == "true"
        if state == "finished" and not again and places.output.exists():
            try:
                return json.loads(places.status.read_text())
            except (OSError, ValueError):
                _log.warning("%s cannot be read: the outputs are checked again", places.status)
        if state != "open":
            counts = admission.BatchAdmission(self.batch, places, self._environment, self._progress).run()
            text = "admitted %d items: %d were done before, %d are not valid"
            _log.info(text, counts.total, counts.taken_over, counts.invalid)
        return None

    def _progress(self, count: int) -> None:
        self._admitted = count

    def _open_storage(self, places: Places) -> Storage:
        file = LedgerFile(places.ledger)
        journal = RowJournal(places.journal)
        journal.cut(int(file.meta("journal_end") or 0))
        stored = file.load()
        ledger = Ledger(self.batch, stored.table, stored.groups, lambda: uuid.uuid4().hex[:16])
        for seconds in stored.seconds:
            ledger.latencies.add(seconds)
        for score in stored.scores:
            ledger.scores.add(score)
        now = self._clock.monotonic()
        for lease in stored.leases:
            ledger.adopt(lease, now)
        self._spool = RowSpool(places.spool)
        self._storage = storage = Storage(places, file, journal, self._clock)
        self._started = now
        if self._environment.get(RETRY_DEAD, "").lower() == "true":
            storage.add(ledger.retry_dead())
        self._ledger = ledger
        self._wake()
        return storage

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            if self._ledger is not None and self._storage is not None:
                self._storage.add(self._ledger.expire(self._clock.monotonic()))
                self._wake()

    async def _until_ended(self, writer: asyncio.Task[None]) -> None:
        assert self._ledger is not None
        while not self._ledger.finished:
            if writer.done():
                writer.result()
            await self._changed.wait()

    async def _finish(self, places: Places, storage: Storage) -> int:
        ledger = self._ledger
        assert ledger is not None
        await storage.durable()
        outputs = Outputs(self.batch, places, storage.ledger, storage.journal)
        while True:
            try:
                await storage.in_thread(outputs.write)
                break
            except OSError as error:
                storage.blocked = unwritable(places.output, error)
                _log.error("%s", storage.blocked)
                if storage.blocked.reason != "DiskFull":
                    raise storage.blocked from None
                await self._clock.sleep(2.0)
        final = status_of(ledger, self._started, self._clock.monotonic(), True)
        final |= self._model_counts()
        final["reasons"] = await storage.in_thread(storage.ledger.reasons)

        def seal() -> None:
            write_atomic(places.status, json.dumps(final, indent=2) + "\n", 0o644)
            storage.ledger.set_meta(finished=1, journal_end=0)
            places.journal.unlink(missing_ok=True)
            places.spool.unlink(missing_ok=True)

        await storage.in_thread(seal)
        self._final, self._outputs_written = final, True
        return 0 if ledger.failure is None else 1

    def _fail(self, reason: str, message: str, places: Places | None) -> int:
        """End without outputs."""
        self._failure = (reason, message)
        self._final = {"finished": True, "failure": {"reason": reason, "message": message}}
        _log.error("%s: %s", reason, message)
        if places is not None:
            try:
                write_atomic(places.status, json.dumps(self._final, indent=2) + "\n", 0o644)
            except OSError:
                _log.error("%s cannot be written", places.status)
        return 1

    @property
    def final(self) -> dict[str, Any] | None:
        """Return the last status; ``None`` before the end."""
        return self._final

    def all_told(self) -> bool:
        """Return whether each active worker knows that it may end."""
        if self._ledger is None:
            return True
        now = self._clock.monotonic()
        recent = now - self.batch.items.lease_seconds
        return all(name in self.told or one.seen < recent for name, one in self._ledger.workers.items())

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Requests

    async def register(self, request: LeaseRequest) -> dict[str, Any]:
        seconds = self.batch.items.lease_seconds
        if request.model:
            self._models[request.worker] = request.model
        if self._ledger is not None and self._storage is not None:
            now = self._clock.monotonic()
            self._storage.add(self._ledger.register(request.worker, request.instance, now))
            self._wake()
        return {"ledger": self.batch.uid, "leaseSeconds": seconds, "heartbeatSeconds": seconds / 4}

    async def lease(self, request: LeaseRequest) -> LeaseResponse:
        deadline = self._clock.monotonic() + min(request.wait, 20.0)
        while True:
            if self._final is not None:
                self.told.add(request.worker)
                return LeaseResponse(finished=True)
            found = self._try_lease(request)
            if found is not None:
                return found
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return LeaseResponse()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                continue

    def _try_lease(self, request: LeaseRequest) -> LeaseResponse | None:
        ledger, storage, spool = self._ledger, self._storage, self._spool
        if ledger is None or storage is None or spool is None or storage.blocked is not None:
            return None
        now = self._clock.monotonic()
        lease, effects = ledger.lease(request.worker, request.instance, now)
        storage.add(effects)
        if lease is None:
            return None
        table = ledger.table
        items = [
            LeasedItem(n, table.attempts[n] + 1, msgspec.Raw(spool.read(table.offset[n], table.length[n])))
            for n in lease.items
        ]
        group = ledger.queues.groups[lease.group].record
        return LeaseResponse(lease.id, items, group.name, group.model or self.batch.model)

    async def heartbeat(self, request: LeaseRequest) -> HeartbeatResponse:
        ledger = self._ledger
        if ledger is None:
            return HeartbeatResponse()
        now = self._clock.monotonic()
        lost, revoked = ledger.heartbeat(request.worker, request.instance, request.leases, now)
        return HeartbeatResponse(lost, revoked)

    async def commit(self, request: CommitRequest) -> CommitResponse:
        ledger, storage = self._ledger, self._storage
        if ledger is None or storage is None:
            raise NotReady("the rows are being admitted")
        if self._final is not None or ledger.failure is not None:
            return CommitResponse(lost=True)
        now = self._clock.monotonic()
        results = [_result(one) for one in request.results]
        effects, accepted = ledger.commit(request.lease, results, request.seconds, now)
        for change in effects.items:
            if change.flag != Flag.NONE:
                change.row = flagged(change.row, change.flag)
        storage.add(effects)
        self._wake()
        lease = ledger.leases.get(request.lease)
        revoked: list[int] = []
        if lease is not None:
            revoked = sorted(lease.revoked.difference(one.number for one in results))
            lease.revoked = set()
        await storage.durable()
        return CommitResponse(accepted, lease is None and accepted < len(results), revoked)

    async def give_back(self, request: LeaseRequest) -> dict[str, Any]:
        ledger, storage = self._ledger, self._storage
        if ledger is not None and storage is not None:
            now = self._clock.monotonic()
            if request.lease:
                storage.add(ledger.give_back(request.lease, request.instance, now))
            if request.leave:
                storage.add(ledger.leave(request.worker, request.instance, now))
            self._wake()
        return {}

    async def retry(self, request: RetryRequest) -> dict[str, Any]:
        ledger, storage = self._ledger, self._storage
        if ledger is None or storage is None:
            raise NotReady("the rows are being admitted")
        if self._final is not None:
            raise NotReady("the batch has ended: start its driver again")
        numbers = None
        if request.ids:
            numbers = await storage.in_thread(lambda: storage.ledger.numbers_of(request.ids))
        await storage.durable()
        effects = ledger.retry_dead(numbers)
        storage.add(effects)
        self._wake()
        await storage.durable()
        return {"retried": len(effects.items)}

    async def status(self) -> dict[str, Any]:
        if self._final is not None:
            self.status_read = True
            return self._final
        if self._ledger is None:
            return {
                "items": {"total": 0, "admitted": self._admitted},
                "finished": False,
                "phase": "Admitting",
            }
        now = self._clock.monotonic()
        found = status_of(self._ledger, self._started, now, False) | self._model_counts()
        if self._storage is not None and self._storage.blocked is not None:
            blocked = self._storage.blocked
            found["blocked"] = {"reason": blocked.reason, "message": str(blocked)}
        return found

    def _model_counts(self) -> dict[str, Any]:
        """Return how many workers fetched, found, loaded or attached the model."""
        return {"model": dict(Counter(self._models.values()))} if self._models else {}

    async def dead_letters(self, limit: int) -> dict[str, Any]:
        storage = self._storage
        if storage is None or self._final is not None:
            raise NotReady("the ledger is not open")
        await storage.durable()
        letters = await storage.in_thread(lambda: list(storage.ledger.dead_letters(limit)))
        reasons = await storage.in_thread(storage.ledger.reasons)
        names = ("id", "group", "attempts", "losses", "reason", "message")
        return {
            "items": [{name: getattr(one, name) for name in names} for one in letters],
            "reasons": reasons,
        }

    async def healthy(self) -> dict[str, Any]:
        return {"ready": self._ledger is not None or self._final is not None, "pid": os.getpid()}


def _stored(places: Places, uid: str) -> str:
    """Return whether a ledger of this job is there: ``open``, ``finished`` or ``""``."""
    if not uid or not places.ledger.exists():
        return ""
    try:
        ledger = LedgerFile(places.ledger)
        try:
            if ledger.meta("version") != VERSION or ledger.meta("uid") != uid:
                return ""
            if ledger.meta("finished"):
                return "finished"
            end = int(ledger.meta("journal_end") or 0)
            there = places.journal.exists() and places.journal.stat().st_size >= end
            return "open" if there and places.spool.exists() else ""
        finally:
            ledger.close()
    except sqlite3.DatabaseError as error:
        _log.warning("%s cannot be read (%s): the rows are admitted again", places.ledger, error)
        return ""


def _result(one: ResultMessage) -> ItemResult:
    score = float("nan") if one.score is None else one.score
    if bytes(one.row) and one.error is None:
        return ItemResult(one.n, bytes(one.row), score, one.seconds)
    error = one.error
    if error is None:
        return ItemResult(one.n, reason="NoOutput", message="the worker sent neither a row nor an error")
    return ItemResult(one.n, kind=error.kind, reason=error.reason, message=error.message, seconds=one.seconds)

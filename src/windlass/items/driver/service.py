"""Service of one batch: admission, leases, and the end with its outputs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from windlass.items import admission
from windlass.items.driver.api import NotReady
from windlass.items.driver.context import SegmentContexts
from windlass.items.driver.finish import Outputs, first_invalid
from windlass.items.driver.messages import (
    CommitRequest,
    CommitResponse,
    EndRequest,
    HeartbeatResponse,
    LeasedItem,
    LeaseRequest,
    LeaseResponse,
    RetryRequest,
)
from windlass.items.driver.opening import holder_of, leaves_items, stored_state
from windlass.items.driver.scaler import UserScaler
from windlass.items.driver.status import all_groups, status_of, tell_blocked
from windlass.items.driver.storage import Storage
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.database import LedgerFile
from windlass.items.ledger.failures import SCORER_FAILED, TOO_MANY_INVALID
from windlass.items.ledger.journal import RowJournal, RowSpool
from windlass.items.ledger.table import ItemTable
from windlass.items.outputs import show_rows, stored_row
from windlass.items.overlap import prepare
from windlass.items.places import PlaceError, Places, full_disk, places_of, unwritable
from windlass.items.rows import EmptyInputError, InputError
from windlass.items.spec import ATTEMPT, RETRY_DEAD, BatchSpec
from windlass.kits.clock import Clock
from windlass.kits.files import FileLock, write_atomic

TICK_SECONDS = 0.5
"""Interval between checks of lost leases and delayed items (seconds)."""
LOCK_SECONDS = 60.0
"""Time to wait for an earlier driver of the same outputs to end (seconds)."""
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Driver:
    """Driver of one batch. Times are monotonic seconds of ``clock``."""

    def __init__(self, batch: BatchSpec, environment: Mapping[str, str], clock: Clock) -> None:
        self.batch = batch
        self.desks: Mapping[str, Driver] = {}
        """Stage → what serves its workers; empty without stages."""
        self.told: set[str] = set()
        self._models: dict[str, str] = {}
        """Worker → where the files of its model came from."""
        self.status_read = False
        self.scaler = UserScaler()
        self._environment, self._clock = environment, clock
        self._ledger: Ledger | None = None
        self._storage: Storage | None = None
        self._spool: RowSpool | RowJournal | None = None
        self._contexts: SegmentContexts | None = None
        self._changed = asyncio.Event()
        self._admitted = 0
        self._taken_over: dict[str, Any] = {}
        self._blocked: tuple[str, str] | None = None
        """Reason and message while another job writes to the outputs, or their disk is full."""
        self._started = clock.monotonic()
        self._failure: tuple[str, str] | None = None
        self._final: dict[str, Any] | None = None
        self.stopped: str | None = None
        """Cause of the failure of the job, so that the rows left are not worked on; ``None``: it has not failed."""
        self._retries_dead = False
        """True if dead letters get new budgets, which a restart of the driver does not repeat."""

    # Life of a batch

    async def run(self) -> int:
        """Work until the batch has ended; return the exit code of the process."""
        try:
            places = places_of(self.batch, self._environment)
            await self._with_space(places, lambda: prepare(places, self.batch, self._environment))
        except PlaceError as error:
            return self._fail(error.reason, str(error), None)
        lock = FileLock(places.state / "lock")
        if not await self._lock(lock):
            return self._fail(*(self._blocked or ("OutputInUse", "")), None)
        owner = f"{self.batch.namespace}/{self.batch.name}"
        await self._with_space(places, lambda: lock.path.write_text(owner))
        try:
            return await self._run(places)
        finally:
            lock.release()
            self._wake()  # workers that wait are told to end

    async def _run(self, places: Places) -> int:
        try:
            done = await self._with_space(places, lambda: self._open(places))
        except InputError as error:
            empty = isinstance(error, EmptyInputError)
            return self._fail("EmptyInput" if empty else "InputUnreadable", str(error), places)
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

    async def _with_space(self, places: Places, work: Callable[[], Result]) -> Result:
        """Return the result of ``work``, which is repeated while the disk is full."""
        while True:
            try:
                result = await asyncio.to_thread(work)
                self._blocked = None
                return result
            except (OSError, PlaceError, sqlite3.OperationalError) as error:
                if (full := full_disk(places.output, error)) is None:
                    raise
            self._blocked = (full.reason, str(full))
            await self._clock.sleep(2.0)

    async def _lock(self, lock: FileLock) -> bool:
        deadline = self._clock.monotonic() + LOCK_SECONDS
        while not lock.acquire():
            self._blocked = ("OutputInUse", holder_of(lock))
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(0.5)
        return True

    def _open(self, places: Places) -> dict[str, Any] | None:
        """Admit the rows, unless this job has done so; return the status of a job that has ended."""
        state, asked = stored_state(places, self.batch.uid)
        wanted = self._environment.get(RETRY_DEAD, "")
        self._retries_dead = bool(wanted) and wanted != asked
        again = self._retries_dead or leaves_items(places, int(self._environment.get(ATTEMPT) or 1))
        if state == "finished" and not again and places.output.exists():
            try:
                return json.loads(places.status.read_text())
            except (OSError, ValueError):
                _log.warning("%s cannot be read: the outputs are checked again", places.status)
        if state != "open":
            counts = admission.BatchAdmission(
                self._admitted_batch(), places, self._environment, self._progress
            ).run()
            text = "admitted %d items: %d were done before, %d were done before their row changed, %d are not valid"
            _log.info(text, counts.total, counts.taken_over, counts.changed, counts.invalid)
        return None

    def _admitted_batch(self) -> BatchSpec:
        """Return the batch as the input rows are checked for it."""
        return self.batch

    def _progress(self, count: int) -> None:
        self._admitted = count

    def _open_storage(self, places: Places) -> Storage:
        file = LedgerFile(places.ledger)
        self._taken_over = json.loads(file.meta("taken_over") or "{}")
        journal = RowJournal(places.journal)
        journal.cut(int(file.meta("journal_end") or 0))
        stored = file.load()
        self._prepare(places, file, stored.table)
        self._spool = spool = RowSpool(places.spool)
        gate = None
        if self.batch.context is not None:
            made = SegmentContexts(self.batch, self.batch.context, stored.table, spool, self._clock)
            made.load(file, journal)
            self._contexts, gate = made, made.gate
        unscored = [number for number, *_, reason, _ in file.given_up() if reason == SCORER_FAILED]
        ledger = Ledger(
            self.batch, stored.table, stored.groups, lambda: uuid.uuid4().hex[:16], gate, unscored
        )
        for seconds in stored.seconds:
            ledger.latencies.add(seconds)
        for score in stored.scores:
            ledger.scores.add(score)
        now = self._clock.monotonic()
        for lease in stored.leases:
            ledger.adopt(lease, now)
        self._storage = storage = Storage(places, file, journal, self._clock)
        self._started = now
        if self._retries_dead:
            storage.add(ledger.retry_dead())
        if RETRY_DEAD in self._environment:
            file.set_meta(retried=self._environment[RETRY_DEAD])
        if not self.batch.outputs.atomic and self.batch.outputs.format == "jsonl":
            show_rows(places)
        self._ledger = ledger
        self._wake()
        return storage

    def _prepare(self, places: Places, file: LedgerFile, table: ItemTable) -> None:
        """Called with the stored items before the ledger is made of them."""

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            self._expire()

    def _expire(self) -> None:
        if self._ledger is not None and self._storage is not None:
            self._storage.add(self._ledger.expire(self._clock.monotonic()))
            if self._contexts is not None:
                self._contexts.expire()
            self._wake()

    async def _until_ended(self, writer: asyncio.Task[None]) -> None:
        assert self._ledger is not None
        while not self._ledger.finished and self.stopped is None:
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
        final |= self._more()
        if not ledger.finished:
            final["stopped"] = self.stopped
        final["attempt"] = int(self._environment.get(ATTEMPT) or 1)
        final["reasons"] = reasons = await storage.in_thread(storage.ledger.reasons)
        if "failure" in final and reasons:
            counts = ", ".join(f"{count} × {reason}" for reason, count in list(reasons.items())[:3])
            final["failure"]["message"] += f" ({counts})"
            if final["failure"]["reason"] == TOO_MANY_INVALID:
                final["failure"]["message"] += await storage.in_thread(lambda: first_invalid(storage.ledger))

        def seal() -> None:
            write_atomic(places.status, json.dumps(final, indent=2) + "\n", 0o644)
            write_atomic(places.groups, json.dumps(all_groups(ledger)) + "\n", 0o644)
            if self._contexts is not None:
                lines = map(msgspec.json.encode, self._contexts.records())
                write_atomic(places.contexts, b"".join(line + b"\n" for line in lines), 0o644)
            storage.ledger.set_meta(finished=1, journal_end=0)
            places.journal.unlink(missing_ok=True)
            places.spool.unlink(missing_ok=True)

        await storage.in_thread(seal)
        self._final = final
        await storage.in_thread(storage.ledger.compact)
        return 0 if ledger.failure is None and "stopped" not in final else 1

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
            now = self._clock.monotonic()
            left = deadline - now
            if left <= 0:
                return LeaseResponse()
            gathered = self._ledger.gathering.until if self._ledger is not None else None
            if gathered is not None and gathered > now:
                left = min(left, gathered - now)
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                continue

    def _try_lease(self, request: LeaseRequest) -> LeaseResponse | None:
        ledger, storage, spool = self._ledger, self._storage, self._spool
        if ledger is None or storage is None or spool is None or storage.blocked or self.stopped is not None:
            return None
        now = self._clock.monotonic()
        lease, effects = ledger.lease(request.worker, request.instance, now, busy=request.busy)
        storage.add(effects)
        if lease is None:
            return None
        table = ledger.table
        items: list[LeasedItem] = []
        for n in lease.items:
            row = spool.read(table.offset[n], table.length[n])
            if self._contexts is not None:
                row = self._contexts.row(n, row)
            items.append(LeasedItem(n, table.attempts[n] + 1, msgspec.Raw(row)))
        group = ledger.queues.groups[lease.group].record
        model = group.model or self.batch.model
        return LeaseResponse(lease.id, items, group.name, model, alone=lease.alone)

    async def heartbeat(self, request: LeaseRequest) -> HeartbeatResponse:
        ledger = self._ledger
        if ledger is None:
            return HeartbeatResponse()
        if request.message:
            ledger.trouble = (request.reason, request.message)
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
        results = [one.result() for one in request.results]
        effects, accepted = ledger.commit(request.lease, results, request.seconds, now)
        for change in effects.items:
            change.row = stored_row(change)
        ended = self._contexts.keep(effects.items) if self._contexts is not None else []
        storage.add(effects)
        self._wake()
        lease = ledger.leases.get(request.lease)
        revoked: list[int] = []
        if lease is not None:
            revoked = sorted(lease.revoked.difference(one.number for one in results))
            lease.revoked = set()
        await storage.durable()
        if ended and ledger.unblock(ended):  # only now, so that a kill cannot change what they build on
            self._wake()
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

    async def end(self, request: EndRequest) -> dict[str, Any]:
        """End with the rows that are done, as the job has failed."""
        if self._ledger is None:
            raise NotReady("the rows are being admitted")
        self.stopped = request.message
        self._wake()
        return {"ended": True}

    async def status(self, *, peek: bool = False) -> dict[str, Any]:
        """Return the status. ``peek``: the driver still waits for a reader of the last one."""
        if self._final is not None:
            self.status_read = self.status_read or not peek
            return self._final
        if self._ledger is None:
            items = {"total": 0, "admitted": self._admitted}
            found: dict[str, Any] = {"items": items, "finished": False, "phase": "Admitting"}
            if self._blocked is not None:
                found["blocked"] = dict(zip(("reason", "message"), self._blocked, strict=True))
            return found
        now = self._clock.monotonic()
        found = status_of(self._ledger, self._started, now, False) | self._more()
        if self._storage is not None and self._storage.blocked is not None:
            tell_blocked(found, self._storage.blocked)
        return found

    def _more(self) -> dict[str, Any]:
        """Return further parts of the status."""
        found: dict[str, Any] = {"model": self.model_counts()} if self._models else {}
        if self._taken_over:
            found["takenOver"] = self._taken_over
        return found if self._contexts is None else found | {"contextCache": self._contexts.status()}

    def model_counts(self) -> dict[str, int]:
        """Return how many workers fetched, found, loaded or attached the model."""
        return dict(Counter(self._models.values()))

    @property
    def started(self) -> float:
        """Return the time at which workers could begin."""
        return self._started

    async def contexts(self, limit: int, wanted: str) -> dict[str, Any]:
        """Return the segments with the ranges of their contexts."""
        if self._contexts is None:
            if self.batch.context is not None:
                raise NotReady("the rows are being admitted")
            return {"items": []}
        return {"items": list(self._contexts.records(limit, wanted))}

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

    async def groups(self) -> dict[str, Any]:
        """Return the counts of all groups."""
        if self._ledger is None:
            raise NotReady("the rows are being admitted")
        return {"items": all_groups(self._ledger)}

    async def healthy(self) -> dict[str, Any]:
        return {"ready": self._ledger is not None or self._final is not None, "pid": os.getpid()}

"""Writer thread: it commits submitted writes in batches and reports to the event loop.

Jobs are executed, and their results delivered, in the order of submission. After a
failed commit nothing is written: every later job gets the same error.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from windlass.store.database import ChangeRow, Database, FamilyBatch
from windlass.store.records import Entry, StoreEvent

_MAX_BATCH = 1_024


class StoreWrite(NamedTuple):
    """One change to be made durable."""

    family: str
    resource: str
    event: StoreEvent
    written_at: float
    future: asyncio.Future[Entry]


class WriterTask(NamedTuple):
    """Other task for the database, executed between two commits."""

    run: Callable[[Database], Any]
    future: asyncio.Future[Any]


Outcome = Callable[[Sequence[StoreWrite], BaseException | None], None]
_Job = list[StoreWrite] | WriterTask | None


class Writer:
    """Writer. ``submit``, ``call`` and ``committed`` run on the event loop's thread."""

    def __init__(self, database: Database, committed: Outcome) -> None:
        self._database = database
        self._committed = committed
        self._queue: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._gathered: list[StoreWrite] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="windlass-store", daemon=True)
        self._thread.start()

    def submit(self, write: StoreWrite) -> None:
        """Submit a write. Writes of one turn of the event loop are passed together."""
        if not self._gathered:
            self._loop = loop = asyncio.get_running_loop()
            loop.call_soon(self._flush)
        self._gathered.append(write)

    def _flush(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._queue.put(gathered)

    async def call(self, run: Callable[[Database], Any]) -> Any:
        """Run something on the writer's thread after all that was submitted before."""
        self._loop = asyncio.get_running_loop()
        self._flush()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(WriterTask(run, future))
        return await future

    def stop(self) -> None:
        """Finish submitted jobs and end the thread. The event loop still delivers their results."""
        self._flush()
        self._queue.put(None)
        self._thread.join()

    # -- on the thread

    def _run(self) -> None:
        backlog: list[_Job] = []
        while True:
            if not backlog:
                backlog.append(self._queue.get())
            self._drain(backlog)
            job = backlog.pop(0)
            if job is None:
                return
            if isinstance(job, WriterTask):
                self._perform(job)
                continue
            while backlog and isinstance(backlog[0], list) and len(job) < _MAX_BATCH:
                job += backlog.pop(0)  # type: ignore[arg-type]
            self._commit(job)

    def _drain(self, backlog: list[_Job]) -> None:
        try:
            while True:
                backlog.append(self._queue.get_nowait())
        except queue.Empty:
            return

    def _commit(self, writes: list[StoreWrite]) -> None:
        if self._failure is None:
            try:
                self._database.write(_batches(writes))
            except Exception as error:  # any error: callers must not wait for a dead thread
                self._failure = error
        self._post(self._committed, writes, self._failure)

    def _perform(self, task: WriterTask) -> None:
        result, failure = None, self._failure
        if failure is None:
            try:
                result = task.run(self._database)
            except Exception as error:  # raised to the caller
                failure = error
        self._post(_resolve, task.future, result, failure)

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop was closed: no receiver is left
            return


def _resolve(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)


def _batches(writes: Sequence[StoreWrite]) -> list[FamilyBatch]:
    """Rows per family, in order."""
    by_family: dict[str, list[ChangeRow]] = {}
    for family, resource, event, written_at, _ in writes:
        rows = by_family.get(family)
        if rows is None:
            rows = by_family[family] = []
        entry, previous = event.entry, event.previous
        rows.append(
            ChangeRow(
                event.rv,
                resource,
                entry.namespace,
                entry.name,
                int(event.op),
                entry.row,
                0 if previous is None else previous.rv,
                int(event.reindexed),
                entry.data,
                written_at,
            )
        )
    return [FamilyBatch(family, rows) for family, rows in by_family.items()]

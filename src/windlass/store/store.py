"""Store: versioned objects, one sequence of versions over all kinds, and their history.

Invariants:

- A write is acknowledged, visible and delivered to watchers only after its commit. A
  failed commit ends all writing (``failure``), and nothing of it is ever visible.
- Versions ascend, never repeat, and are never reused, not even after a crash: then they
  jump.
- Readers on the event loop see whole commits, in version order.

All methods are called on the event loop's thread. Only the writer thread uses SQLite.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from windlass.api.errors import WindlassError
from windlass.kits.clock import Clock
from windlass.store import errors
from windlass.store.database import MEMORY, Database
from windlass.store.families import StoreFamily, StoreOptions
from windlass.store.filters import ALL, StoreFilter
from windlass.store.records import Entry, Op, StoreEvent, encode, key_of, restamp, version_of
from windlass.store.retention import Retention
from windlass.store.ring import Ring
from windlass.store.table import Table
from windlass.store.watch import Watcher
from windlass.store.writer import StoreWrite, Writer

_COMPACT_ROWS = 1_000
_EXPIRE_AT_ONCE = 500
_T = TypeVar("_T")


class Store:
    """Object store. Create it with :meth:`open`, and close it with :meth:`close`.

    :meth:`maintain` must run every few seconds.
    """

    def __init__(self, database: Database, clock: Clock, options: StoreOptions) -> None:
        self.options = options
        self.failure: WindlassError | None = None
        self.on_failure: Callable[[WindlassError], None] | None = None
        """Called once, on the event loop, after a failed commit."""
        self.commits = 0
        self._clock = clock
        self._database = database
        self._tables: dict[str, Table] = {}
        self._retention: dict[str, Retention] = {}
        self._forgotten: dict[str, int] = {}
        self._expiry: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._waiting_for: list[tuple[int, asyncio.Future[None]]] = []
        self._closed = False
        self.rv = 0
        """The newest version that is durable and visible."""
        self._assigned = 0
        self.epoch = 0
        """Counts starts."""
        self._load()
        self._writer = Writer(database, self._committed)

    @staticmethod
    def open(path: Path | str, *, clock: Clock, options: StoreOptions | None = None) -> Store:
        """Open or create the database at ``path`` and load it. ``":memory:"``: in memory only.

        Raises :class:`WindlassError` if it is damaged, locked by another process, full,
        read-only, on a network file system, or written by a newer version.
        """
        options = options or StoreOptions()
        where = None if str(path) == MEMORY else Path(path)
        database = Database.open(where, options)
        try:
            return Store(database, clock, options)
        except sqlite3.Error as error:
            database.abandon()
            raise errors.from_sqlite(database.path, error) from error
        except BaseException:
            database.abandon()
            raise

    # -- loading

    def _load(self) -> None:
        database, now = self._database, self._clock.monotonic()
        meta = database.meta()
        highest = meta.get("rv", 0)
        for family in self.options.families:
            highest = max(highest, self._load_family(family, meta, now))
        fresh = highest == 0
        self.rv = self._assigned = 1 if fresh else highest
        if not database.clean:
            self.rv = self._assigned = highest + self.options.epoch_jump
        self.epoch = meta.get("epoch", 0) + 1
        database.write((), [("clean", 0), ("epoch", self.epoch), ("rv", self.rv)])

    def _load_family(self, family: StoreFamily, meta: Mapping[str, int], now: float) -> int:
        database, wall = self._database, self._clock.now()
        rows, last = 0, database.last_rv(family.name)
        # History dropped by an earlier process may concern any kind, even one without
        # objects now.
        compacted = self._forgotten[family.name] = meta.get(f"compacted:{family.name}", 0)
        for summary in database.log_summary(family.name):
            rows += summary.rows
            self._table(summary.resource).ring.start_rv = max(summary.last_rv, compacted)
        loaded: dict[str, dict[str, Entry]] = {}
        for row in database.objects(family.name):
            entries = loaded.setdefault(row.resource, {})
            key = key_of(row.namespace, row.name)
            if key in entries:
                raise errors.damaged(database.path, f"two objects {row.resource} {key}")
            try:
                if version_of(row.data) != row.rv:
                    raise ValueError(f"row is at version {row.rv}, its object at {version_of(row.data)}")
                labels, fields = self._table(row.resource).index(row.data)
            except ValueError as error:  # msgspec's errors are ValueErrors too
                raise errors.damaged(database.path, f"object {row.resource} {key}: {error}") from error
            except errors.Unindexable as error:
                raise errors.damaged(database.path, f"object {row.resource} {key}: {error}") from error
            entries[key] = Entry(row.namespace, row.name, row.rv, row.id, row.data, labels, fields)
            if family.ttl_seconds is not None:
                age = min(max(0.0, wall - row.written_at), family.ttl_seconds)
                self._expiry[(row.resource, key)] = now + family.ttl_seconds - age
        for resource, entries in loaded.items():
            self._table(resource).load(entries)
        if self._expiry and family.ttl_seconds is not None:
            self._expiry = OrderedDict(sorted(self._expiry.items(), key=lambda item: item[1]))
        self._retention[family.name] = Retention(family, now, last, rows, compacted)
        return max(last, compacted)

    def _table(self, resource: str) -> Table:
        table = self._tables.get(resource)
        if table is None:
            family, options = self.options.family_of(resource), self.options
            ring = Ring(options.ring_bytes, options.ring_events, self._forgotten[family.name])
            table = self._tables[resource] = Table(resource, family, ring)
        return table

    # -- committed state

    def get(self, resource: str, namespace: str, name: str) -> Entry | None:
        """The committed version; ``namespace`` is ``""`` for cluster-scoped kinds."""
        return self._table(resource).current.get(key_of(namespace, name))

    def count(self, resource: str, namespace: str | None = None) -> int:
        table = self._table(resource)
        if namespace is None:
            return len(table.current)
        _, low, high = table.span(namespace)
        return high - low

    def counts(self) -> dict[str, int]:
        """Objects per resource."""
        return {resource: len(table.current) for resource, table in self._tables.items()}

    def watchers(self) -> dict[str, int]:
        """Open watches per resource."""
        return {resource: len(table.watchers) for resource, table in self._tables.items() if table.watchers}

    def select(self, resource: str, wanted: StoreFilter = ALL) -> Iterator[Entry]:
        """Yield matching committed versions in key order. Consume it before the next ``await``."""
        return filter(wanted.matches, self._table(resource).candidates(wanted))

    def candidates(self, resource: str, wanted: StoreFilter) -> list[Entry]:
        """Return committed versions that include all matches. The caller filters them later."""
        return self._table(resource).candidates(wanted)

    def remaining(self, resource: str, namespace: str | None, start: str) -> int:
        """Return the number of objects from key ``start`` on."""
        _, low, high = self._table(resource).span(namespace, start)
        return high - low

    def versions(
        self, resource: str, namespace: str | None, start: str = "", *, at: int | None = None
    ) -> Iterator[Entry]:
        """Yield objects in key order from ``start`` on, now or as of version ``at``.

        Consume it before the next ``await``. Raises
        :class:`~windlass.store.errors.Expired` immediately if the history at ``at`` is
        gone.
        """
        table = self._table(resource)
        if at is not None:
            if at < table.ring.start_rv:
                raise errors.Expired(at, table.ring.start_rv)
            if table.ring.after(at) == table.ring.end:
                at = None
        return table.versions(namespace, start, at)

    # -- submitted state (for read-modify-write)

    def head(self, resource: str, namespace: str, name: str) -> Entry | None:
        """Return the newest submitted version. Before it is sent, wait for its commit (:meth:`settled`)."""
        return self._table(resource).head(key_of(namespace, name))

    def heads(self, resource: str, wanted: StoreFilter = ALL) -> list[Entry]:
        """The newest submitted versions that match, in no particular order."""
        table = self._table(resource)
        pending = table.heads()
        if not pending:
            return [entry for entry in table.candidates(wanted) if wanted.matches(entry)]
        found = [entry for entry in table.candidates(wanted) if entry.key not in pending]
        found += [entry for entry in pending.values() if entry is not None]
        return [entry for entry in found if wanted.matches(entry)]

    def quiet_at(self, resource: str) -> int | None:
        """Return the current position in the history if nothing is submitted, else ``None``.

        While it stays the same, nothing has changed.
        """
        table = self._table(resource)
        return None if table.pending else table.ring.end

    def changes(self, resource: str, position: int | None) -> tuple[int, list[str] | None]:
        """Return the current position, and the keys changed since ``position``, submitted ones included.

        ``None`` instead of keys: the changes are no longer in memory, so any object may
        have changed.
        """
        table = self._table(resource)
        ring = table.ring
        if position is None or position < ring.start:
            return ring.end, None
        keys = [event.entry.key for event in ring.slice(position, ring.end - position)]
        return ring.end, [*keys, *table.heads()]

    async def settled(self) -> None:
        """Return when everything submitted before is durable and visible."""
        await self.reached(self._assigned)

    def reached(self, rv: int) -> Awaitable[None]:
        """Something to await until version ``rv`` is visible."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.rv >= rv:
            future.set_result(None)
        elif self.failure is not None:
            future.set_exception(self.failure)
        else:
            self._waiting_for.append((rv, future))
        return future

    # -- writing

    def create(
        self, resource: str, namespace: str, name: str, obj: Mapping[str, Any]
    ) -> asyncio.Future[Entry]:
        """Submit a new object. The future completes when it is durable.

        Raises immediately: :class:`Exists`, :class:`Unindexable`, or the failure that
        ended writing.
        """
        self._require_working()
        table = self._table(resource)
        key = key_of(namespace, name)
        if table.head(key) is not None:
            raise errors.Exists(key)
        rv = self._assigned + 1
        data = encode(obj, rv)
        labels, fields = table.index(data)
        entry = Entry(namespace, name, rv, rv, data, labels, fields)
        return self._submit(table, StoreEvent(rv, Op.ADDED, entry, None, True))

    def update(
        self,
        resource: str,
        namespace: str,
        name: str,
        obj: Mapping[str, Any],
        *,
        expected: int | None = None,
    ) -> asyncio.Future[Entry]:
        """Submit a new version. ``expected``: version that the change is based on.

        Raises immediately: :class:`Missing`, :class:`Conflict`, :class:`Unindexable`,
        or the failure that ended writing.
        """
        table, head = self._require(resource, namespace, name, expected)
        rv = self._assigned + 1
        data = encode(obj, rv)
        labels, fields = table.index(data, head)
        entry = Entry(namespace, name, rv, head.row, data, labels, fields)
        reindexed = labels is not head.labels or fields is not head.fields
        return self._submit(table, StoreEvent(rv, Op.MODIFIED, entry, head, reindexed))

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        expected: int | None = None,
        last: Mapping[str, Any] | None = None,
    ) -> asyncio.Future[Entry]:
        """Submit a deletion. ``last``: the object's last state if it differs from the stored one.

        Raises immediately: :class:`Missing`, :class:`Conflict`, or the failure that
        ended writing.
        """
        table, head = self._require(resource, namespace, name, expected)
        rv = self._assigned + 1
        data = restamp(head.data, rv) if last is None else encode(last, rv)
        labels, fields = (head.labels, head.fields) if last is None else table.index(data, head)
        entry = Entry(namespace, name, rv, head.row, data, labels, fields)
        reindexed = labels is not head.labels or fields is not head.fields
        return self._submit(table, StoreEvent(rv, Op.DELETED, entry, head, reindexed))

    def _require_working(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise WindlassError(errors.FAILED, "the store is closed")

    def _require(self, resource: str, namespace: str, name: str, expected: int | None) -> tuple[Table, Entry]:
        self._require_working()
        table = self._table(resource)
        head = table.head(key_of(namespace, name))
        if head is None:
            raise errors.Missing(key_of(namespace, name))
        if expected is not None and head.rv != expected:
            raise errors.Conflict(f"{head.key} is at version {head.rv}, not {expected}")
        return table, head

    def _submit(self, table: Table, event: StoreEvent) -> asyncio.Future[Entry]:
        self._assigned = event.rv
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        table.submitted(event)
        self._writer.submit(StoreWrite(table.family.name, table.resource, event, self._clock.now(), future))
        return future

    def _committed(self, writes: Sequence[StoreWrite], failure: BaseException | None) -> None:
        """Make a commit visible and notify watchers. Called on the event loop, in order."""
        if failure is not None:
            self._fail(writes, failure)
            return
        now = self._clock.monotonic()
        touched: dict[Table, None] = {}
        for write in writes:
            table = self._tables[write.resource]
            table.apply(write.event)
            touched[table] = None
            self._retention[write.family].logged(write.event.rv, now)
            if table.family.ttl_seconds is not None:
                self._renew(table, write.event, now + table.family.ttl_seconds)
        self.rv = writes[-1].event.rv
        self.commits += 1
        for write in writes:
            if not write.future.done():
                write.future.set_result(write.event.entry)
        for table in touched:
            if table.watchers:
                self._notify(table)
        if self._waiting_for:
            self._release()

    def _notify(self, table: Table) -> None:
        """Wake the table's watchers, at a bounded rate.

        Under load, changes of a few milliseconds are delivered together, at a fraction
        of the cost.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= table.quiet_until:
            table.quiet_until = now + self.options.wake_seconds
            table.wake()
        elif not table.wake_planned:
            table.wake_planned = True
            loop.call_at(table.quiet_until, self._notify_later, table)

    def _notify_later(self, table: Table) -> None:
        table.wake_planned = False
        table.quiet_until = asyncio.get_running_loop().time() + self.options.wake_seconds
        table.wake()

    def _release(self) -> None:
        still = []
        for rv, future in self._waiting_for:
            if future.done():
                continue
            if rv <= self.rv:
                future.set_result(None)
            else:
                still.append((rv, future))
        self._waiting_for = still

    def _fail(self, writes: Sequence[StoreWrite], cause: BaseException) -> None:
        first = self.failure is None
        if first:
            if isinstance(cause, sqlite3.Error):
                self.failure = errors.from_sqlite(self._database.path, cause)
            else:
                self.failure = WindlassError(
                    errors.FAILED,
                    f"the database {self._database.path} failed",
                    evidence=str(cause),
                    remedies=("windlass doctor",),
                )
        assert self.failure is not None
        waiting = [write.future for write in writes] + [future for _, future in self._waiting_for]
        self._waiting_for = []
        for future in waiting:
            if not future.done():
                future.set_exception(self.failure)
        if first and self.on_failure is not None:
            self.on_failure(self.failure)

    # -- following

    def watch(self, resource: str, wanted: StoreFilter = ALL, *, since: int) -> Watcher:
        """Watch changes after ``since``. Raises :class:`~windlass.store.errors.Expired`."""
        table = self._table(resource)
        self.require_history(table, since)
        return Watcher(self, table, wanted, since)

    def require_history(self, table: Table, since: int) -> None:
        """Raise :class:`Expired` if changes of ``table`` after ``since`` may have been dropped."""
        compacted = self._retention[table.family.name].compacted
        if since < table.ring.start_rv and since < compacted:
            raise errors.Expired(since, compacted)

    async def on_database(self, run: Callable[[Database], _T]) -> _T:
        """Run something on the writer's thread, between two commits."""
        self._require_working()
        return await self._writer.call(run)

    def oldest(self, resource: str) -> int:
        """The version since which the history of ``resource`` is known."""
        table = self._table(resource)
        return min(table.ring.start_rv, self._retention[table.family.name].compacted)

    def end_watches(self) -> None:
        """Close every watch; their streams end cleanly."""
        for table in self._tables.values():
            for watcher in tuple(table.watchers):
                watcher.close()

    # -- upkeep

    async def maintain(self) -> None:
        """Expire objects and compact the logs, once. Call it every few seconds."""
        self._require_working()
        now = self._clock.monotonic()
        await self._expire(now)
        for retention in self._retention.values():
            retention.tick(now)
            target = retention.target(now)
            if target > retention.compacted:
                await self._compact(retention, target)

    def _renew(self, table: Table, event: StoreEvent, until: float) -> None:
        key = (table.resource, event.entry.key)
        if event.op is Op.DELETED:
            self._expiry.pop(key, None)
        else:
            self._expiry[key] = until
            self._expiry.move_to_end(key)

    async def _expire(self, now: float) -> None:
        while True:
            due: list[asyncio.Future[Entry]] = []
            for (resource, key), until in self._expiry.items():
                if until > now or len(due) >= _EXPIRE_AT_ONCE:
                    break
                namespace, _, name = key.rpartition("/")
                if self.head(resource, namespace, name) is not None:
                    due.append(self.delete(resource, namespace, name))
            if not due:
                return
            await asyncio.gather(*due)

    async def compact(self, family: str, upto: int) -> None:
        """Forget the log of ``family`` up to version ``upto`` (at most the newest one)."""
        self._require_working()
        await self._compact(self._retention[family], min(upto, self.rv))

    async def _compact(self, retention: Retention, target: int) -> None:
        family = retention.family.name
        retention.compacted = max(retention.compacted, target)
        for table in self._tables.values():
            if table.family is retention.family:
                table.ring.forget(target)
        while await self._writer.call(lambda database: database.compact(family, target, _COMPACT_ROWS)):
            await asyncio.sleep(0)
        await self._writer.call(Database.shrink)

    # -- the end

    async def close(self) -> None:
        """Commit submitted writes, mark a clean end, and close. Idempotent."""
        if self._closed:
            return
        if self.failure is None:
            await self.settled()
        self._closed = True
        self.end_watches()
        self._writer.stop()
        if self.failure is not None:
            self._database.abandon()
            return
        try:
            self._database.close([("clean", 1), ("rv", self._assigned)])
        except sqlite3.Error as error:
            raise errors.from_sqlite(self._database.path, error) from error

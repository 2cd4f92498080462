"""SQLite file: opening with clear errors, loading, and writing in batches.

One connection, used by one thread at a time. Every statement releases the interpreter
lock and must get it back from the event loop, which may take longer than the statement.
So changes that are committed together are one statement where possible: an INSERT into
a temporary view with triggers that write the log and the object table, in a transaction
of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from windlass.kits.files import FileLock, write_atomic
from windlass.kits.state import NETWORK_FILESYSTEMS, filesystem_of
from windlass.store import errors, schema
from windlass.store.checkpoint import Checkpointer
from windlass.store.families import StoreOptions

MEMORY = ":memory:"
_ROWS_PER_STATEMENT = 64
_PAGES_PER_CHANGE = 4
_MIN_FREE_PAGES = 4_096
_QUICK_CHECK_BYTES = 256 * 2**20


class ObjectRow(NamedTuple):
    id: int
    resource: str
    namespace: str
    name: str
    rv: int
    written_at: float
    data: bytes


class ChangeRow(NamedTuple):
    """One change: a row of the log and its effect on the object's row (``op``: ``records.Op``)."""

    rv: int
    resource: str
    namespace: str
    name: str
    op: int
    id: int
    previous: int
    reindexed: int
    data: bytes
    written_at: float


class ReplayRow(NamedTuple):
    """Log row of one resource, with the previous version's bytes if the index changed."""

    rv: int
    namespace: str
    name: str
    op: int
    id: int
    previous: int
    reindexed: int
    data: bytes
    previous_data: bytes | None


class FamilyBatch(NamedTuple):
    """Changes of one family in one transaction, in order of versions."""

    family: str
    changes: Sequence[ChangeRow]


class LogSummary(NamedTuple):
    resource: str
    last_rv: int
    rows: int


class Database:
    """Raises :class:`WindlassError` from :meth:`open`, ``sqlite3.Error`` from the rest."""

    def __init__(
        self,
        path: Path | None,
        connection: sqlite3.Connection,
        lock: FileLock | None,
        clean: bool,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        self.path = path or Path(MEMORY)
        self.clean = clean
        """The last user closed the database cleanly, or the database is new."""
        self._connection = connection
        self._lock = lock
        self._checkpointer = checkpointer
        self._statements: dict[tuple[str, int], str] = {}

    @staticmethod
    def open(path: Path | None, options: StoreOptions) -> Database:
        """Open or create the database. ``None``: in memory only."""
        if path is None:
            connection = _connect(MEMORY, 0.0)
            schema.migrate(connection)
            schema.prepare_writing(connection)
            return Database(None, connection, None, True)
        lock = _take(path, options)
        try:
            _require_content(path)
            connection = _prepare(path, options)
            _mark_made(path)
            try:
                clean = _clean(connection)
                size = path.stat().st_size
                if not clean and size <= _QUICK_CHECK_BYTES:
                    _check(path, connection)
                checkpointer = Checkpointer(_second(path, options))
            except BaseException:
                connection.close()
                raise
        except BaseException as error:
            lock.release()
            if isinstance(error, sqlite3.Error):
                raise errors.from_sqlite(path, error) from error
            if isinstance(error, OSError):
                raise errors.from_os(path, error) from error
            raise
        return Database(path, connection, lock, clean, checkpointer)

    # -- reading, at start and for replays

    def meta(self) -> dict[str, int]:
        return dict(self._connection.execute("SELECT key, value FROM meta"))

    def objects(self, family: str) -> Iterator[ObjectRow]:
        query = (
            f"SELECT id, resource, namespace, name, rv, written_at, data FROM objects_{family} ORDER BY id"
        )
        return map(ObjectRow._make, self._connection.execute(query))

    def log_summary(self, family: str) -> list[LogSummary]:
        query = f"SELECT resource, max(rv), count(*) FROM log_{family} GROUP BY resource"
        return [LogSummary(*row) for row in self._connection.execute(query)]

    def last_rv(self, family: str) -> int:
        """The highest resourceVersion in the family's tables; 0 if they are empty."""
        highest = 0
        for table in (f"log_{family}", f"objects_{family}"):
            found = self._connection.execute(f"SELECT ifnull(max(rv), 0) FROM {table}").fetchone()
            highest = max(highest, int(found[0]))
        return highest

    def replay(
        self, family: str, resource: str, since: int, upto: int, scan_rows: int
    ) -> tuple[list[ReplayRow], int]:
        """Return changes of ``resource`` after ``since`` up to ``upto``.

        At most ``scan_rows`` log rows are scanned. The second value is the version up
        to which the log has been scanned.
        """
        bound = self._connection.execute(
            f"SELECT rv FROM log_{family} WHERE rv > ? AND rv <= ? ORDER BY rv LIMIT 1 OFFSET ?",
            (since, upto, scan_rows - 1),
        ).fetchone()
        last = int(bound[0]) if bound else upto
        rows = self._connection.execute(
            "SELECT l.rv, l.namespace, l.name, l.op, l.id, l.previous, l.reindexed, l.data,"
            f" CASE WHEN l.reindexed THEN (SELECT p.data FROM log_{family} p WHERE p.rv = l.previous) END"
            f" FROM log_{family} l WHERE l.rv > ? AND l.rv <= ? AND l.resource = ? ORDER BY l.rv",
            (since, last, resource),
        )
        return [ReplayRow(*row) for row in rows], last

    # -- writing

    def write(self, batches: Iterable[FamilyBatch], meta: Iterable[tuple[str, int]] = ()) -> None:
        """All of it in one transaction, durable when this returns."""
        if self._checkpointer is not None:
            self._checkpointer.raise_failure()
        statements: list[tuple[str, Sequence[Any]]] = []
        changes = 0
        for batch in batches:
            statements += self._inserts(batch)
            changes += len(batch.changes)
        upsert = "INSERT INTO meta VALUES(?,?) ON CONFLICT DO UPDATE SET value=excluded.value"
        statements += [(upsert, entry) for entry in meta]
        execute = self._connection.execute
        if len(statements) == 1:
            execute(*statements[0])
        elif statements:
            execute("BEGIN IMMEDIATE")
            try:
                for statement, values in statements:
                    execute(statement, values)
                execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise
        self._written(_PAGES_PER_CHANGE * changes)

    def _written(self, pages: int) -> None:
        if self._checkpointer is not None:
            self._checkpointer.written(pages, self._connection)

    def _inserts(self, batch: FamilyBatch) -> Iterator[tuple[str, Sequence[Any]]]:
        family, changes = batch
        for start in range(0, len(changes), _ROWS_PER_STATEMENT):
            chunk = changes[start : start + _ROWS_PER_STATEMENT]
            yield self._insert(family, len(chunk)), [*chain.from_iterable(chunk)]

    def _insert(self, family: str, rows: int) -> str:
        found = self._statements.get((family, rows))
        if found is None:
            values = ",".join(["(?,?,?,?,?,?,?,?,?,?)"] * rows)
            found = self._statements[family, rows] = f"INSERT INTO changes_{family} VALUES {values}"
        return found

    def compact(self, family: str, upto: int, limit: int) -> int:
        """Forget at most ``limit`` log rows up to version ``upto``; returns how many went."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            removed = execute(
                f"DELETE FROM log_{family} WHERE rv IN"
                f" (SELECT rv FROM log_{family} WHERE rv <= ? ORDER BY rv LIMIT ?)",
                (upto, limit),
            ).rowcount
            execute(
                "INSERT INTO meta VALUES(?,?) ON CONFLICT DO UPDATE SET value=max(value, excluded.value)",
                (f"compacted:{family}", upto),
            )
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        self._written(removed)
        return removed

    def shrink(self) -> None:
        """Give pages that compaction freed back to the file system."""
        free = int(self._connection.execute("PRAGMA freelist_count").fetchone()[0])
        if free > _MIN_FREE_PAGES:
            self._connection.execute("PRAGMA incremental_vacuum(2048)").fetchall()

    def close(self, meta: Iterable[tuple[str, int]] = ()) -> None:
        """Write ``meta`` (the mark of a clean end), close, and release the lock in any case."""
        try:
            self.write((), meta)
            if self._checkpointer is not None:
                self._end_checkpoints()
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without the mark of a clean end."""
        self._end_checkpoints()
        self._connection.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _end_checkpoints(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
            self._checkpointer = None


def _take(path: Path, options: StoreOptions) -> FileLock:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = filesystem_of(path.parent)
        if kind in NETWORK_FILESYSTEMS and not options.allow_network:
            raise errors.network_filesystem(path, kind)
        lock = FileLock(path.with_name(path.name + ".lock"))
        if not lock.acquire():
            raise errors.locked(path)
    except OSError as error:
        raise errors.from_os(path, error) from error
    return lock


def _mark_of(path: Path) -> Path:
    """Return the path of the marker file next to a database that was created once.

    With it a missing database is never taken for a new one.
    """
    return path.with_name(path.name + ".made")


def _require_content(path: Path) -> None:
    """Raise if a database that was created is empty or missing.

    SQLite would take it for a new database, and all objects would be lost silently.
    """
    if not _mark_of(path).exists():
        return
    if not path.exists():
        raise errors.lost(path, "missing")
    if path.stat().st_size == 0:
        raise errors.lost(path, "empty")


def _mark_made(path: Path) -> None:
    mark = _mark_of(path)
    if not mark.exists():
        text = f"{path.name} was made here. If it is missing or empty, it was lost: Windlass then does not start.\n"
        write_atomic(mark, text, durable=False)


def _connect(path: str | Path, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=busy_seconds
    )
    connection.execute("PRAGMA cache_size=-32000")
    connection.execute("PRAGMA temp_store=MEMORY")
    return connection


def _prepare(path: Path, options: StoreOptions) -> sqlite3.Connection:
    connection = _connect(path, options.busy_seconds)
    try:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise errors.network_filesystem(path, f"journal mode {mode} instead of wal")
        connection.execute(f"PRAGMA synchronous={options.synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("PRAGMA journal_size_limit=67108864")
        known = len(schema.STEPS)
        found = schema.version(connection)
        if found > known:
            raise errors.newer_schema(path, found, known)
        schema.migrate(connection, schema.STEPS)
        schema.prepare_writing(connection)
        path.chmod(0o600)
    except BaseException:
        connection.close()
        raise
    return connection


def _second(path: Path, options: StoreOptions) -> sqlite3.Connection:
    """Another connection to a database that was prepared."""
    connection = _connect(path, options.busy_seconds)
    try:
        connection.execute(f"PRAGMA synchronous={options.synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint=0")
    except BaseException:
        connection.close()
        raise
    return connection


def _clean(connection: sqlite3.Connection) -> bool:
    row = connection.execute("SELECT value FROM meta WHERE key='clean'").fetchone()
    return row is None or bool(row[0])


def _check(path: Path, connection: sqlite3.Connection) -> None:
    found = [row[0] for row in connection.execute("PRAGMA quick_check(5)")]
    if found != ["ok"]:
        raise errors.damaged(path, "; ".join(found))

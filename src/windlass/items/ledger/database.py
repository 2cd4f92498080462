"""Storage of the ledger: one SQLite file for each batch, next to its outputs."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.items.ledger.changes import ItemChange, ItemGroup, ItemLease, ItemState, LedgerEffects
from windlass.items.ledger.table import ItemTable
from windlass.items.row_digests import DIGEST_BYTES, NO_DIGEST, unpack

VERSION = "2"
"""Version of the tables. Version 1 had no digests."""
_DIGESTED = 5000
"""Number of digests that are stored in one row."""
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE groups (number INTEGER PRIMARY KEY, name TEXT, weight REAL, priority INTEGER,
    parallelism INTEGER, deadline REAL, model TEXT);
CREATE TABLE items (number INTEGER PRIMARY KEY, id, grp INTEGER, length INTEGER, sort INTEGER,
    state INTEGER, attempts INTEGER, losses INTEGER, row_place INTEGER, row_length INTEGER,
    score REAL, micros INTEGER, reason TEXT, message TEXT);
CREATE TABLE leases (id TEXT PRIMARY KEY, worker TEXT, instance TEXT, grp INTEGER, items BLOB)
    WITHOUT ROWID;
CREATE TABLE extras (place INTEGER PRIMARY KEY, length INTEGER);
CREATE TABLE digests (first INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE earlier (id TEXT PRIMARY KEY, digest BLOB) WITHOUT ROWID;
"""
_INSERT = "INSERT INTO items VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_DONE = (
    "UPDATE items SET state=2, attempts=?, losses=?, row_place=?, row_length=?, score=?, micros=?, "
    "reason=NULL, message=NULL WHERE number=?"
)
_OPEN = (
    "UPDATE items SET state=?, attempts=?, losses=?, reason=?, message=?, row_place=?, row_length=?, "
    "grp=coalesce(?,grp) WHERE number=?"
)
MAX_MESSAGE = 500
"""Maximum length of a stored message in characters."""


@dataclass(slots=True)
class DeadLetter:
    """Item that was given up, with the reason.

    ``place`` and ``length``: of its error row in the journal; 0 if it keeps no output.
    """

    number: int
    id: str | int
    group: str
    attempts: int
    losses: int
    reason: str
    message: str
    place: int = 0
    length: int = 0


@dataclass(slots=True)
class PendingWrites:
    """Changes that wait for the next transaction."""

    items: list[ItemChange] = field(default_factory=list)
    leases: list[tuple[str, str, str, int, bytes]] = field(default_factory=list)
    ended: list[tuple[str]] = field(default_factory=list)

    def add(self, effects: LedgerEffects) -> None:
        """Append effects. Leases are copied as they are now."""
        self.items += effects.items
        for one in effects.leases:
            numbers = array("i", one.items).tobytes()
            self.leases.append((one.id, one.worker, one.instance, one.group, numbers))
        self.ended += [(name,) for name in effects.ended]

    def rows(self) -> list[bytes]:
        """Return the new outputs, in the order in which :meth:`LedgerFile.store` takes places."""
        return [change.row for change in self.items if change.has_row]

    def __bool__(self) -> bool:
        return bool(self.items or self.leases or self.ended)


@dataclass(slots=True)
class Stored:
    """Everything that a driver needs to continue a batch."""

    table: ItemTable
    groups: list[ItemGroup]
    leases: list[ItemLease]
    scores: list[float]
    seconds: list[float]


class LedgerFile:
    """Open ledger. ``create``: make a new file, which is durable only after :meth:`seal`."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if create:
            for suffix in ("", "-wal", "-journal"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        if create:
            self._connection.execute("PRAGMA journal_mode=OFF")
            self._connection.execute("PRAGMA synchronous=OFF")
            self._connection.executescript(_SCHEMA)
            self._connection.execute("BEGIN")
        else:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")

    # BatchAdmission

    def add_items(self, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(_INSERT, rows)

    def add_groups(self, groups: Iterable[ItemGroup]) -> None:
        rows = ((g.number, g.name, g.weight, g.priority, g.parallelism, g.deadline, g.model) for g in groups)
        self._connection.executemany("INSERT INTO groups VALUES (?,?,?,?,?,?,?)", rows)

    def add_extras(self, places: Iterable[tuple[int, int]]) -> None:
        self._connection.executemany("INSERT INTO extras VALUES (?,?)", places)

    def add_digests(self, digests: bytes) -> None:
        """Store the digests of all items, one behind the other."""
        size = _DIGESTED * DIGEST_BYTES
        rows = ((first, digests[first : first + size]) for first in range(0, len(digests), size))
        self._connection.executemany("INSERT INTO digests VALUES (?,?)", rows)

    def add_earlier(self, digests: Iterable[tuple[str, bytes]]) -> None:
        """Store id and digest of outputs of an earlier job that are of no row as it is now."""
        self._connection.executemany("INSERT INTO earlier VALUES (?,?)", digests)

    def seal(self, target: Path) -> None:
        """End the admission: make the file durable and give it its name."""
        self._connection.execute("COMMIT")
        self._connection.close()
        descriptor = os.open(self.path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        for suffix in ("-wal", "-journal"):
            Path(f"{target}{suffix}").unlink(missing_ok=True)
        os.replace(self.path, target)

    # Reading

    def meta(self, key: str) -> str:
        found = self._connection.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        return "" if found is None else str(found[0])

    def set_meta(self, **values: object) -> None:
        rows = [(key, str(value)) for key, value in values.items()]
        self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", rows)

    def load(self) -> Stored:
        """Read the whole ledger."""
        table, scores, seconds = ItemTable(), [], []
        query = "SELECT grp,length,sort,state,attempts,losses,score,micros FROM items ORDER BY number"
        place = 0  # rows are in the order of the items, each with the end of its line
        for group, length, sort, state, attempts, losses, score, took in self._connection.execute(query):
            table.add(group, place, length, sort, state, attempts, losses)
            place += length + 1 if length else 0
            if state == ItemState.DONE:
                if score is not None:
                    scores.append(score)
                if took is not None:
                    seconds.append(took / 1e6)
        groups = [ItemGroup(*row) for row in self._connection.execute("SELECT * FROM groups ORDER BY number")]
        leases = []
        for name, worker, instance, group, blob in self._connection.execute("SELECT * FROM leases"):
            numbers = dict.fromkeys(array("i", blob))
            leases.append(ItemLease(name, worker, instance, group, numbers, 0.0, 0.0, len(numbers)))
        return Stored(table, groups, leases, scores, seconds)

    def dead_letters(self, limit: int = -1) -> Iterator[DeadLetter]:
        """Return the items that were given up, in the order of the input."""
        query = (
            "SELECT i.number,id,name,attempts,losses,reason,message,coalesce(row_place,0),"
            "coalesce(row_length,0) FROM items i "
            "JOIN groups g ON g.number=i.grp WHERE state=3 ORDER BY i.number LIMIT ?"
        )
        for row in self._connection.execute(query, (limit,)):
            yield DeadLetter(*row)

    def given_up(self) -> Iterator[tuple[int, int, int, str, str]]:
        """Return number, attempts, losses, reason and message of the items that were given up."""
        yield from self._connection.execute(
            "SELECT number,attempts,losses,reason,message FROM items WHERE state=3 ORDER BY number"
        )

    def reasons(self) -> dict[str, int]:
        """Return the number of dead letters by reason."""
        query = "SELECT reason, count(*) FROM items WHERE state=3 GROUP BY reason ORDER BY 2 DESC"
        return dict(self._connection.execute(query).fetchall())

    def ids(self) -> Iterator[tuple[int, str | int]]:
        yield from self._connection.execute("SELECT number,id FROM items")

    def numbers_of(self, ids: Sequence[str]) -> list[int]:
        """Return the numbers of items by id. Unknown ids are left out."""
        wanted = set(ids)
        return [number for number, name in self.ids() if str(name) in wanted]

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Return number, state, place and length of the row of each item, in the order of the input."""
        yield from self._connection.execute(
            "SELECT number,state,coalesce(row_place,0),coalesce(row_length,0) FROM items ORDER BY number"
        )

    def admitted(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Return number, group, length, order and state of each item as it was admitted."""
        yield from self._connection.execute("SELECT number,grp,length,sort,state FROM items ORDER BY number")

    def known_digests(self) -> Iterator[tuple[str, bytes]]:
        """Return id and digest of the rows from which outputs were made; the last one of an id counts.

        An item without an output may still have one of its earlier content in the files.
        Raises ``sqlite3.OperationalError`` for a ledger of version 1.
        """
        run = self._connection.execute
        earlier = dict(run("SELECT id,digest FROM earlier"))
        yield from earlier.items()
        items = run("SELECT id,state FROM items ORDER BY number")
        for (data,) in run("SELECT data FROM digests ORDER BY first"):
            for digest, (name, state) in zip(unpack(data), items, strict=False):
                text = str(name)
                if digest != NO_DIGEST and (state == ItemState.DONE or text not in earlier):
                    yield text, digest

    def extras(self) -> Iterator[tuple[int, int]]:
        """Return places of rows that an earlier job left and that are not in this input."""
        yield from self._connection.execute("SELECT place,length FROM extras ORDER BY place")

    # Writing

    def store(self, writes: PendingWrites, places: Sequence[int], journal_end: int) -> None:
        """Store changes in one transaction. ``places``: places of their rows in the journal."""
        done, opened = [], []
        place = iter(places)
        for change in writes.items:
            where, size = (next(place), len(change.row)) if change.has_row else (None, None)
            if change.state == ItemState.DONE:
                score = None if math.isnan(change.score) else change.score
                micros = round(min(change.seconds, 1e9) * 1e6)
                done.append((change.attempts, change.losses, where, size, score, micros, change.number))
            else:
                message = change.message[:MAX_MESSAGE]
                values = (int(change.state), change.attempts, change.losses, change.reason, message)
                opened.append((*values, where, size, change.group, change.number))
        run = self._connection
        run.execute("BEGIN")
        try:
            # In this order, since an item that is done stays done.
            run.executemany(_OPEN, opened)
            run.executemany(_DONE, done)
            run.executemany("INSERT OR REPLACE INTO leases VALUES (?,?,?,?,?)", writes.leases)
            run.executemany("DELETE FROM leases WHERE id=?", writes.ended)
            self.set_meta(journal_end=journal_end)
            run.execute("COMMIT")
        except BaseException:
            if run.in_transaction:
                run.execute("ROLLBACK")
            raise

    def compact(self) -> None:
        """Close the gaps that updates left in the file, unless the disk has no room for a copy."""
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("VACUUM")

    def close(self) -> None:
        self._connection.close()

"""Tables, and migrations of older databases.

Per family ``F`` (:mod:`windlass.store.families`), ``objects_F`` is the current state
and ``log_F`` the watch log. ``objects.id`` is the resourceVersion at creation: unique
forever and ascending. So new rows are appended. The map from name to id is in memory,
which saves a second index. Each migration is one transaction, and ``PRAGMA
user_version`` counts them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

_FAMILY_TABLES = """
CREATE TABLE objects_{family}(
  id INTEGER PRIMARY KEY,
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
  rv INTEGER NOT NULL, written_at REAL NOT NULL, data BLOB NOT NULL);
CREATE TABLE log_{family}(
  rv INTEGER PRIMARY KEY,
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
  op INTEGER NOT NULL, id INTEGER NOT NULL, previous INTEGER NOT NULL, reindexed INTEGER NOT NULL,
  data BLOB NOT NULL);
"""

_FAMILIES = ("main", "events", "leases")
_STEP_1 = "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;" + "".join(
    _FAMILY_TABLES.format(family=family) for family in _FAMILIES
)

# Of this connection only: not part of the file, so free to differ between releases.
_WRITING = (
    """
CREATE TEMP VIEW changes_{family} AS SELECT
  0 AS rv, '' AS resource, '' AS namespace, '' AS name, 0 AS op, 0 AS id, 0 AS previous,
  0 AS reindexed, x'' AS data, 0.0 AS written_at
""",
    """
CREATE TEMP TRIGGER put_{family} INSTEAD OF INSERT ON changes_{family} WHEN NEW.op < 2 BEGIN
  INSERT INTO log_{family} VALUES(NEW.rv, NEW.resource, NEW.namespace, NEW.name, NEW.op, NEW.id,
    NEW.previous, NEW.reindexed, NEW.data);
  INSERT INTO objects_{family}(id, resource, namespace, name, rv, written_at, data)
    VALUES(NEW.id, NEW.resource, NEW.namespace, NEW.name, NEW.rv, NEW.written_at, NEW.data)
    ON CONFLICT(id) DO UPDATE SET rv=excluded.rv, written_at=excluded.written_at, data=excluded.data;
END
""",
    """
CREATE TEMP TRIGGER remove_{family} INSTEAD OF INSERT ON changes_{family} WHEN NEW.op = 2 BEGIN
  INSERT INTO log_{family} VALUES(NEW.rv, NEW.resource, NEW.namespace, NEW.name, NEW.op, NEW.id,
    NEW.previous, NEW.reindexed, NEW.data);
  DELETE FROM objects_{family} WHERE id = NEW.id;
END
""",
)

STEPS: tuple[str, ...] = (_STEP_1,)
"""Each entry raises the schema by one. Entries are only ever appended."""


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> int:
    """Apply missing migrations. Return the schema version before.

    A failed migration leaves no trace. The connection must be in autocommit mode.
    Raises ``sqlite3.Error``.
    """
    found = version(connection)
    for number in range(found, len(steps)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in filter(None, map(str.strip, steps[number].split(";"))):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return found


def prepare_writing(connection: sqlite3.Connection) -> None:
    """Create a temporary view ``changes_F`` per family.

    A row inserted into it goes to the log and into or out of the objects (``op`` 2 is a
    deletion). Raises ``sqlite3.Error``.
    """
    for family in _FAMILIES:
        for statement in _WRITING:
            connection.execute(statement.format(family=family))

"""What a write or a read of the store can be refused for, and what is told when the store cannot work.

The first kind are plain exceptions that the server turns into Status answers; the second kind are
:class:`WindlassError` with a stable code and a remedy, made for a person.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from windlass.api.errors import WindlassError

DAMAGED = "WL-STORE-510"
LOCKED = "WL-STORE-409"
FULL = "WL-STORE-507"
READ_ONLY = "WL-STORE-403"
NETWORK = "WL-STORE-422"
NEWER = "WL-STORE-505"
FAILED = "WL-STORE-500"


class StoreError(Exception):
    """A write or read that cannot be done on the present state. Nothing was changed."""


class Exists(StoreError):
    """Create: an object of that name is there."""


class Missing(StoreError):
    """Update or delete: no object of that name is there."""


class Conflict(StoreError):
    """The object is not at the expected resourceVersion (any more)."""


class Expired(StoreError):
    """The history since that resourceVersion is compacted away."""

    def __init__(self, rv: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {rv} ({oldest})")
        self.rv = rv
        self.oldest = oldest


class TooSlow(StoreError):
    """A watcher fell further behind than its budget; it has to come back at its last resourceVersion."""


class Unindexable(StoreError):
    """A label or selectable field has the wrong JSON type; such an object must be refused before."""


def damaged(path: Path, evidence: str) -> WindlassError:
    return WindlassError(
        DAMAGED, f"the database {path} is damaged", evidence=evidence, remedies=_when_lost(path)
    )


def lost(path: Path, state: str) -> WindlassError:
    """``state``: ``missing`` or ``empty``."""
    return WindlassError(
        DAMAGED,
        f"the database {path} is {state}",
        evidence=f"it was made here before, as {path}.made says; all its objects would be gone without a word",
        remedies=_when_lost(path),
    )


def _when_lost(path: Path) -> tuple[str, str]:
    return (
        f"restore {path} from a backup",
        f"start with an empty one: windlass down; mv {path.parent} {path.parent}.damaged; windlass up",
    )


def locked(path: Path) -> WindlassError:
    return WindlassError(
        LOCKED,
        f"the database {path} is in use by another process",
        evidence=f"{path}.lock is held",
        remedies=("windlass status", "windlass down"),
    )


def busy(path: Path, evidence: str) -> WindlassError:
    """Another program (a backup, a shell on the file) holds SQLite's own lock."""
    return WindlassError(
        LOCKED,
        f"the database {path} is locked by another program",
        evidence=f"{evidence}; Windlass waited for it",
        remedies=(f"fuser -v {path}", "end what works on the file, then: windlass up"),
    )


def network_filesystem(path: Path, kind: str) -> WindlassError:
    return WindlassError(
        NETWORK,
        f"the database {path} would lie on a network file system ({kind})",
        evidence="SQLite's write-ahead log needs shared memory and locks that network file systems lack",
        remedies=("windlass up --state /var/tmp/windlass", "export WINDLASS_STATE=/var/tmp/windlass"),
    )


def newer_schema(path: Path, found: int, known: int) -> WindlassError:
    return WindlassError(
        NEWER,
        f"the database {path} was written by a newer Windlass",
        evidence=f"schema {found}, this version knows up to {known}",
        remedies=("pip install --upgrade windlass",),
    )


def from_os(path: Path, error: OSError) -> WindlassError:
    """A folder or file that cannot be used."""
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return _read_only(path, error.strerror or str(error))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(path, error.strerror or str(error))
    return WindlassError(
        FAILED,
        f"cannot use the database {path}",
        evidence=str(error),
        remedies=(f"ls -l {path.parent}", "windlass doctor"),
    )


def from_sqlite(path: Path, error: sqlite3.Error) -> WindlassError:
    """SQLite's error in words, with what to do about it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    evidence = f"{name}: {error}"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, evidence)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return busy(path, evidence)
    if code == sqlite3.SQLITE_FULL:
        return _full(path, evidence)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return _read_only(path, evidence)
    return WindlassError(
        FAILED,
        f"the database {path} cannot be written",
        evidence=evidence,
        remedies=(f"df -h {path.parent}", "look for disk errors: dmesg | tail"),
    )


def _full(path: Path, evidence: str) -> WindlassError:
    try:
        found = os.statvfs(path.parent)
        evidence += f"; {found.f_bavail * found.f_frsize // 2**20} MiB free in {path.parent}"
    except OSError:
        pass  # the folder itself is gone: the first evidence stands
    return WindlassError(
        FULL,
        f"no room left for the database {path}",
        evidence=evidence,
        remedies=(f"df -h {path.parent}", "free some space, then: windlass up"),
    )


def _read_only(path: Path, evidence: str) -> WindlassError:
    return WindlassError(
        READ_ONLY,
        f"the database {path} cannot be written",
        evidence=evidence,
        remedies=(
            f"ls -ld {path.parent}",
            "choose another folder: windlass up --state DIR",
        ),
    )

"""Errors of the store: rejected reads and writes, and failures of the store itself.

Rejections are plain exceptions, which the server turns into Status responses. Failures
are :class:`WindlassError` with a stable code and a remedy for the user.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.kits.installation import upgrade_command

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
    """A watcher fell behind by more than its budget. It must resume at its last resourceVersion."""


class Unindexable(StoreError):
    """A label or selectable field has the wrong JSON type. Validation should reject it earlier."""


def damaged(path: Path, evidence: str) -> WindlassError:
    return WindlassError(
        DAMAGED, f"the database {path} is damaged", evidence=evidence, remedies=_when_lost(path)
    )


def lost(path: Path, state: str) -> WindlassError:
    """``state``: ``missing`` or ``empty``."""
    return WindlassError(
        DAMAGED,
        f"the database {path} is {state}",
        evidence=f"it existed before ({path}.made is present); starting without it would lose all objects",
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
        remedies=(f"fuser -v {path}", "stop the process that uses the file, then: windlass up"),
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
        remedies=(upgrade_command(),),
    )


def from_os(path: Path, error: OSError) -> WindlassError:
    """Return the error for an unusable directory or file."""
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
    """Return the error for an SQLite error, with its remedy."""
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
        remedies=(f"df -h {path.parent}", "check for disk errors: dmesg | tail"),
    )


def _full(path: Path, evidence: str) -> WindlassError:
    try:
        found = os.statvfs(path.parent)
        evidence += f"; {found.f_bavail * found.f_frsize // 2**20} MiB free in {path.parent}"
    except OSError:
        pass  # the directory is gone: the first evidence is enough
    return WindlassError(
        FULL,
        f"no space left for the database {path}",
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
            "choose another directory: windlass up --state DIR",
        ),
    )

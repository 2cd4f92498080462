"""Folding SQLite's write-ahead log into the database file: on a thread of its own, beside the writer.

A checkpoint copies pages and waits for the disk twice, some ten milliseconds a thousand pages; the
writer would stand still meanwhile, and with it everybody whose write waits for its commit. SQLite lets
one connection write while another one checkpoints (``PASSIVE`` waits for nobody and makes nobody wait).

Invariants: the durability of commits does not depend on it (they are in the log, which is synced); an
error is not lost: the next commit raises it.
"""

from __future__ import annotations

import queue
import sqlite3
import threading

_PAGES_AT_ONCE = 1_000
_LONG_LOG_PAGES = 16_000


class Checkpointer:
    """``written`` belongs to the writer's thread. The connection is used by the thread made here, and
    closed by :meth:`close`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._pages = 0
        self._log_pages = 0
        self._working = False
        self._failure: sqlite3.Error | None = None
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="windlass-checkpoint", daemon=True)
        self._thread.start()

    def raise_failure(self) -> None:
        """Raises the ``sqlite3.Error`` that ended checkpointing, if there was one."""
        if self._failure is not None:
            raise self._failure

    def written(self, pages: int, writer: sqlite3.Connection) -> None:
        """About so many pages went to the log. ``writer`` is the connection that wrote them.

        The log starts again from its beginning when all of it is in the database at the moment of a
        write. While writes pour in that moment does not come by itself; so once the log has become
        long, the writer folds in the few pages that are left. Raises ``sqlite3.Error``.
        """
        self._pages += pages
        if self._pages < _PAGES_AT_ONCE or self._working:
            return
        self._pages = 0
        if self._log_pages >= _LONG_LOG_PAGES:
            pages, folded = _checkpoint(writer)
            self._log_pages = 0 if folded == pages else pages
            return
        self._working = True
        self._asked.put(True)

    def close(self) -> None:
        """End the thread, and the connection."""
        self._asked.put(False)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while self._asked.get():
            try:
                self._log_pages, _ = _checkpoint(self._connection)
            except sqlite3.Error as error:
                self._failure = error
                return
            self._working = False


def _checkpoint(connection: sqlite3.Connection) -> tuple[int, int]:
    """Fold in what can be; returns the pages that the log had at the beginning, and how many of them are in
    the database now."""
    _, pages, folded = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages), int(folded)

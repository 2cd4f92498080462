"""Checkpoints of SQLite's write-ahead log, on a thread of their own.

A checkpoint copies pages and syncs the disk twice: about ten milliseconds per thousand
pages. In the writer thread it would delay every write that waits for its commit. SQLite
lets one connection write while another one checkpoints: ``PASSIVE`` neither waits nor
blocks.

Invariants: commits are durable without it, since the log is synced. An error is not
lost: the next commit raises it.
"""

from __future__ import annotations

import queue
import sqlite3
import threading

_PAGES_AT_ONCE = 1_000
_LONG_LOG_PAGES = 16_000


class Checkpointer:
    """Checkpointer of one database.

    :meth:`written` is called by the writer's thread. The connection is used by the
    thread that this class starts, and closed by :meth:`close`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._pages = 0
        self._log_pages = 0
        self._working = False
        self._failure: sqlite3.Error | None = None
        self._requested: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="windlass-checkpoint", daemon=True)
        self._thread.start()

    def raise_failure(self) -> None:
        """Raise the ``sqlite3.Error`` that ended checkpointing, if any."""
        if self._failure is not None:
            raise self._failure

    def written(self, pages: int, writer: sqlite3.Connection) -> None:
        """Count pages written to the log. ``writer``: connection that wrote them.

        SQLite restarts the log from its beginning if all of it is in the database at
        the time of a write. Under load this never happens by itself. So once the log is
        long, the writer checkpoints the few remaining pages. Raises ``sqlite3.Error``.
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
        self._requested.put(True)

    def close(self) -> None:
        """End the thread, and the connection."""
        self._requested.put(False)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while self._requested.get():
            try:
                self._log_pages, _ = _checkpoint(self._connection)
            except sqlite3.Error as error:
                self._failure = error
                return
            self._working = False


def _checkpoint(connection: sqlite3.Connection) -> tuple[int, int]:
    """Checkpoint what is possible.

    Return the number of pages in the log at the beginning, and how many are in the
    database now.
    """
    _, pages, folded = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages), int(folded)

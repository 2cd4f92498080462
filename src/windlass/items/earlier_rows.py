"""Rows that earlier jobs have left at the place of the outputs, and which of them are kept."""

from __future__ import annotations

import mmap
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from windlass.items.ledger.database import LedgerFile
from windlass.items.ledger.journal import RowJournal
from windlass.items.outputs import existing_rows
from windlass.items.overlap import earlier_files
from windlass.items.places import Places, state_of
from windlass.items.spec import BatchSpec
from windlass.kits.files import FileLock

ELSEWHERE = -1
"""Place of a row that stays in another file of the folder of the outputs."""
_COPY_BYTES = 8 * 2**20
"""Size in bytes of the rows that are copied at once."""
Found = tuple[int, int, float | None, bytes | None]
"""Place, length and score of an output row, and the digest of its input row if that is known."""


class EarlierRows:
    """Output rows of earlier jobs by id, and the new journal with those that are kept.

    All of them are collected in a file of their own first: only the input tells which are kept.
    So the new journal has no output of a row that has changed since.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._scratch = places.journal.with_suffix(".found")
        self._fresh = places.journal.with_suffix(".new")
        for path in (self._scratch, self._fresh):
            path.unlink(missing_ok=True)
        self._found = RowJournal(self._scratch)
        self._journal = RowJournal(self._fresh)
        self._view: mmap.mmap | bytes = b""
        self._rows: dict[str, Found] = {}
        self._outdated: dict[str, bytes] = {}
        self._waiting: list[bytes] = []
        self._size = 0

    def collect(self, batch: BatchSpec, environment: Mapping[str, str]) -> None:
        """Find the good rows that are there. Raises ``OSError``.

        The journal of a job that did not end goes first: its rows are newer than the outputs.
        """
        places = self._places
        digests = known_digests(places.ledger)
        for path in (places.journal, places.output, places.branch):
            rows: list[tuple[str, bytes, float | None]] = []
            size = 0
            for found in existing_rows(path):
                if found[0] in self._rows:
                    continue
                self._rows[found[0]] = (0, 0, None, None)
                rows.append(found)
                size += len(found[1])
                if size > _COPY_BYTES:
                    self._collect(rows, digests)
                    rows, size = [], 0
            self._collect(rows, digests)
        self._view = self._found.view()
        for path in earlier_files(batch, places, environment):
            others = _digests_of_other(path)
            for name, _, score in existing_rows(path):
                if name not in self._rows:
                    self._rows[name] = (ELSEWHERE, 0, score, others.get(name) or digests.get(name))

    def _collect(self, rows: list[tuple[str, bytes, float | None]], digests: dict[str, bytes]) -> None:
        offsets = self._found.append([row for _, row, _ in rows], durable=False)
        for (name, row, score), offset in zip(rows, offsets, strict=True):
            self._rows[name] = (offset, len(row), score, digests.pop(name, None))

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def has_changed(self, name: str, digest: bytes) -> bool:
        """Return whether an output is known to be of another content. ``digest``: that of the row now."""
        known = self._rows[name][3]
        return known is not None and known != digest

    def take(self, name: str) -> tuple[int, int, float | None]:
        """Keep an output. Return its place in the new journal, its length and score."""
        place, length, score, _ = self._rows.pop(name)
        if place == ELSEWHERE:
            return ELSEWHERE, 0, score
        return self._copy(self._view[place : place + length]), length, score

    def drop(self, name: str) -> None:
        """Leave out the output of a row that has changed. Its digest is kept: its file may stay for long."""
        digest = self._rows.pop(name)[3]
        if digest is not None:
            self._outdated[name] = digest

    def rest(self) -> Iterator[tuple[int, int]]:
        """Keep the outputs that the input has no row for. Return place and length of each."""
        for place, length, _, _ in self._rows.values():
            if place != ELSEWHERE:
                yield self._copy(self._view[place : place + length]), length

    def digests(self) -> Iterator[tuple[str, bytes]]:
        """Return id and digest of known outputs that belong to no row of the input as it is now."""
        yield from self._outdated.items()
        for name, (_, _, _, digest) in self._rows.items():
            if digest is not None:
                yield name, digest

    @property
    def end(self) -> int:
        """Return the size of the new journal in bytes."""
        return self._journal.end + self._size

    def _copy(self, row: bytes) -> int:
        place = self.end
        self._waiting.append(row)
        self._size += len(row) + 1
        if self._size > _COPY_BYTES:
            self._flush()
        return place

    def _flush(self) -> None:
        self._journal.append(self._waiting, durable=False)
        self._waiting, self._size = [], 0

    def seal(self) -> None:
        """Make the new journal durable and let it replace the earlier one. Raises ``OSError``."""
        self._flush()
        self._journal.sync()
        self._fresh.replace(self._places.journal)

    def close(self) -> None:
        self._journal.close()
        self._found.close()
        self._scratch.unlink(missing_ok=True)


def known_digests(path: Path) -> dict[str, bytes]:
    """Return the digests of the rows from which outputs were made, by id.

    ``path``: ledger of an earlier job. Nothing is known without it, if it cannot be read, or if
    an earlier version of Windlass wrote it.
    """
    if not path.exists():
        return {}
    try:
        ledger = LedgerFile(path)
        try:
            return dict(ledger.known_digests())
        finally:
            ledger.close()
    except (sqlite3.DatabaseError, OSError):
        return {}


def _digests_of_other(output: Path) -> dict[str, bytes]:
    """Return the digests of the rows of another output file; none while its job runs."""
    state = state_of(output)
    if not (state / "ledger.sqlite").exists():
        return {}
    lock = FileLock(state / "lock")
    try:
        return known_digests(state / "ledger.sqlite") if lock.acquire() else {}
    except OSError:
        return {}
    finally:
        lock.release()

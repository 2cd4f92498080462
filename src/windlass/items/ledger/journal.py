"""Output rows of a running batch: one file that is only appended to.

A row counts once the ledger has stored its place. What lies behind the end that the ledger
knows is cut off when the driver starts.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path


class RowJournal:
    """File of JSON lines. ``end``: size in bytes of all that was appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.end = os.fstat(self._descriptor).st_size

    def cut(self, end: int) -> None:
        """Remove everything behind ``end``."""
        os.ftruncate(self._descriptor, end)
        self.end = end

    def append(self, rows: Sequence[bytes], *, durable: bool = True) -> list[int]:
        """Append rows and return their offsets. Raises ``OSError``; then nothing was appended."""
        offsets, position = [], self.end
        for row in rows:
            offsets.append(position)
            position += len(row) + 1
        data = memoryview(b"".join([part for row in rows for part in (row, b"\n")]))
        try:
            written = self.end
            while data:
                count = os.pwrite(self._descriptor, data, written)
                data, written = data[count:], written + count
            if durable:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self.end)
            raise
        self.end = position
        return offsets

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def view(self) -> mmap.mmap | bytes:
        """Return the content, mapped into memory."""
        return mmap.mmap(self._descriptor, self.end, prot=mmap.PROT_READ) if self.end else b""

    def close(self) -> None:
        os.close(self._descriptor)


class RowSpool:
    """Input rows of a batch, by place."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def close(self) -> None:
        os.close(self._descriptor)

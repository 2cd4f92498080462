"""Writer of container logs in the format of the kubelet's runtimes, with rotation.

Each record is one line: ``<time, nine digits> <stdout|stderr> <P|F> <text>``. ``P`` means that the
line continues in the next record of the same stream. A full file is renamed to ``<name>.1``, older
ones to ``.2`` and so on. ``<name>.dropped`` counts the removed bytes.

The imports are few because the shim uses this module.
:mod:`windlass.node.runtime.log_reader` reads the logs.
"""

from __future__ import annotations

import contextlib
import os

from windlass.kits import monotonic

CHUNK = 16 * 1024
"""Maximum length of a record in bytes (as in the runtimes). Longer lines are split."""
DROPPED = ".dropped"
"""Suffix of the file that has the number of bytes removed by rotation."""


class LogFile:
    """Appends records. A full disk raises nothing: lost bytes are counted and reported later."""

    def __init__(self, path: str, *, max_bytes: int, max_files: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.max_files = max(1, max_files)
        self.lost_bytes = 0
        self._unreported = 0
        self._dropped = 0
        self._descriptor = -1
        self._size = 0
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, records: bytes) -> None:
        """Write ``records``, which are whole lines."""
        report = b""
        if self._unreported:
            report = record("stderr", True, f"[windlass: {self._unreported} bytes of log were lost]".encode())
        if self._size and self._size + len(report) + len(records) > self.max_bytes:
            self._rotate()
        start = self._size
        try:
            view = memoryview(report + records)
            while view:
                count = os.write(self._descriptor, view)
                self._size += count
                view = view[count:]
            self._unreported = 0
        except OSError:
            self.lost_bytes += len(records)
            self._unreported += len(records)
            self._truncate(start)

    def report_losses(self) -> None:
        """Report lost bytes if there is space again. Without it only the next write would."""
        if self._unreported:
            self.write(b"")

    def _truncate(self, size: int) -> None:
        """Remove an incomplete record, so that the file stays readable."""
        try:
            os.ftruncate(self._descriptor, size)
            self._size = size
        except OSError:
            self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        try:
            if self.max_files == 1:
                self._drop(self._size)
                os.ftruncate(self._descriptor, 0)
                self._size = 0
                return
            oldest = f"{self.path}.{self.max_files - 1}"
            if os.path.exists(oldest):
                self._drop(os.stat(oldest).st_size)
            for number in range(self.max_files - 2, 0, -1):
                older = f"{self.path}.{number}"
                if os.path.exists(older):
                    os.rename(older, f"{self.path}.{number + 1}")
            os.rename(self.path, f"{self.path}.1")
            previous = self._descriptor
            self._open()
            os.close(previous)
        except OSError:
            self._size = 0  # could not rotate now: try again after another max_bytes

    def _drop(self, count: int) -> None:
        self._dropped += count
        with contextlib.suppress(OSError), open(self.path + DROPPED, "w", encoding="ascii") as stream:
            stream.write(str(self._dropped))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def record(stream: str, full: bool, text: bytes, at_ns: int | None = None) -> bytes:
    """Return one line of the file. ``text`` has no newline."""
    stamp = monotonic.rfc3339_nano(monotonic.now_ns() if at_ns is None else at_ns)
    return b"%s %s %s %s\n" % (stamp.encode(), stream.encode(), b"F" if full else b"P", text)


class RecordEncoder:
    """Splits the bytes of one stream into records. An unfinished line waits for :meth:`flush`."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._rest = b""

    @property
    def has_partial_line(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes) -> bytes:
        """Return the records that ``data`` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        now = monotonic.now_ns()
        out = []
        for line in lines:
            while len(line) > CHUNK:
                out.append(record(self.stream, False, line[:CHUNK], now))
                line = line[CHUNK:]
            out.append(record(self.stream, True, line, now))
        while len(self._rest) >= CHUNK:
            out.append(record(self.stream, False, self._rest[:CHUNK], now))
            self._rest = self._rest[CHUNK:]
        return b"".join(out)

    def flush(self) -> bytes:
        """Return the unfinished line as a partial record, so that a prompt or progress bar is visible."""
        if not self._rest:
            return b""
        text, self._rest = self._rest, b""
        return record(self.stream, False, text)

    def finish(self) -> bytes:
        """Return the last line without a newline as a partial record, so that readers add none."""
        return self.flush()

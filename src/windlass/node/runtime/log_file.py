"""Container logs as the kubelet's runtimes write them, with rotation.

One line per record: ``<time, nine digits> <stdout|stderr> <P|F> <text>``. ``P`` says that the line goes
on in the next record of the same stream. A full file moves to ``<name>.1`` (older ones to ``.2`` …); what is removed
then is counted in ``<name>.dropped``.
Imports stay few: the shim writes with this module. :mod:`windlass.node.runtime.log_reader` reads.
"""

from __future__ import annotations

import contextlib
import os

from windlass.kits import monotonic

CHUNK = 16 * 1024
"""Longest text of one record; longer lines are split (the runtimes' own limit)."""
DROPPED = ".dropped"
"""Behind the name of a log: how many bytes of its beginning rotation has removed, as a number."""


class LogFile:
    """Appends records; never raises for a full disk: what could not be written is counted and told later."""

    def __init__(self, path: str, *, max_bytes: int, max_files: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.max_files = max(1, max_files)
        self.lost_bytes = 0
        self._untold = 0
        self._dropped = 0
        self._descriptor = -1
        self._size = 0
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, records: bytes) -> None:
        """``records`` is whole lines."""
        told = b""
        if self._untold:
            told = record("stderr", True, f"[windlass: {self._untold} bytes of log were lost]".encode())
        if self._size and self._size + len(told) + len(records) > self.max_bytes:
            self._rotate()
        start = self._size
        try:
            view = memoryview(told + records)
            while view:
                count = os.write(self._descriptor, view)
                self._size += count
                view = view[count:]
            self._untold = 0
        except OSError:
            self.lost_bytes += len(records)
            self._untold += len(records)
            self._cut(start)

    def tell(self) -> None:
        """Say what was lost, if anything was and there is room again: nothing may come after it that would."""
        if self._untold:
            self.write(b"")

    def _cut(self, size: int) -> None:
        """Remove half a record, so that the file stays readable."""
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
    """One line of the file. ``text`` holds no newline."""
    stamp = monotonic.rfc3339_nano(monotonic.now_ns() if at_ns is None else at_ns)
    return b"%s %s %s %s\n" % (stamp.encode(), stream.encode(), b"F" if full else b"P", text)


class LineCutter:
    """Turns the bytes of one stream into records. A line that is not finished waits for :meth:`flush`."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._rest = b""

    @property
    def waiting(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes) -> bytes:
        """The records that ``data`` completes, as bytes to append to the file."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        now = monotonic.now_ns()
        out = []
        for line in lines:
            while len(line) > CHUNK:
                out.append(record(self._stream, False, line[:CHUNK], now))
                line = line[CHUNK:]
            out.append(record(self._stream, True, line, now))
        while len(self._rest) >= CHUNK:
            out.append(record(self._stream, False, self._rest[:CHUNK], now))
            self._rest = self._rest[CHUNK:]
        return b"".join(out)

    def flush(self) -> bytes:
        """The unfinished line as a partial record, so that a prompt or a progress bar is seen while it stands."""
        if not self._rest:
            return b""
        text, self._rest = self._rest, b""
        return record(self._stream, False, text)

    def finish(self) -> bytes:
        """At the end of the stream: a last line without newline stays partial, so that readers add none."""
        return self.flush()

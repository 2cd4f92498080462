"""Reader of container logs: while the pod runs, after its end, and without an agent.

:class:`LogReader` implements the server's LogSource protocol. It needs only the agent's directory.
:mod:`windlass.node.runtime.log_file` defines format and rotation. Logs of deleted pods stay until
:func:`prune` removes them by age and total size.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from windlass.kits.clock import Clock
from windlass.node.paths import NodePaths
from windlass.node.runtime import attempt_files
from windlass.node.runtime.log_file import DROPPED, record

_BLOCK = 256 * 1024
_POLL_SECONDS = 0.05
_IDLE_POLL_SECONDS = 0.25
_IDLE_AFTER = 40
_GAP = b"[windlass: lines may be missing here: the log grew faster than it was read]"


class LogNotFound(Exception):
    """The log does not exist or no longer exists."""


class LogReaderOptions(Protocol):
    """``server.log_source.LogOptions``."""

    @property
    def container(self) -> str: ...
    @property
    def follow(self) -> bool: ...
    @property
    def previous(self) -> bool: ...
    @property
    def timestamps(self) -> bool: ...
    @property
    def tail_lines(self) -> int | None: ...
    @property
    def since(self) -> str: ...
    @property
    def stream(self) -> str: ...


class LogReader:
    """Reads container logs. ``missing``: type of the exception for a missing log, made from a text."""

    def __init__(self, directory: Path, *, clock: Clock, missing: type[Exception] = LogNotFound) -> None:
        self._paths = NodePaths(directory)
        self._clock = clock
        self._missing = missing

    def open(self, pod: Mapping[str, Any], options: LogReaderOptions) -> AsyncIterator[bytes]:
        """Yield chunks of log text, lines with newline. Raises ``missing`` before the first chunk."""
        return self._read(pod["metadata"], options)

    async def _read(self, metadata: Mapping[str, Any], options: LogReaderOptions) -> AsyncIterator[bytes]:
        number = self._attempt(metadata, options)
        path = self._paths.container_logs(metadata, options.container) / f"{number}.log"
        directory = self._paths.attempt(metadata["uid"], options.container, number)
        since = options.since
        decoder = LogDecoder(options.timestamps, since, options.stream)
        cursor = Cursor(path)
        try:
            if options.tail_lines is not None:
                cursor.to_tail(options.tail_lines)
            elif not since and (text := decoder.decode(cursor.missing())):
                yield text
            idle = 0
            while True:
                # Before reading, so that no line is lost.
                ended = not options.follow or not _is_running(directory)
                has_data = False
                for block in cursor.blocks():
                    has_data = True
                    if text := decoder.decode(block):
                        yield text
                if ended:
                    return
                idle = 0 if has_data else idle + 1
                await self._clock.sleep(_POLL_SECONDS if idle < _IDLE_AFTER else _IDLE_POLL_SECONDS)
        finally:
            cursor.close()

    def _attempt(self, metadata: Mapping[str, Any], options: LogReaderOptions) -> int:
        name, pod = options.container, metadata["name"]
        attempts = log_numbers(self._paths.container_logs(metadata, name))
        if options.previous:
            if len(attempts) < 2:
                raise self._missing(f'previous terminated container "{name}" in pod "{pod}" not found')
            return attempts[-2]
        if not attempts:
            raise self._missing(
                f'container "{name}" in pod "{pod}" has no log: it has not started, or its log is past its retention'
            )
        return attempts[-1]


def log_numbers(directory: Path) -> list[int]:
    """Return the attempts that have a log, ascending."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdecimal())


def _is_running(directory: Path) -> bool:
    path = str(directory)
    if (directory / attempt_files.EXIT).exists():
        return False
    claim = attempt_files.read(path, attempt_files.CLAIM)
    return directory.is_dir() if claim is None else attempt_files.is_running(claim)


class LogDecoder:
    """Decodes stored records to text.

    Records before ``since``, a time without zone, are skipped. ``stream``: ``stdout`` or ``stderr``, if
    only one of them is wanted.
    """

    def __init__(self, timestamps: bool, since: str = "", stream: str = "") -> None:
        self._timestamps = timestamps
        self._since = since.encode()
        self._stream = stream.encode()
        self._rest = b""
        self._at_start = True

    def decode(self, block: bytes) -> bytes:
        *lines, self._rest = (self._rest + block).split(b"\n")
        out: list[bytes] = []
        for line in lines:
            parts = line.split(b" ", 3)
            if len(parts) < 4 or (self._since and parts[0] < self._since):
                continue
            stamp, stream, tag, text = parts
            if self._stream and stream != self._stream:
                continue
            if self._timestamps and self._at_start:
                out += (stamp, b" ")
            out.append(text)
            self._at_start = tag == b"F"
            if self._at_start:
                out.append(b"\n")
        return b"".join(out)


class Cursor:
    """Position in a log and its rotated files. It follows the writer over rotations."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._successor = -1
        self._open_oldest()

    def _files(self) -> list[Path]:
        """Return the log files, oldest first."""
        prefix = f"{self._path.name}."
        try:
            names = os.listdir(self._path.parent)
        except FileNotFoundError:
            return []
        rotated = [
            int(n[len(prefix) :]) for n in names if n.startswith(prefix) and n[len(prefix) :].isdecimal()
        ]
        older = [self._path.with_name(f"{prefix}{number}") for number in sorted(rotated, reverse=True)]
        return [*older, self._path]

    def _open(self, path: Path) -> bool:
        descriptor = _opened(path)
        if descriptor is None:
            return False
        self.close()
        self._descriptor = descriptor
        return True

    def _open_oldest(self) -> None:
        for path in self._files():
            if self._open(path):
                return

    def missing(self) -> bytes:
        """Return a record with the number of bytes removed by rotation, or nothing."""
        try:
            count = int(self._path.with_name(self._path.name + DROPPED).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return b""
        text = f"[windlass: {count} earlier bytes of the log were removed]"
        return _note_before(self._descriptor, text.encode()) if self._descriptor >= 0 else b""

    def close(self) -> None:
        for descriptor in (self._descriptor, self._successor):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._successor = -1

    def blocks(self) -> Iterator[bytes]:
        """Yield the data written since the last call, over all files."""
        if self._descriptor < 0:
            self._open_oldest()
        while self._descriptor >= 0:
            gap = self._find_successor()  # before reading to the end: a rotated file grows no more
            while block := os.read(self._descriptor, _BLOCK):
                yield block
            if self._successor < 0:
                return
            os.close(self._descriptor)
            self._descriptor, self._successor = self._successor, -1
            if gap:
                yield _note_before(self._descriptor, _GAP)

    def _find_successor(self) -> bool:
        """Open the file after the current one, unless that is the newest.

        Return whether files between the two may be missing: then the writer has rotated more files than
        it retains. The file stays open, so that it is read however often the writer rotates.
        """
        own = os.fstat(self._descriptor).st_ino
        while self._successor < 0:
            files = self._numbered()
            inodes = [inode for _, inode in files]
            gap = own not in inodes
            after = 0 if gap else inodes.index(own) + 1
            if after == len(files):
                return False
            descriptor = _opened(files[after][0])
            if descriptor is not None and files == self._numbered():
                self._successor = descriptor
                return gap
            if descriptor is not None:
                os.close(descriptor)  # rotated meanwhile: the name may belong to another file
        return False

    def _numbered(self) -> list[tuple[Path, int]]:
        """Return the existing :meth:`_files` with their inodes."""
        numbered = []
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                numbered.append((path, path.stat().st_ino))
        return numbered

    def to_tail(self, lines: int) -> None:
        """Move to the start of the last ``lines`` whole lines (0: to the end)."""
        files = [path for path in self._files() if path.exists()]
        missing = lines
        for path in reversed(files):
            offset, found = tail_offset(path, missing)
            missing -= found
            if missing <= 0 or path == files[0]:
                if self._open(path):
                    os.lseek(self._descriptor, offset, os.SEEK_SET)
                return


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _note_before(descriptor: int, text: bytes) -> bytes:
    """Return a record with ``text`` and the time of the first record in the file."""
    stamp, _, rest = os.pread(descriptor, 64, 0).partition(b" ")
    return b"%s stderr F %s\n" % (stamp, text) if rest else record("stderr", True, text)


def tail_offset(path: Path, lines: int) -> tuple[int, int]:
    """Return the offset of the last ``lines`` whole lines, and their number, which may be smaller.

    A line of several partial records counts once, as does an unfinished last line.
    """
    with open(path, "rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        if lines <= 0:
            return end, 0
        position, rest, begins = end, b"", end
        found, open_line = 0, False
        while position > 0:
            step = min(_BLOCK, position)
            position -= step
            stream.seek(position)
            block = stream.read(step) + rest
            pieces = block.split(b"\n")
            rest = pieces[0]
            offset = position + len(block)
            for piece in reversed(pieces[1:]):
                offset -= len(piece) + 1
                # ``offset`` is the newline before this piece, after which the record begins.
                if piece:
                    found, open_line, done = _count(piece, found, open_line, lines)
                    if done:
                        return begins, found
                    begins = offset + 1
        if rest:
            found, open_line, done = _count(rest, found, open_line, lines)
            if done:
                return begins, found
            begins = 0
        return 0, found


def _count(record: bytes, found: int, open_line: bool, wanted: int) -> tuple[int, bool, bool]:
    """Count a record while reading backwards: a record with F ends an earlier line."""
    parts = record.split(b" ", 3)
    whole = len(parts) > 2 and parts[2] == b"F"
    if whole or not open_line:
        if found == wanted:
            return found, open_line, True
        return found + 1, True, False
    return found, True, False


def prune(
    directory: Path, live: Collection[str], *, now: float, max_age_seconds: float, max_total_bytes: int
) -> list[str]:
    """Remove logs of pods that are not ``live`` (uids). Return the names of the removed directories.

    Logs beyond the maximum age are removed first, then the oldest until the rest fits.
    """
    ended: list[tuple[float, int, Path]] = []
    total = 0
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return []
    for entry in entries:
        size, changed = _size_and_time(entry)
        total += size
        if entry.name.rpartition("_")[2] not in live:
            ended.append((changed, size, entry))
    removed = []
    for changed, size, entry in sorted(ended):
        if now - changed > max_age_seconds or total > max_total_bytes:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size
            removed.append(entry.name)
    return removed


def _size_and_time(directory: Path) -> tuple[int, float]:
    """Return the bytes below ``directory`` and the time of its latest change."""
    size, changed = 0, directory.stat().st_mtime
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                stat = os.stat(os.path.join(parent, name))
            except FileNotFoundError:
                continue
            size += stat.st_size
            changed = max(changed, stat.st_mtime)
    return size, changed


def last_text(directory: Path, number: int, *, lines: int = 80, limit: int = 2048) -> str:
    """Return the end of a log, for ``terminationMessagePolicy: FallbackToLogsOnError``."""
    path = directory / f"{number}.log"
    if not path.exists():
        return ""
    cursor = Cursor(path)
    try:
        cursor.to_tail(lines)
        decoder = LogDecoder(timestamps=False)
        text = b"".join(decoder.decode(block) for block in cursor.blocks())
    finally:
        cursor.close()
    return text[-limit:].decode(errors="replace")

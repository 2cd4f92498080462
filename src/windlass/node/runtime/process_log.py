"""Reader of the control plane's own logs, for the mirror pods of its processes.

:class:`ProcessLogReader` implements the server's LogSource protocol in front of another
source: it answers for mirror pods, the other source for all other pods.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from windlass.api.annotations import MIRROR, PROCESS
from windlass.kits.clock import Clock
from windlass.node.runtime.log_reader import LogReaderOptions

_BLOCK = 256 * 1024
_POLL_SECONDS = 0.25
_ROLES = ("server", "control", "node")
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z ")


class ContainerLogs(Protocol):
    """``server.log_source.LogSource``."""

    def open(self, pod: Mapping[str, Any], options: LogReaderOptions) -> AsyncIterator[bytes]: ...


class ProcessLogReader:
    """Source of logs of mirror pods, and of all others through ``containers``.

    ``log_of``: returns the log file of a process. ``missing``: type of the exception for
    a missing log, made from a text.
    """

    def __init__(
        self,
        containers: ContainerLogs,
        log_of: Callable[[str], Path],
        *,
        clock: Clock,
        missing: type[Exception],
    ) -> None:
        self._containers = containers
        self._log_of = log_of
        self._clock = clock
        self._missing = missing

    def open(self, pod: Mapping[str, Any], options: LogReaderOptions) -> AsyncIterator[bytes]:
        """Yield chunks of log text, lines with newline. Raises ``missing`` before the first chunk."""
        annotations = pod["metadata"].get("annotations") or {}
        process = annotations.get(PROCESS, "")
        if MIRROR not in annotations or process not in _ROLES:
            return self._containers.open(pod, options)
        return self._read(self._log_of(process), options)

    async def _read(self, path: Path, options: LogReaderOptions) -> AsyncIterator[bytes]:
        if options.previous:
            raise self._missing(
                f"the log of this process goes on over its restarts: read {path}, or leave out --previous"
            )
        if options.stream == "stdout":
            return  # both streams go to one file, which counts as standard error
        try:
            offset, data = 0, path.read_bytes()
        except OSError as error:
            raise self._missing(f"the log {path} cannot be read: {error.strerror}") from error
        decoder = _Decoder(options.timestamps, options.since)
        offset = len(data)
        lines = data.splitlines(keepends=True)
        if options.tail_lines is not None:
            lines = lines[len(lines) - options.tail_lines :] if options.tail_lines else []
        if text := decoder.decode(b"".join(lines)):
            yield text
        while options.follow:
            await self._clock.sleep(_POLL_SECONDS)
            offset, more = _grown(path, offset)
            if more and (text := decoder.decode(more)):
                yield text


def _grown(path: Path, offset: int) -> tuple[int, bytes]:
    """Return the new offset, and what the file has gained; it may have been truncated meanwhile."""
    try:
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(offset if offset <= size else 0)
            more = stream.read(_BLOCK)
            return stream.tell(), more
    except FileNotFoundError:
        return 0, b""


class _Decoder:
    """Selects lines by time. A line without a time, as in tracebacks, has that of the line before."""

    def __init__(self, timestamps: bool, since: str) -> None:
        self._timestamps = timestamps
        self._since = since.encode()
        self._last = b""

    def decode(self, data: bytes) -> bytes:
        if not self._timestamps and not self._since:
            return data
        out = []
        for line in data.splitlines(keepends=True):
            found = _STAMP.match(line)
            self._last = found[1] if found else self._last
            if self._last >= self._since or not self._last:
                out.append(self._last + b"Z " + line if self._timestamps and self._last else line)
        return b"".join(out)

"""Protocol of the source of container logs, implemented by the node agent.

The server checks the request (container, ranges of options, existence of a log) and
enforces ``limitBytes``. The source
knows the position and time of each line on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Selected part of a container's log. ``None`` means unset."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    """True if each line starts with its RFC 3339 time (up to nanoseconds, ``Z``) and a space."""
    tail_lines: int | None = None
    since: str = ""
    """Earliest time of lines, RFC 3339 in UTC without zone; empty if there is no limit."""
    stream: str = ""
    """Output to read: ``stdout`` or ``stderr``; empty for both."""


class LogMissing(Exception):
    """The container has no log, or no longer. The message contains the reason."""


class LogSource(Protocol):
    """Source of logs of one container of one pod."""

    def open(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """Yield chunks of the log as stored bytes.

        Lines end in ``\\n``, and chunks need not end at a line. ``pod`` is the whole
        object. With ``follow``, the iterator
        ends when the container has terminated and all its output was yielded. It must
        end promptly when closed
        (``aclose``). Raises :class:`LogMissing` before the first chunk if there is no
        such log.
        """
        ...

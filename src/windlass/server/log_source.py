"""Where container logs come from: a Protocol that the node agent's reader fulfils.

The server checks the request (container choice, option ranges, whether there is a log at all) and
enforces ``limitBytes``; the source knows where lines lie on disk and when each was written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What of a container's log is wanted. ``None`` means unset."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    """Each line starts with its RFC 3339 time (nanoseconds or fewer, ``Z``) and a space."""
    tail_lines: int | None = None
    since_seconds: float | None = None
    """Only lines written within this many seconds before now (``sinceTime`` is converted to this)."""


class LogMissing(Exception):
    """The container has no log (any more). The message tells the user why."""


class LogSource(Protocol):
    """Reads the log of one container of one pod."""

    def open(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """Chunks of the log as stored bytes (lines end in ``\\n``; chunks need not end at a line).

        ``pod`` is the whole object. With ``follow`` the iterator ends when the container has ended
        and all of its output has been given. It must end promptly when closed (``aclose``).
        Raises :class:`LogMissing` before the first chunk where there is no such log.
        """
        ...

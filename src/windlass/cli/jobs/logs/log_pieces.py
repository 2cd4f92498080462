"""Bytes of a container's output, cut into pieces of lines.

The API writes each line with its time stamp. What a line holds is handed through byte for
byte, and also before the line is complete: progress bars and prompts have no newline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ")
_MAX_STAMP = len("2026-01-01T12:00:00.000000000+00:00 ")


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a line, or a whole line.

    ``time``: RFC 3339, as stamped by the node; empty if the server gave none.
    """

    time: str
    data: bytes
    first: bool = True
    """It begins the line."""
    complete: bool = True
    """It ends the line, that is, a newline follows."""


class PieceParser:
    """Parses chunks of output with time stamps. A line without a stamp has that of the line before."""

    def __init__(self) -> None:
        self._rest = b""
        self._time = ""
        self._in_line = False

    def feed(self, chunk: bytes) -> list[Piece]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        found = [self._piece(line, complete=True) for line in lines]
        if self._rest and self._is_parsable():
            found.append(self._piece(self._rest, complete=False))
            self._rest = b""
        return found

    def end(self) -> list[Piece]:
        """Return what is left at the end of the output."""
        rest, self._rest = self._rest, b""
        return [self._piece(rest, complete=False)] if rest else []

    def _is_parsable(self) -> bool:
        """Return whether the unfinished line has its whole stamp, and something after it."""
        if self._in_line:
            return True
        match = _STAMP.match(self._rest)
        return len(self._rest) > (match.end() if match else _MAX_STAMP)

    def _piece(self, data: bytes, *, complete: bool) -> Piece:
        first = not self._in_line
        if first and (match := _STAMP.match(data)):
            self._time, data = match[0][:-1].decode(), data[match.end() :]
        self._in_line = not complete
        return Piece(self._time, data, first, complete)


def parsed(chunks: Iterable[bytes]) -> Iterator[list[Piece]]:
    """Yield the pieces of each chunk of one stream."""
    parser = PieceParser()
    for chunk in chunks:
        yield parser.feed(chunk)
    yield parser.end()


def whole_lines(pieces: Iterable[list[Piece]]) -> Iterator[Piece]:
    """Yield whole lines. The last one may be incomplete."""
    parts: list[Piece] = []
    for piece in chain.from_iterable(pieces):
        parts.append(piece)
        if piece.complete:
            yield joined(parts)
            parts = []
    if parts:
        yield joined(parts)


def joined(parts: list[Piece]) -> Piece:
    """Return the pieces of one line as one piece."""
    if len(parts) == 1:
        return parts[0]
    return replace(parts[0], data=b"".join(part.data for part in parts), complete=parts[-1].complete)

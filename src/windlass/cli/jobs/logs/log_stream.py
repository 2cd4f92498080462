"""Output of one container, continued after a broken connection.

Lines are requested with their time stamps. After a break the log is read again, and
known bytes are skipped: lines older than the last stamp, as many lines with that
stamp as were seen, and the known part of an unfinished last line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from windlass.api.errors import WindlassError
from windlass.cli.invocation import PausingClock
from windlass.cli.jobs.logs.log_lines import LogView
from windlass.cli.jobs.logs.log_pieces import Piece, PieceParser

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient

_RETRY_SECONDS = 0.25
_RETRY_TIMEOUT_SECONDS = 20.0
"""Timeout of retries in seconds, after which an unreachable server is reported."""


class LogFeed:
    """Output of one container.

    :meth:`pieces` can be called again after it has ended. It continues after the last
    byte.
    """

    def __init__(self, namespace: str, pod: str, container: str, options: LogView) -> None:
        self._source = (namespace, pod, container)
        self._options = options
        self._last = ""
        self._seen_of_last = 0
        self._unfinished_bytes = 0
        """Bytes known of the last line, if its end has not come yet."""

    def pieces(self, connect: Callable[[], BlockingClient], clock: PausingClock) -> Iterator[list[Piece]]:
        """Yield pieces of lines until the container's output ends.

        Raises :class:`StatusError`, and :class:`WindlassError` if the server stays
        unreachable.
        """
        broken_at: float | None = None
        while True:
            client = connect()
            try:
                for pieces in self._once(client):
                    broken_at = None
                    yield pieces
                return
            except WindlassError:
                now = clock.monotonic()
                broken_at = now if broken_at is None else broken_at
                if now - broken_at >= _RETRY_TIMEOUT_SECONDS:
                    raise
            finally:
                client.close()
            clock.pause(_RETRY_SECONDS)

    def _once(self, client: BlockingClient) -> Iterator[list[Piece]]:
        namespace, pod, container = self._source
        fresh = not self._last
        chunks = client.logs(
            namespace,
            pod,
            container=container,
            follow=True,
            tail_lines=self._options.tail if fresh else None,
            since_seconds=self._options.since_seconds if fresh else None,
            timestamps=True,
        )
        parser = PieceParser()
        known = _Known(self._last, self._seen_of_last, self._unfinished_bytes)
        for chunk in chunks:
            if pieces := self._new(known, parser.feed(chunk)):
                yield pieces
        if pieces := self._new(known, parser.end()):
            yield pieces

    def _new(self, known: _Known, pieces: list[Piece]) -> list[Piece]:
        """Return what is new of ``pieces``, and remember it."""
        found = []
        for piece in pieces:
            new = known.rest_of(piece)
            if new is None:
                continue
            if not new.first:
                self._unfinished_bytes += len(new.data)
            else:
                self._unfinished_bytes = len(new.data)
                self._seen_of_last = self._seen_of_last + 1 if new.time == self._last else 1
                self._last = new.time
            if new.complete:
                self._unfinished_bytes = 0
            found.append(new)
        return found


class _Known:
    """State of a log at the start of a connection, compared with what arrives."""

    def __init__(self, last: str, seen_of_last: int, unfinished_bytes: int) -> None:
        self._last = last
        self._left = seen_of_last
        self._unfinished_bytes = unfinished_bytes
        self._skips = 0
        """Bytes of the present line that are known; negative if the whole line is."""

    def rest_of(self, piece: Piece) -> Piece | None:
        """Return the unknown part of a piece; ``None`` without such a part."""
        if piece.first:
            self._begin(piece.time)
        if self._skips < 0:
            return None
        if not self._skips:
            return piece
        skipped = min(self._skips, len(piece.data))
        self._skips -= skipped
        rest = piece.data[skipped:]
        if not rest and not piece.complete:
            return None
        return replace(piece, data=rest, first=False)

    def _begin(self, time: str) -> None:
        self._skips = 0
        if time == self._last and self._left:
            self._left -= 1
            self._skips = self._unfinished_bytes if not self._left and self._unfinished_bytes else -1
        elif _order(time) < _order(self._last):
            self._skips = -1


def _order(stamp: str) -> str:
    """Return a sorting key for stamps of different precision.

    Trailing zeros are cut from fractions, never added.
    """
    return stamp.removesuffix("Z")

"""Output of one container, line by line, continued after a broken connection.

Lines are requested with their time stamps. After a break the log is read again, and
known lines are skipped: those older than the last stamp, and as many lines with that
stamp as were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.api.errors import WindlassError
from windlass.cli.invocation import PausingClock
from windlass.cli.jobs.log_lines import LogView, Splitter, split_stamp

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient

_RETRY_SECONDS = 0.25
_RETRY_TIMEOUT_SECONDS = 20.0
"""Timeout of retries in seconds, after which an unreachable server is reported."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line.

    ``time``: RFC 3339, as stamped by the node; empty if the server gave none.
    """

    time: str
    text: str


class LogFeed:
    """Output of one container.

    :meth:`lines` can be called again after it has ended. It continues after the last
    line.
    """

    def __init__(self, namespace: str, pod: str, container: str, options: LogView) -> None:
        self._source = (namespace, pod, container)
        self._options = options
        self._last = ""
        self._seen_of_last = 0

    def lines(self, connect: Callable[[], BlockingClient], clock: PausingClock) -> Iterator[list[LogLine]]:
        """Yield lines until the container's output ends.

        Raises :class:`StatusError`, and :class:`WindlassError` if the server stays
        unreachable.
        """
        broken_at: float | None = None
        while True:
            client = connect()
            try:
                for lines in self._once(client):
                    broken_at = None
                    yield lines
                return
            except WindlassError:
                now = clock.monotonic()
                broken_at = now if broken_at is None else broken_at
                if now - broken_at >= _RETRY_TIMEOUT_SECONDS:
                    raise
            finally:
                client.close()
            clock.pause(_RETRY_SECONDS)

    def _once(self, client: BlockingClient) -> Iterator[list[LogLine]]:
        namespace, pod, container = self._source
        resumed_at, known = self._last, self._seen_of_last
        fresh = not resumed_at
        splitter = Splitter()
        chunks = client.logs(
            namespace,
            pod,
            container=container,
            follow=True,
            tail_lines=self._options.tail if fresh else None,
            since_seconds=self._options.since_seconds if fresh else None,
            timestamps=True,
        )
        stamp, passed = "", 0

        def take(raw: list[str]) -> list[LogLine]:
            nonlocal stamp, passed
            found = []
            for line in raw:
                stamp, text = split_stamp(line, stamp)
                if stamp == resumed_at and passed < known:
                    passed += 1
                    continue
                if _order(stamp) < _order(resumed_at):
                    continue
                if stamp == self._last:
                    self._seen_of_last += 1
                else:
                    self._last, self._seen_of_last = stamp, 1
                found.append(LogLine(stamp, text))
            return found

        for chunk in chunks:
            if lines := take(splitter.feed(chunk)):
                yield lines
        if lines := take(splitter.end()):
            yield lines


def _order(stamp: str) -> str:
    """Return a sorting key for stamps of different precision.

    Trailing zeros are cut from fractions, never added.
    """
    return stamp.removesuffix("Z")

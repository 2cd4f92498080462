"""Detection of the end of an API server outage, from the responses to one client.

Each component backs off on its own, with growing pauses. After an outage of a minute, the last one would resume a
minute after the server does. So all subscribers are called as soon as a request succeeds again. Reads and writes are
counted separately, because an API server without its etcd still serves reads from its cache.

An outage means that no request at all succeeded for a while. Failures of some requests are not an outage: an
overloaded server, or one that rejects a single object, triggers no call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from windlass.kits.clock import Clock

OUTAGE_SECONDS = 1.0
"""Minimum duration of an outage (seconds), from the first to the last failed request."""
SPREAD_SECONDS = 1.0
"""Interval (seconds) over which subscribers spread their retries."""


@dataclass(slots=True)
class _Spell:
    """Start and end of a period in which every request failed, in monotonic seconds."""

    since: float
    last: float


class Outages:
    """Outage detector of one client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spells: dict[bool, _Spell] = {}
        """Current outages, keyed by whether the requests were writes."""
        self._calls: dict[object, Callable[[], None]] = {}

    @contextmanager
    def followed(self, call: Callable[[], None]) -> Iterator[None]:
        """Call ``call`` at the end of each outage, while the context is open."""
        mark = object()
        self._calls[mark] = call
        try:
            yield
        finally:
            del self._calls[mark]

    def answered(self, method: str, status: int) -> None:
        """Record a response. Errors of the client (4xx) do not count as failures of the server."""
        if status >= 500:
            self.failed(method)
        elif status < 300:
            spell = self._spells.pop(_writes(method), None)
            if spell is not None and spell.last - spell.since >= OUTAGE_SECONDS:
                for call in list(self._calls.values()):
                    call()

    def failed(self, method: str) -> None:
        """Record a request without a response."""
        now = self._clock.monotonic()
        self._spells.setdefault(_writes(method), _Spell(now, now)).last = now


def _writes(method: str) -> bool:
    return method not in ("GET", "HEAD")

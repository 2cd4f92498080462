"""When a server serves again that did not: told by the answers of one client, heard by whoever backs off meanwhile.

Who tries in vain waits ever longer, each for himself; after an outage of a minute the last would go on a minute after
the server does. So all of them are called once it has done something again. Reading and writing are counted apart, as
an API server without its etcd still serves what it has read.

It is an outage if nothing at all succeeded for a while, not if some requests fail: a server that is overloaded, or
refuses one object for good, calls nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from windlass.kits.clock import Clock

OUTAGE_SECONDS = 1.0
"""For so long at least nothing succeeded, from the first to the last that failed."""
SPREAD_SECONDS = 1.0
"""Over so long those who were called spread what they do."""


@dataclass(slots=True)
class _Spell:
    """Since when, and until when, all has failed. Monotonic seconds."""

    since: float
    last: float


class Outages:
    """What a client sees of its server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spells: dict[bool, _Spell] = {}
        """By whether something was to be written."""
        self._calls: dict[object, Callable[[], None]] = {}

    @contextmanager
    def followed(self, call: Callable[[], None]) -> Iterator[None]:
        """``call`` is called, inside, whenever an outage has ended."""
        mark = object()
        self._calls[mark] = call
        try:
            yield
        finally:
            del self._calls[mark]

    def answered(self, method: str, status: int) -> None:
        """A request was answered. What its sender did wrong says nothing of the server."""
        if status >= 500:
            self.failed(method)
        elif status < 300:
            spell = self._spells.pop(_writes(method), None)
            if spell is not None and spell.last - spell.since >= OUTAGE_SECONDS:
                for call in list(self._calls.values()):
                    call()

    def failed(self, method: str) -> None:
        """Nobody answered a request."""
        now = self._clock.monotonic()
        self._spells.setdefault(_writes(method), _Spell(now, now)).last = now


def _writes(method: str) -> bool:
    return method not in ("GET", "HEAD")

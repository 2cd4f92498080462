"""Buffer of events about successes: they give way to the binds that cause more of them.

Events stay here until nothing more important has been in progress for ``CALM_SECONDS``.
Then they are handed to the recorder, so a burst of binds is not slowed down by its own
events. After ``MAX_DELAY_SECONDS`` they are handed over anyway: under lasting pressure,
events are late by that time but keep up with the binds.

Invariant: no event is lost while the process lives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import Clock

MAX_DELAY_SECONDS = 30.0
"""Maximum delay of an event in seconds."""
CALM_SECONDS = 0.25
"""Time in seconds without binds after which events are handed over."""
_RECHECK_SECONDS = 0.05
_MAX_AHEAD = 256
"""Maximum number of events in the recorder, where each takes more memory than here."""


class EventBuffer:
    """Buffer of events. ``busy()``: whether something more important is in progress."""

    def __init__(self, recorder: EventRecorder, clock: Clock, busy: Callable[[], bool]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._busy = busy
        self._busy_at = 0.0
        self._events: deque[tuple[float, ObjectRef, str, str]] = deque()
        self._wake = asyncio.Event()
        self._draining = False

    def record(self, ref: ObjectRef, reason: str, message: str) -> None:
        """Record an event of type ``Normal``, soon."""
        self._events.append((self._clock.monotonic(), ref, reason, message))
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Number of events not handed over yet."""
        return len(self._events)

    def drain(self) -> None:
        """Hand events over without delay from now on."""
        self._draining = True

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._events:
                now = self._clock.monotonic()
                if self._busy():
                    self._busy_at = now
                calm = now - max(self._busy_at, self._events[-1][0]) >= CALM_SECONDS
                self._hand_over(now if calm or self._draining else now - MAX_DELAY_SECONDS)
                await self._clock.sleep(_RECHECK_SECONDS)

    def _hand_over(self, until: float) -> None:
        """Hand over the events recorded until then."""
        for _ in range(_MAX_AHEAD - self._recorder.waiting):
            if not self._events or self._events[0][0] > until:
                return
            _, ref, reason, message = self._events.popleft()
            self._recorder.event(ref, "Normal", reason, message, vital=True)

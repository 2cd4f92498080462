"""Good news can wait a moment: events about successes give way to the binds that cause more of them.

They are kept here until nothing more important has been under way for ``CALM_SECONDS``, then handed to the recorder.
A burst of work is thus not slowed down by the news of itself. What has waited for ``MOST_SECONDS`` is handed over
anyway: in a rush that lasts, events come so much late, as fast as binds are made and no faster.

Invariant: none is lost while the process lives, however many wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import Clock

MOST_SECONDS = 30.0
CALM_SECONDS = 0.25
_LOOK_SECONDS = 0.05
_AHEAD = 256
"""So many events may wait in the recorder: there they take more room than here, and wait for nothing any more."""


class EventBuffer:
    """``busy()`` says whether something more important is under way."""

    def __init__(self, recorder: EventRecorder, clock: Clock, busy: Callable[[], bool]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._busy = busy
        self._busy_at = 0.0
        self._news: deque[tuple[float, ObjectRef, str, str]] = deque()
        self._wake = asyncio.Event()
        self._hurried = False

    def say(self, ref: ObjectRef, reason: str, message: str) -> None:
        """Record an event of the type ``Normal``, soon."""
        self._news.append((self._clock.monotonic(), ref, reason, message))
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Events not handed over yet."""
        return len(self._news)

    def hurry(self) -> None:
        """Wait for no calm any more."""
        self._hurried = True

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._news:
                now = self._clock.monotonic()
                if self._busy():
                    self._busy_at = now
                calm = now - max(self._busy_at, self._news[-1][0]) >= CALM_SECONDS
                self._hand_over(now if calm or self._hurried else now - MOST_SECONDS)
                await self._clock.sleep(_LOOK_SECONDS)

    def _hand_over(self, until: float) -> None:
        """What was said until then."""
        for _ in range(_AHEAD - self._recorder.waiting):
            if not self._news or self._news[0][0] > until:
                return
            _, ref, reason, message = self._news.popleft()
            self._recorder.event(ref, "Normal", reason, message, vital=True)

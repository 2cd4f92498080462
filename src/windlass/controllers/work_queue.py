"""Work queue of a controller, with delays.

The rules are client-go's. A key that waits is not added twice. A key added while a
worker processes it waits again afterwards. An earlier delay of a key replaces a later
one. Time comes from a :class:`~windlass.kits.clock.Clock`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque

from windlass.kits.clock import Clock
from windlass.kits.tasks import sleep_or_wake


class WorkQueue:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._due: dict[str, float] = {}
        self._timers: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._something = asyncio.Event()
        self._alarm = asyncio.Event()

    def __len__(self) -> int:
        """Keys that are ready now."""
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Nothing is ready or being worked on (delayed keys do not count)."""
        return not self._ready and not self._working

    def add(self, key: str) -> None:
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._something.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after ``seconds``, unless it is added earlier."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if key in self._waiting or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, next(self._order), key))
        if self._timers[0][2] == key:
            self._alarm.set()

    async def get(self) -> str:
        """Return the next key. The caller must return it with :meth:`done`."""
        while not self._ready:
            self._something.clear()
            await self._something.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def run_timers(self) -> None:
        """Make delayed keys ready when they are due. Runs until cancelled."""
        while True:
            self._release_due()
            if not self._timers:
                self._alarm.clear()
                await self._alarm.wait()
                continue
            self._alarm.clear()
            await sleep_or_wake(self._clock, self._timers[0][0] - self._clock.monotonic(), self._alarm)

    def _release_due(self) -> None:
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            due, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:  # otherwise replaced by an earlier delay
                self.add(key)

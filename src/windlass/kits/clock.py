"""Clocks, passed as parameters.

Code that waits, stamps or measures takes a :class:`Clock`. So tests move time by hand,
and a simulation runs a month in seconds. Only ``kits`` may use the wall clock, which
``import-linter`` and ruff check.
"""

from __future__ import annotations

import heapq
import itertools
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """Clock. All times are in seconds.

    ``now``: Unix time, which may jump.
    ``monotonic``: time that never runs backwards and excludes suspension of the
        machine.
    ``elapsed``: the same including suspension, for deadlines that other machines rely
        on.
    """

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def elapsed(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


def _since_boot() -> int | None:
    """Return the id of Linux' clock that counts suspension; ``None``: use ``monotonic`` instead."""
    which: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    try:
        if which is not None:
            time.clock_gettime(which)
    except OSError:
        return None
    return which


_SINCE_BOOT = _since_boot()


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() if _SINCE_BOOT is None else time.clock_gettime(_SINCE_BOOT)

    async def sleep(self, seconds: float) -> None:
        import asyncio  # the command line never sleeps this way, and starts faster without it

        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        """Blocking sleep, for code without an event loop (the command line)."""
        time.sleep(seconds)


class ProcessorClock(SystemClock):
    """Clock with the CPU time of this process as ``monotonic``.

    It measures speed on a machine that other processes use.
    """

    def monotonic(self) -> float:
        return time.process_time()


class FakeClock:
    """Clock that stands still until :meth:`advance` is called. For tests and simulation."""

    def __init__(self, start: float = 1_767_268_800.0) -> None:  # 2026-01-01T12:00:00Z
        self._now = start
        self._monotonic = 0.0
        self._suspended = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def elapsed(self) -> float:
        return self._monotonic + self._suspended

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: time passes, but nothing runs and no sleeper gets closer to its end."""
        self._now += seconds
        self._suspended += seconds

    def pause(self, seconds: float) -> None:
        self.jump(seconds)

    def jump(self, seconds: float) -> None:
        """Move time without waking sleepers' tasks in between."""
        self._now += seconds
        self._monotonic += seconds

    def left(self) -> float | None:
        """Return the seconds until the next sleeper wakes; ``None`` without a sleeper."""
        return max(0.0, self._sleepers[0][0] - self._monotonic) if self._sleepers else None

    async def sleep(self, seconds: float) -> None:
        import asyncio

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking each sleeper at its own time, in order."""
        import asyncio

        target = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            self.jump(max(0.0, due - self._monotonic))
            if not future.done():
                future.set_result(None)
            for _ in range(5):  # let woken tasks run and sleep again
                await asyncio.sleep(0)
        self.jump(target - self._monotonic)
        for _ in range(5):
            await asyncio.sleep(0)

"""Background writes: per key the latest wish wins, spaced out, a few at a time.

A wish is a key and a moment. When the moment comes the writer of that key is called and looks at the
state of that time, so ten changes in between are one write. A write that fails for a passing reason is
repeated with back-off, and soon once the server serves again that did not; one that it refuses for good
is dropped and told. (A server that has just started may forbid everything for a moment, until it knows
the rules of its cluster.)
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable

from windlass.api.errors import StatusError
from windlass.client.errors import Unreachable
from windlass.client.outages import SPREAD_SECONDS, Outages
from windlass.client.responses import may_pass, retry_after
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.tasks import wait_for
from windlass.observe import logs

Writer = Callable[[str], Awaitable[None]]
Later = Callable[[str], float]
FORBIDDEN_TRIES = 7
"""So often is written what is forbidden: for about 15 seconds."""
log = logs.get("scheduler")


def _now(key: str) -> float:
    return 0.0


class WriteQueue:
    """``writer(key)`` performs one write; it raises ``StatusError`` or ``Unreachable`` on failure. ``outages``: of the
    server that it writes to. ``later(key)`` is asked when its moment has come: for so many seconds yet it is not to be
    written."""

    def __init__(
        self,
        writer: Writer,
        *,
        clock: Clock,
        rng: Random,
        concurrency: int,
        outages: Outages,
        later: Later = _now,
    ) -> None:
        self._writer = writer
        self._later = later
        self._clock = clock
        self._rng = rng
        self._concurrency = concurrency
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._outages = outages
        self._backoffs: dict[str, Backoff] = {}
        self._unheard: set[str] = set()
        """Keys whose last write nobody answered."""
        self._wake = asyncio.Event()
        self._defect: BaseException | None = None

    def wish(self, key: str, seconds: float = 0.0) -> None:
        """Write ``key`` in ``seconds``, or earlier if an earlier moment is wished already."""
        due = self._clock.monotonic() + seconds
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._put(key, due)
        if seconds <= 0 or self._heap[0][2] == key:  # else something is due before it
            self._wake.set()

    def _put(self, key: str, due: float) -> None:
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))

    def drop(self, key: str) -> None:
        """Forget what was wished."""
        self._due.pop(key, None)
        self._forget_failures(key)

    def _forget_failures(self, key: str) -> None:
        self._backoffs.pop(key, None)
        self._unheard.discard(key)

    def repeats(self, key: str, error: StatusError) -> bool:
        """Whether a write that was refused so is tried again."""
        if error.code != 403:
            return may_pass(error)
        backoff = self._backoffs.get(key)
        return backoff is None or key in self._unheard or backoff.failures + 1 < FORBIDDEN_TRIES

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or due now."""
        now = self._clock.monotonic()
        return not self._under_way and not any(due <= now for due in self._due.values())

    @property
    def writing(self) -> bool:
        return bool(self._under_way)

    async def run(self) -> None:
        """Serve until cancelled; writes under way are cancelled with it. Raises what a writer raised
        beyond ``StatusError`` and ``Unreachable``: a defect."""
        try:
            with self._outages.followed(self._hurry):
                while True:
                    self._wake.clear()
                    pause = self._start_due()
                    if self._defect is not None:
                        raise self._defect
                    await wait_for(self._wake, self._clock, pause)
        finally:
            tasks = list(self._under_way.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_due(self) -> float | None:
        """Start what is due; seconds until something may be due next, None if only a wake-up can tell."""
        now = self._clock.monotonic()
        blocked: list[tuple[float, int, str]] = []
        while self._heap and len(self._under_way) < self._concurrency:
            due, order, key = self._heap[0]
            if self._due.get(key) != due:  # superseded or dropped
                heapq.heappop(self._heap)
                continue
            if due > now:
                break
            heapq.heappop(self._heap)
            if key in self._under_way:
                blocked.append((due, order, key))
                continue
            del self._due[key]
            if (pause := self._later(key)) > 0:
                self._put(key, now + pause)
                continue
            task = self._under_way[key] = asyncio.create_task(self._write(key), name=f"write {key}")
            task.add_done_callback(self._ended)
        for entry in blocked:
            heapq.heappush(self._heap, entry)
        if len(self._under_way) >= self._concurrency or blocked or not self._heap:
            return None
        return max(0.0, self._heap[0][0] - now)

    async def _write(self, key: str) -> None:
        try:
            await self._writer(key)
        except StatusError as error:
            if self.repeats(key, error):
                if key in self._unheard:  # somebody is there again, whatever he says: pauses begin small
                    self._forget_failures(key)
                self._again(key, retry_after(error))
            else:
                self._forget_failures(key)
                if error.code != 404:
                    log.warning("write refused", key=key, code=error.code, why=error.message)
        except Unreachable as error:
            log.debug("write failed", key=key, why=error.message)
            self._unheard.add(key)
            self._again(key, None)
        else:
            self._forget_failures(key)
        finally:
            self._under_way.pop(key, None)
            self._wake.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._defect = task.exception()
            self._wake.set()

    def _again(self, key: str, asked: float | None) -> None:
        backoff = self._backoffs.setdefault(key, Backoff(self._rng, 0.2, 2.0, 30.0, 0.5))
        self.wish(key, backoff.next() if asked is None else float(asked))

    def _hurry(self) -> None:
        """The server serves again: who backs off goes on soon. (Who was asked to wait does.)"""
        for key, backoff in self._backoffs.items():
            if backoff.failures and key in self._due:
                backoff.reset()
                self.wish(key, SPREAD_SECONDS * self._rng.random())

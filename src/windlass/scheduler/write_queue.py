"""Queue of background writes: the latest request per key counts, a few at a time.

A request is a key and a due time. When it is due, the writer of the key is called and
uses the state of that time, so ten changes in between are one write. A write that fails
for a temporary reason is repeated with back-off. Once an unreachable server answers
again, its writes are repeated soon. A write that is rejected for good is dropped and
logged.

A server that has just started may forbid everything until it has loaded the rules of
its cluster. So forbidden writes are repeated for a while.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol

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
Postpone = Callable[[str], float]
MAX_FORBIDDEN_ATTEMPTS = 7
"""Maximum number of attempts at a forbidden write, which take about 15 seconds."""
log = logs.get("scheduler")


class Enqueue(Protocol):
    """Request a write of ``key`` in ``seconds``, as :meth:`WriteQueue.enqueue`."""

    def __call__(self, key: str, seconds: float = 0.0) -> None: ...


def _never(key: str) -> float:
    return 0.0


class WriteQueue:
    """Queue of writes, performed by ``writer(key)``.

    The writer raises ``StatusError`` or ``Unreachable`` on failure. ``outages`` are
    those of the server that it writes to. ``postpone(key)`` is asked when a write is
    due, and returns the seconds for which it has to wait.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        clock: Clock,
        rng: Random,
        concurrency: int,
        outages: Outages,
        postpone: Postpone = _never,
    ) -> None:
        self._writer = writer
        self._postpone = postpone
        self._clock = clock
        self._rng = rng
        self._concurrency = concurrency
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._in_progress: dict[str, asyncio.Task[None]] = {}
        self._outages = outages
        self._backoffs: dict[str, Backoff] = {}
        self._unanswered: set[str] = set()
        """Keys without an answer to their last write."""
        self._wake = asyncio.Event()
        self._defect: BaseException | None = None

    def enqueue(self, key: str, seconds: float = 0.0) -> None:
        """Write ``key`` in ``seconds``, or earlier if that is requested already."""
        due = self._clock.monotonic() + seconds
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._put(key, due)
        if seconds <= 0 or self._heap[0][2] == key:  # otherwise something else is due before
            self._wake.set()

    def _put(self, key: str, due: float) -> None:
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))

    def drop(self, key: str) -> None:
        """Cancel the request for a key."""
        self._due.pop(key, None)
        self._forget_failures(key)

    def _forget_failures(self, key: str) -> None:
        self._backoffs.pop(key, None)
        self._unanswered.discard(key)

    def repeats(self, key: str, error: StatusError) -> bool:
        """Return whether a write that failed with this error is repeated."""
        if error.code != 403:
            return may_pass(error)
        backoff = self._backoffs.get(key)
        return backoff is None or key in self._unanswered or backoff.failures + 1 < MAX_FORBIDDEN_ATTEMPTS

    @property
    def idle(self) -> bool:
        """Return whether nothing is in progress or due."""
        now = self._clock.monotonic()
        return not self._in_progress and not any(due <= now for due in self._due.values())

    @property
    def writing(self) -> bool:
        """Return whether a write is in progress."""
        return bool(self._in_progress)

    async def run(self) -> None:
        """Serve until cancelled. Writes in progress are cancelled with it.

        Raises any exception of the writer but ``StatusError`` and ``Unreachable``: a
        defect.
        """
        try:
            with self._outages.followed(self._resume):
                while True:
                    self._wake.clear()
                    pause = self._start_due()
                    if self._defect is not None:
                        raise self._defect
                    await wait_for(self._wake, self._clock, pause)
        finally:
            tasks = list(self._in_progress.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_due(self) -> float | None:
        """Start the writes that are due.

        Returns the seconds until the next may be due, ``None`` if only a wake-up can
        tell.
        """
        now = self._clock.monotonic()
        blocked: list[tuple[float, int, str]] = []
        while self._heap and len(self._in_progress) < self._concurrency:
            due, order, key = self._heap[0]
            if self._due.get(key) != due:  # superseded or dropped
                heapq.heappop(self._heap)
                continue
            if due > now:
                break
            heapq.heappop(self._heap)
            if key in self._in_progress:
                blocked.append((due, order, key))
                continue
            del self._due[key]
            if (pause := self._postpone(key)) > 0:
                self._put(key, now + pause)
                continue
            task = self._in_progress[key] = asyncio.create_task(self._write(key), name=f"write {key}")
            task.add_done_callback(self._finished)
        for entry in blocked:
            heapq.heappush(self._heap, entry)
        if len(self._in_progress) >= self._concurrency or blocked or not self._heap:
            return None
        return max(0.0, self._heap[0][0] - now)

    async def _write(self, key: str) -> None:
        try:
            await self._writer(key)
        except StatusError as error:
            if self.repeats(key, error):
                if key in self._unanswered:  # the server answers again: pauses start small
                    self._forget_failures(key)
                self._repeat(key, retry_after(error))
            else:
                self._forget_failures(key)
                if error.code != 404:
                    log.warning("write rejected", key=key, code=error.code, why=error.message)
        except Unreachable as error:
            log.debug("write failed", key=key, why=error.message)
            self._unanswered.add(key)
            self._repeat(key, None)
        else:
            self._forget_failures(key)
        finally:
            self._in_progress.pop(key, None)
            self._wake.set()

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._defect = task.exception()
            self._wake.set()

    def _repeat(self, key: str, requested: float | None) -> None:
        backoff = self._backoffs.setdefault(key, Backoff(self._rng, 0.2, 2.0, 30.0, 0.5))
        self.enqueue(key, backoff.next() if requested is None else float(requested))

    def _resume(self) -> None:
        """Repeat writes in back-off soon, since the server serves again.

        Writes for which the server asked for a pause are not among them.
        """
        for key, backoff in self._backoffs.items():
            if backoff.failures and key in self._due:
                backoff.reset()
                self.enqueue(key, SPREAD_SECONDS * self._rng.random())

"""Queue of the binds that have not been sent, and the number of those in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from windlass.engine.decision import Bind
from windlass.scheduler.backpressure import MIN_BUSY
from windlass.scheduler.commit.bind_batch import BindBatch
from windlass.scheduler.commit.concurrency_limit import AdaptiveLimit


class BindQueue:
    """Queue of binds and batches.

    Binds of batches that have begun come before everything else. ``limit`` is the
    number of requests that the API server bears at once.
    """

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit = limit
        self.in_progress = 0
        self._waiting: deque[Bind | BindBatch] = deque()
        self._prepared: deque[Bind] = deque()
        """Binds of batches with finished writes."""

    def __bool__(self) -> bool:
        """Return whether something waits."""
        return bool(self._prepared or self._waiting)

    @property
    def busy(self) -> int:
        """Number of requests in progress, and of binds and batches that wait."""
        return self.in_progress + len(self._prepared) + len(self._waiting)

    def is_backed_up(self) -> bool:
        """Return whether many binds wait, or as many as the server bears."""
        return self.busy >= min(MIN_BUSY, self.limit.limit)

    def add(self, batches: Iterable[BindBatch]) -> None:
        """Append batches.

        Binds without anything to do before are appended one by one.
        """
        for batch in batches:
            if batch.writes or batch.ready is not None:
                self._waiting.append(batch)
            else:
                self._waiting.extend(batch.binds)

    def add_prepared(self, binds: Iterable[Bind]) -> None:
        """Append the binds of a batch that has begun."""
        self._prepared.extend(binds)

    def take(self) -> Bind | BindBatch:
        """Remove and return what comes next."""
        return self._prepared.popleft() if self._prepared else self._waiting.popleft()

    def clear(self) -> None:
        self._prepared.clear()
        self._waiting.clear()

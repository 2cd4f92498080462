"""Rows of several leases at the same time, for runtimes that send each row as a request.

A lease has rows of one group. With one lease at a time, a server would be idle while the last
rows of each lease are processed, and with small groups most of the time.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from windlass.items.quality import scorers
from windlass.items.runtimes.base import LeasedRow, RequestRuntime, RowOutcome, WorkerStopped
from windlass.items.worker.loop import OpenLease, Worker, score_of

ASK_SECONDS = 0.25
"""Time between two requests for rows while others are in progress (seconds)."""


class RequestLoop:
    """Leases rows as long as fewer are in progress than the runtime processes at the same time."""

    def __init__(self, worker: Worker, runtime: RequestRuntime, score: scorers.Scorer | None) -> None:
        self._worker, self._runtime, self._score = worker, runtime, score
        self._threads = ThreadPoolExecutor(runtime.concurrency, "row")
        self._leases: list[OpenLease] = []
        self._waiting: deque[tuple[OpenLease, LeasedRow]] = deque()
        self._running: dict[Future[RowOutcome], tuple[OpenLease, LeasedRow]] = {}
        self._alone = False
        self._next_request = 0.0

    def run(self) -> bool:
        """Process rows until the batch has ended; return false if the worker was stopped before."""
        finished = False
        try:
            while not (finished or self._worker.stopping):
                finished = self._fill()
                self._start()
                self._collect()
        except WorkerStopped:
            pass
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for lease in self._leases:
                if finished:
                    self._worker.forget(lease)
                else:
                    self._worker.close(lease)
        return finished

    def _fill(self) -> bool:
        """Lease more rows if too few are in progress; return whether the batch has ended."""
        while len(self._waiting) + len(self._running) < self._runtime.concurrency and not self._alone:
            busy = bool(self._leases)
            if self._worker.stopping or (busy and self._worker.now() < self._next_request):
                return False
            answer = self._worker.lease(busy=busy)
            if answer["finished"]:
                return True
            if not answer["lease"]:
                self._next_request = self._worker.now() + ASK_SECONDS
                return False
            lease = self._worker.open(answer)
            lease.left = len(lease.batch.items)
            self._alone = answer["alone"]
            self._leases.append(lease)
            self._waiting.extend((lease, item) for item in lease.batch.items)
        return False

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._runtime.concurrency:
            lease, item = self._waiting.popleft()
            if lease.batch.lost or item.number in lease.batch.dropped:
                lease.left -= 1
                continue
            future = self._threads.submit(self._runtime.request, item, lease.batch.model)
            self._running[future] = (lease, item)

    def _collect(self) -> None:
        """Wait for an outcome, and end the leases of which all rows have one."""
        if self._running:
            done, _ = self._worker.interrupted_by_stop(
                lambda: wait(self._running, timeout=ASK_SECONDS, return_when=FIRST_COMPLETED)
            )
            for future in done:
                lease, item = self._running.pop(future)
                outcome = future.result()
                value = score_of(self._score, outcome, item) if self._score else None
                lease.results.add(outcome, value)
                lease.left -= 1
        for lease in [one for one in self._leases if not one.left]:
            self._leases.remove(lease)
            self._alone = False
            self._worker.close(lease)
        for lease in self._leases:
            lease.results.send_if_due(self._worker.now())

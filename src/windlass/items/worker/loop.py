"""Loop of a worker: lease items, process them, commit results, until there is nothing left."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from windlass.items.ledger.branches import branch_name
from windlass.items.prompts import Prompt, PromptError
from windlass.items.quality import scorers
from windlass.items.quality.scorers import valid_score
from windlass.items.runtimes.base import (
    INFRASTRUCTURE,
    PERMANENT,
    LeasedRow,
    ReplicaEnded,
    RequestRuntime,
    RowOutcome,
    Runtime,
    RuntimeContext,
    SetupError,
    WorkBatch,
    WorkerStopped,
    create,
)
from windlass.items.spec import WORKER, BatchSpec
from windlass.items.worker.link import DriverGone, DriverLink
from windlass.kits.clock import SystemClock

COMMIT_SECONDS = 0.5
"""Maximum time that results wait before they are committed (seconds)."""
COMMIT_ITEMS = 1024
"""Maximum number of results that are committed at once."""
COMMIT_BYTES = 8 * 2**20
"""Size of results in characters from which on they are committed."""
MAX_OUTPUT_BYTES = 64 * 2**20
"""Maximum size of one output in bytes."""
SCORER_TRIES = 3
"""Maximum number of calls of a scorer that fails on one output."""
LEASE_SECONDS = 10.0
"""Time that a request of items may wait for some (seconds)."""


_Waited = TypeVar("_Waited")


class Worker:
    """Worker of one batch."""

    def __init__(self, batch: BatchSpec, environment: Mapping[str, str], model: str = "") -> None:
        """``model``: where the files of the model came from; empty without a model."""
        name = environment.get(WORKER) or f"{socket.gethostname()}-{os.urandom(4).hex()}"
        instance = os.urandom(16).hex()
        self._batch, self._model = batch, model
        self._clock = SystemClock()
        self._link = DriverLink(environment, name, instance)
        self._pulse = _Heartbeat(DriverLink(environment, name, instance))
        clock = self._clock
        self._context = RuntimeContext(batch, environment, clock.monotonic, clock.pause, self._pulse.tell)
        self._prompt = Prompt(batch.input.prompt) if batch.input.prompt else None
        self._stopping = False
        self._interruptible = False

    def stop(self) -> None:
        """End soon: called by the handler of SIGTERM, in the main thread."""
        self._stopping = True
        if self._interruptible:
            raise WorkerStopped

    def run(self) -> int:
        """Process items until the batch has ended; return the exit code of the process."""
        try:
            told = self._link.call("/v1/register", stopped=self._stopped, model=self._model)
            runtime, score = self._load()
        except WorkerStopped:
            return 143
        except SetupError as error:
            print(f"windlass: {error}", file=sys.stderr)
            return 1
        self._pulse.start(float(told["heartbeatSeconds"]))
        try:
            return self._work(runtime, score)
        except ReplicaEnded as error:
            print(f"windlass: {error}", file=sys.stderr)
            self._leave()
            return 143
        except SetupError as error:
            print(f"windlass: {error}", file=sys.stderr)
            self._leave()
            return 1
        finally:
            self._pulse.stop()
            runtime.teardown()

    def _stopped(self) -> bool:
        return self._stopping

    def _load(self) -> tuple[Runtime, scorers.Scorer | None]:
        runtime = create(self._context)
        quality = self._batch.outputs.quality
        try:
            score = scorers.create(quality, self._context) if quality is not None else None
        except ValueError as error:
            raise SetupError(str(error)) from None
        self.interrupted_by_stop(runtime.setup)
        how = getattr(runtime, "how", "")
        if how:
            self._link.call("/v1/register", stopped=self._stopped, model=how)
        return runtime, score

    def _work(self, runtime: Runtime, score: scorers.Scorer | None) -> int:
        if isinstance(runtime, RequestRuntime):
            from windlass.items.worker.requests import RequestLoop  # other runtimes do without threads

            if RequestLoop(self, runtime, score).run():
                return 0
        while not self._stopping:
            lease = self.lease(busy=False)
            if lease["finished"]:
                return 0
            if lease["lease"]:
                self._process(lease, runtime, score)
        self._leave()
        return 143

    def _leave(self) -> None:
        try:
            self._link.call("/v1/fail", leave=True, reason="Stopped", patience=5.0)
        except DriverGone as error:
            print(f"windlass: {error}", file=sys.stderr)

    @property
    def stopping(self) -> bool:
        """Return whether the worker was told to end."""
        return self._stopping

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._clock.monotonic()

    def lease(self, *, busy: bool) -> dict[str, Any]:
        """Ask for rows. ``busy``: some are in progress, so the answer must come at once."""
        wait = 0.0 if busy else LEASE_SECONDS
        return self._link.call("/v1/lease", wait=wait, busy=busy, stopped=self._stopped)

    def open(self, lease: dict[str, Any]) -> OpenLease:
        """Begin a lease: the heartbeat renews it from now on."""
        batch, errors = self._batch_of(lease)
        found = OpenLease(lease, batch, _Results(self._link, lease["lease"], batch, self.now()))
        self._pulse.watch(lease["lease"], batch, found.results)
        for outcome in errors:
            found.results.add(outcome, None)
        return found

    def close(self, lease: OpenLease) -> None:
        """End a lease: commit its results, and give back what has none."""
        self.forget(lease)
        lease.results.send(self.now())
        if lease.results.missing(lease.answer) and not lease.batch.lost:
            name = lease.answer["lease"]
            self._link.call("/v1/fail", lease=name, reason="Unfinished", stopped=self._stopped)

    def forget(self, lease: OpenLease) -> None:
        """End the heartbeat of a lease."""
        self._pulse.forget(lease.answer["lease"])

    def interrupted_by_stop(self, wait: Callable[[], _Waited]) -> _Waited:
        """Return what ``wait`` returns. SIGTERM interrupts it: then it raises :class:`WorkerStopped`."""
        self._interruptible = True
        try:
            if self._stopping:
                raise WorkerStopped
            return wait()
        finally:
            self._interruptible = False

    def _process(self, lease: dict[str, Any], runtime: Runtime, score: scorers.Scorer | None) -> None:
        found = self.open(lease)
        try:
            items = {item.number: item for item in found.batch.items}
            for outcome in self._outcomes(runtime, found.batch):
                found.results.add(outcome, score_of(score, outcome, items[outcome.number]) if score else None)
                found.results.send_if_due(self.now())
        except WorkerStopped:
            pass
        finally:
            self.close(found)

    def _outcomes(self, runtime: Runtime, batch: WorkBatch) -> Iterator[RowOutcome]:
        """Return the outcomes of a batch. Only in here SIGTERM interrupts."""
        outcomes = runtime.process(batch)
        while not self._stopping:
            outcome = self.interrupted_by_stop(lambda: next(outcomes, None))
            if outcome is None:
                return
            yield outcome

    def _with_model(self, row: dict[str, Any], lease: dict[str, Any]) -> dict[str, Any]:
        """Return a row with the model of its group, if the group has one of its own.

        A row that names a model keeps it, but not when it is processed again by another model.
        """
        quality, model = self._batch.outputs.quality, lease["model"]
        again = quality is not None and bool(quality.branch_model) and lease["group"] == branch_name(quality)
        if again or (model and model != self._batch.model and not row.get("model")):
            return {**row, "model": model}
        return row

    def _batch_of(self, lease: dict[str, Any]) -> tuple[WorkBatch, list[RowOutcome]]:
        items, errors = [], []
        for entry in lease["items"]:
            row = self._with_model(entry["row"], lease)
            item = LeasedRow(entry["n"], row, entry["attempt"])
            if self._prompt is None:
                item.prompt = row["prompt"] if isinstance(row.get("prompt"), str) else ""
            else:
                try:
                    item.prompt = self._prompt.render(row)
                except PromptError as error:
                    outcome = RowOutcome(item.number, None, 0.0, PERMANENT, "InvalidRow", str(error))
                    errors.append(outcome)
                    continue
            items.append(item)
        return WorkBatch(items, lease["group"], lease["model"]), errors


_OF_SCORER = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of the operating system that are not those of a connection."""


def score_of(score: scorers.Scorer, outcome: RowOutcome, item: LeasedRow) -> float | None:
    """Return the score of an outcome, and add it to the output.

    A scorer that fails is called again. If it keeps failing, the row is an error that keeps
    its output, so that the model is not asked again. Without a connection to the scorer the
    row is processed again.
    """
    if outcome.output is None:
        return None
    value: float | None = None
    for left in reversed(range(SCORER_TRIES)):
        try:
            value = valid_score(score(item, outcome.output))
            break
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(error, _OF_SCORER):
                outcome.output, outcome.kind, outcome.reason = None, INFRASTRUCTURE, "ScorerUnreachable"
                outcome.message = str(error)[:500]
                return None
            if not left:
                outcome.kind, outcome.reason = PERMANENT, "ScorerFailed"
                outcome.message = f"{type(error).__name__}: {error}"[:500]
                return None
    if value is not None:
        outcome.output.setdefault("score", value)
    return value


def result_text(outcome: RowOutcome, score: float | None) -> str:
    """Return a result as JSON. An output that is not valid JSON becomes an error of its item.

    An error can have an output: that of a row on which the scorer failed.
    """
    number, seconds, kept = outcome.number, round(outcome.seconds, 6), ""
    if outcome.output is not None:
        try:
            row = json.dumps(outcome.output, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            size = len(row.encode())
            if size > MAX_OUTPUT_BYTES:
                raise ValueError(f"it has {size} bytes, and {MAX_OUTPUT_BYTES} are allowed")
        except (TypeError, ValueError, RecursionError) as error:
            outcome.kind, outcome.reason = "program", "InvalidOutput"
            outcome.message = f"the output is not valid JSON: {error}"[:500]
        else:
            scored = "" if score is None else f',"score":{score!r}'
            if not outcome.kind:
                return f'{{"n":{number},"seconds":{seconds!r}{scored},"row":{row}}}'
            kept = f',"row":{row}}}'
    kind, reason = outcome.kind or "program", outcome.reason or "Error"
    error = {"kind": kind, "reason": reason, "message": outcome.message}
    text = json.dumps({"n": number, "seconds": seconds, "error": error})
    return text[:-1] + kept if kept else text


@dataclass(slots=True)
class OpenLease:
    """Lease in progress. ``answer``: of the driver. ``left``: rows of the batch that have no outcome yet."""

    answer: dict[str, Any]
    batch: WorkBatch
    results: _Results
    left: int = 0


class _Results:
    """Results of one lease that are not committed yet.

    The heartbeat commits them as well, while the main thread is busy with a long item.
    """

    def __init__(self, link: DriverLink, lease: str, batch: WorkBatch, now: float) -> None:
        self._link, self._lease, self._batch = link, lease, batch
        self._results: list[str] = []
        self._size = 0
        self._numbers: set[int] = set()
        self._since = now
        self._lock = threading.Lock()

    def add(self, outcome: RowOutcome, score: float | None) -> None:
        self._numbers.add(outcome.number)
        text = result_text(outcome, score)
        with self._lock:
            self._results.append(text)
            self._size += len(text)

    def send_if_due(self, now: float, link: DriverLink | None = None) -> None:
        """Commit results that have waited long enough, or are many or large."""
        full = len(self._results) >= COMMIT_ITEMS or self._size >= COMMIT_BYTES
        if full or now - self._since >= COMMIT_SECONDS:
            self.send(now, link)

    def send(self, now: float, link: DriverLink | None = None) -> None:
        """Commit what is there, also after the lease was lost: a first result counts.

        ``link``: connection of another thread. Raises :class:`DriverGone`; then the results are kept.
        """
        with self._lock:
            if not self._results:
                return
            results, self._results, self._size = self._results, [], 0
            seconds, self._since = now - self._since, now
        try:
            answer = (link or self._link).call(
                "/v1/commit",
                lease=self._lease,
                seconds=round(seconds, 6),
                results=f"[{','.join(results)}]",
            )
        except DriverGone:
            with self._lock:
                self._results[:0] = results
                self._size += sum(map(len, results))
            raise
        self._batch.dropped.update(answer["revoked"])
        if answer["lost"]:
            self._batch.lost = True

    def missing(self, lease: dict[str, Any]) -> bool:
        """Return whether an item has neither a result nor another worker."""
        return any(
            entry["n"] not in self._numbers and entry["n"] not in self._batch.dropped
            for entry in lease["items"]
        )


class _Heartbeat:
    """Thread that renews the leases of a worker and commits results that wait for a long item."""

    def __init__(self, link: DriverLink) -> None:
        self._link = link
        self._batches: dict[str, WorkBatch] = {}
        self._results: dict[str, _Results] = {}
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._ended = False
        self._wake = threading.Event()
        self._trouble = ("", "")

    def tell(self, reason: str, message: str) -> None:
        """Report to the driver at once what delays rows. Called by any thread."""
        with self._lock:
            self._trouble = (reason, message)
        self._wake.set()

    def start(self, seconds: float) -> None:
        threading.Thread(target=self._run, args=(seconds,), name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._ended = True
        self._wake.set()

    def watch(self, lease: str, batch: WorkBatch, results: _Results) -> None:
        with self._lock:
            self._batches[lease], self._results[lease] = batch, results

    def forget(self, lease: str) -> None:
        with self._lock:
            self._batches.pop(lease, None)
            self._results.pop(lease, None)

    def _run(self, seconds: float) -> None:
        while True:
            self._wake.wait(seconds)
            self._wake.clear()
            if self._ended:
                return
            with self._lock:
                leases, waiting = list(self._batches), list(self._results.values())
                (reason, message), self._trouble = self._trouble, ("", "")
            try:
                answer = self._link.call(
                    "/v1/heartbeat",
                    leases=leases,
                    reason=reason,
                    message=message,
                    patience=seconds,
                    stopped=lambda: self._ended,
                )
                for results in waiting:
                    results.send_if_due(self._clock.monotonic(), self._link)
            except DriverGone:
                continue  # the main thread tries the same, and gives up after a longer time
            with self._lock:
                for name in answer["lost"]:
                    if name in self._batches:
                        self._batches[name].lost = True
                for name, numbers in answer["revoked"].items():
                    if name in self._batches:
                        self._batches[name].dropped.update(numbers)

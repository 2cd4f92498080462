"""Runner of reconcilers: it turns changes into keys, reconciles them and executes the effects.

A reconciler declares the collections it watches and the keys that a change affects. Its
``reconcile`` is called for one key at a time, never twice concurrently. A key is
reconciled again after a failure (with back-off, and soon after an outage of the
server), after a conflict, and at the time that the reconciler requested. It is not
reconciled before the caches show its last writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.event_correlator import ObjectRef
from windlass.client.informers import Informer, Route
from windlass.client.outages import SPREAD_SECONDS
from windlass.controllers.apply_effects import EffectExecutor, EffectOutcome, Failure
from windlass.controllers.effects import Create, Effects, EmitEvent
from windlass.controllers.expectations import Expectations
from windlass.controllers.metrics import ControllerMetrics
from windlass.controllers.work_queue import WorkQueue
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random

log = logging.getLogger("windlass.controllers")

CONFLICT_SECONDS = 0.02
UNSATISFIED_SECONDS = 1.0
MAX_REMEMBERED_EVENTS = 10_000
LONG_SECONDS = 0.005
"""Minimum duration (seconds) of a reconciliation after which its key rests."""
REST_FACTOR, MAX_REST_SECONDS = 8.0, 0.5
"""Length of a rest as a multiple of the reconciliation, and its maximum in seconds.

Each pod of a gang of thousands changes several times, and a reconciliation looks at all
pods. So changes that arrive during a rest are reconciled together."""


class Informers(Protocol):
    """Source of informers. Each controller takes those of the kinds that it reads."""

    def informer(
        self, resource: Resource, *, labels: str = "", decode: Any = dict, later: bool = False
    ) -> Informer[Any]: ...

    def drop(self, informer: Informer[Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class WatchedCollection:
    """Watched collection. ``keys(record)`` returns the keys to reconcile after a change.

    ``matters(old, new)`` returns whether an update affects them; ``None``: every update
    does. ``route``: records that have keys; ``None``: all may.
    """

    informer: Informer[Any]
    keys: Callable[[Any], Iterable[str]]
    matters: Callable[[Any, Any], bool] | None = None
    route: Route[Any] | None = None


class Reconciler(Protocol):
    """Decides what to do about one key.

    ``pause_seconds``: minimum interval between two reconciliations of one key that
    wrote.
    """

    name: str
    pause_seconds: float

    def watches(self) -> Iterable[WatchedCollection]:
        """The collections to follow."""
        ...

    def initial_keys(self) -> Iterable[str]:
        """Return the keys to reconcile after the start in any case."""
        ...

    async def reconcile(self, key: str) -> Effects:
        """Observe the object of a key and return what to do. It may read, and writes nothing."""
        ...


@runtime_checkable
class NotesFailures(Protocol):
    """Reconciler that tells in a status why its last writes failed."""

    def note_failures(self, key: str, failures: Sequence[Failure]) -> None:
        """Note the failures of a reconciliation; none if all its writes succeeded."""
        ...


@runtime_checkable
class GrowingReconciler(Protocol):
    """Reconciler that follows more collections while it runs."""

    def grow(self, follow: Callable[[WatchedCollection], None]) -> None:
        """Keep ``follow``, which adds a collection."""
        ...


class EventSink(Protocol):
    def event(self, ref: ObjectRef, type: str, reason: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """Dependencies shared by all runners."""

    client: Client
    recorder: EventSink
    clock: Clock
    rng: Random
    metrics: ControllerMetrics
    adjust: Callable[[Effects], Effects] = lambda effects: effects
    """Changes the effects of every reconciliation before they are executed."""


class ReconcilerRunner:
    """One reconciler at work."""

    def __init__(self, reconciler: Reconciler, context: RunnerContext, *, workers: int = 4) -> None:
        self._reconciler = reconciler
        self._context = context
        self._workers = workers
        self._alive: set[int] = set()
        self._group: asyncio.TaskGroup | None = None
        self._executor = EffectExecutor(context.client)
        self._backoffs: dict[str, Backoff] = {}
        self._emitted: set[tuple[ObjectRef, str, str]] = set()
        self._wrote_at: dict[str, float] = {}
        self._rests_until: dict[str, float] = {}
        self._notes_failures = reconciler if isinstance(reconciler, NotesFailures) else None
        self.queue = WorkQueue(context.clock)
        self.expectations = Expectations()
        metrics = context.metrics
        self._reconciles = metrics.reconciles.labels(reconciler.name)
        self._writes = metrics.writes.labels(reconciler.name)
        self._reconcile_seconds = metrics.reconcile_seconds.labels(reconciler.name)
        metrics.waiting.labels(reconciler.name).set_function(lambda: len(self.queue))
        self._watches = tuple(reconciler.watches())
        for watch in self._watches:
            self._follow(watch)
        if isinstance(reconciler, GrowingReconciler):
            reconciler.grow(self._follow)

    def _follow(self, watch: WatchedCollection) -> None:
        self.expectations.follow(watch.informer)
        self._listen(watch)

    @property
    def name(self) -> str:
        return self._reconciler.name

    def _listen(self, watch: WatchedCollection) -> None:
        def changed(record: Any) -> None:
            for key in watch.keys(record):
                self.queue.add(key)

        def updated(old: Any, new: Any) -> None:
            if watch.matters is not None and not watch.matters(old, new):
                return
            keys = dict.fromkeys(watch.keys(new))
            keys.update(dict.fromkeys(watch.keys(old)))
            for key in keys:
                self.queue.add(key)

        watch.informer.add_handler(changed, updated, changed, route=watch.route)

    async def run(self) -> None:
        """Work until cancelled, beginning when every followed collection is synced."""
        for watch in self._watches:
            await watch.informer.wait_synced()
        for key in self._reconciler.initial_keys():
            self.queue.add(key)
        with self._context.client.outages.followed(self._retry_failed):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.queue.run_timers(), name=f"{self.name} timers")
                    self._group = group
                    self._start_workers()
            finally:  # it may be run again
                self._group = None
                self._alive.clear()

    def set_workers(self, workers: int) -> None:
        """Set the number of concurrent keys. A surplus worker ends after its current key."""
        self._workers = workers
        self._start_workers()

    def _start_workers(self) -> None:
        if self._group is not None:
            for number in sorted(set(range(self._workers)) - self._alive):
                self._alive.add(number)
                self._group.create_task(self._work(number), name=f"{self.name} worker {number}")

    async def _work(self, number: int) -> None:
        while number < self._workers:
            key = await self.queue.get()
            try:
                await self._handle(key)
            except Exception:
                # An exception in one reconciliation must not stop the others. It is
                # logged with its trace, and the key is retried with back-off.
                log.exception("%s: %s: reconciliation failed", self.name, key)
                self._count_failure("error")
                self._requeue_with_backoff(key)
            finally:
                self.queue.done(key)
        self._alive.discard(number)

    def _wait_before(self, key: str) -> float:
        """Return the seconds until the key may be reconciled; 0: now."""
        now = self._context.clock.monotonic()
        if not self.expectations.satisfied(key, now):
            return UNSATISFIED_SECONDS
        until = self._rests_until.get(key)
        if until is not None:
            if now < until:
                return until - now
            del self._rests_until[key]
        rest = self._wrote_at.get(key, now) + self._reconciler.pause_seconds - now
        if key in self._wrote_at and rest > 0:
            return rest
        self._wrote_at.pop(key, None)
        return 0.0

    def _rest(self, key: str, started: float) -> None:
        """Let the key rest after a long reconciliation."""
        now = self._context.clock.monotonic()
        if now - started >= LONG_SECONDS:
            self._rests_until[key] = now + min(MAX_REST_SECONDS, REST_FACTOR * (now - started))

    async def _handle(self, key: str) -> None:
        wait = self._wait_before(key)
        if wait > 0:
            self.queue.add_after(key, wait)
            return
        self._reconciles.inc()
        started = self._context.clock.monotonic()
        try:
            effects = self._context.adjust(await self._reconciler.reconcile(key))
        except (StatusError, Unreachable) as problem:
            log.warning("%s: %s: cannot read: %s", self.name, key, problem)
            self._count_failure("unreachable")
            self._requeue_with_backoff(key)
            return
        self._rest(key, started)
        for event in effects.events:
            self._emit(event)
        if not effects.stages:
            self._forget_failures(key)
            if effects.requeue_after is not None:
                self.queue.add_after(key, effects.requeue_after)
            return
        with self.expectations.writing():
            outcome = await self._executor.perform(effects)
            now = self._context.clock.monotonic()
            self.expectations.expect(key, outcome.written, now)
        for event in outcome.events:
            self._emit(event)
        if self._notes_failures is not None:
            self._notes_failures.note_failures(key, outcome.failures)
        self._writes.inc(len(outcome.written))
        self._reconcile_seconds.observe(now - started)
        if self._reconciler.pause_seconds > 0:
            self._wrote_at[key] = now
        self._finish(key, effects, outcome)

    def _finish(self, key: str, effects: Effects, outcome: EffectOutcome) -> None:
        if not outcome.failures:
            self._forget_failures(key)
            if effects.requeue_after is not None:
                self.queue.add_after(key, effects.requeue_after)
            return
        for failure in outcome.failures:
            kind = "conflict" if failure.conflict else "refused" if failure.refused else "unreachable"
            self._count_failure(kind)
            self._report(key, effects, failure)
        if all(failure.conflict for failure in outcome.failures):
            self.queue.add_after(key, CONFLICT_SECONDS)
        else:
            self._requeue_with_backoff(key)

    def _report(self, key: str, effects: Effects, failure: Failure) -> None:
        if failure.conflict:
            return
        what = type(failure.action).__name__.lower()
        log.warning("%s: %s: cannot %s: %s", self.name, key, what, failure.message)
        if failure.refused and effects.about is not None:
            verb = "FailedCreate" if isinstance(failure.action, Create) else "FailedUpdate"
            self._emit(EmitEvent(effects.about, "Warning", verb, f"Error: {failure.message}", lasting=True))

    def _emit(self, event: EmitEvent) -> None:
        """Emit a lasting event once, and any other event each time."""
        if event.lasting:
            key_of_event = (_timeless(event.about), event.reason, event.message)
            if key_of_event in self._emitted:
                return
            if len(self._emitted) > MAX_REMEMBERED_EVENTS:
                self._emitted.clear()
            self._emitted.add(key_of_event)
        self._context.recorder.event(event.about, event.type, event.reason, event.message)

    def _count_failure(self, kind: str) -> None:
        self._context.metrics.failures.labels(self.name, kind).inc()

    def _requeue_with_backoff(self, key: str) -> None:
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = self._backoffs[key] = Backoff(self._context.rng, 0.1, 2.0, 60.0, 0.2)
        self.queue.add_after(key, backoff.next())

    def _forget_failures(self, key: str) -> None:
        self._backoffs.pop(key, None)

    def _retry_failed(self) -> None:
        """Retry failed keys soon, after the server became available again."""
        for key, backoff in self._backoffs.items():
            backoff.reset()
            self.queue.add_after(key, SPREAD_SECONDS * self._context.rng.random())


def _timeless(ref: ObjectRef) -> ObjectRef:
    return ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, ref.uid)

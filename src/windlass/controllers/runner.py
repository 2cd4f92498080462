"""The one loop that drives every reconciler: changes → keys → looks → effects.

A reconciler says which collections it watches and which keys a change concerns; it is asked to look at
one key at a time (never twice at once), and what it answers is carried out. A key is looked at again
after a failure (with back-off, and soon once a server serves again that did not), after a conflict, and
when it asked for that; and it is not looked at before the caches show what its last look has written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.event_correlator import ObjectRef
from windlass.client.informers import Informer
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
UNSETTLED_SECONDS = 1.0
REMEMBERED_WORDS = 10_000


@dataclass(frozen=True, slots=True)
class WatchedCollection:
    """A followed collection. ``keys(record)`` names what must be looked at when the record changes.

    ``matters(old, new)``: whether an update is such a change; None: every update is.
    """

    informer: Informer[Any]
    keys: Callable[[Any], Iterable[str]]
    matters: Callable[[Any, Any], bool] | None = None


class Reconciler(Protocol):
    """``pause_seconds``: the least time between two looks at one key that wrote something."""

    name: str
    pause_seconds: float

    def watches(self) -> Iterable[WatchedCollection]:
        """The collections to follow."""
        ...

    def first_keys(self) -> Iterable[str]:
        """Keys to look at after the start whatever is there."""
        ...

    async def look(self, key: str) -> Effects:
        """Gather what is to be seen of a key, and decide. May read from the server, writes nothing."""
        ...


class EventSink(Protocol):
    def event(self, ref: ObjectRef, type: str, reason: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What every runner shares."""

    client: Client
    recorder: EventSink
    clock: Clock
    rng: Random
    metrics: ControllerMetrics


class ReconcilerRunner:
    """One reconciler at work."""

    def __init__(self, reconciler: Reconciler, around: RunnerContext, *, workers: int = 4) -> None:
        self._reconciler = reconciler
        self._around = around
        self._workers = workers
        self._alive: set[int] = set()
        self._group: asyncio.TaskGroup | None = None
        self._executor = EffectExecutor(around.client)
        self._backoffs: dict[str, Backoff] = {}
        self._said: set[tuple[ObjectRef, str, str]] = set()
        self._wrote_at: dict[str, float] = {}
        self.queue = WorkQueue(around.clock)
        self.expectations = Expectations()
        metrics = around.metrics
        self._looks = metrics.looks.labels(reconciler.name)
        self._writes = metrics.writes.labels(reconciler.name)
        self._look_seconds = metrics.look_seconds.labels(reconciler.name)
        metrics.waiting.labels(reconciler.name).set_function(lambda: len(self.queue))
        self._watches = tuple(reconciler.watches())
        for watch in self._watches:
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

        watch.informer.add_handler(changed, updated, changed)

    async def run(self) -> None:
        """Work until cancelled, beginning when every followed collection is synced."""
        for watch in self._watches:
            await watch.informer.wait_synced()
        for key in self._reconciler.first_keys():
            self.queue.add(key)
        with self._around.client.outages.followed(self._hurry):
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run_timers(), name=f"{self.name} timers")
                self._group = group
                self._start_workers()

    def use_workers(self, workers: int) -> None:
        """So many keys side by side from now on; a worker that is one too many ends after its next key."""
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
                # One object that a reconciler cannot cope with must not stop the others; it is told
                # with its trace and tried again ever more rarely.
                log.exception("%s: %s: looking failed", self.name, key)
                self._count_failure("error")
                self._later(key)
            finally:
                self.queue.done(key)
        self._alive.discard(number)

    def _wait_before(self, key: str) -> float:
        """Seconds until the key may be looked at; 0 is now."""
        now = self._around.clock.monotonic()
        if not self.expectations.settled(key, now):
            return UNSETTLED_SECONDS
        rest = self._wrote_at.get(key, now) + self._reconciler.pause_seconds - now
        if key in self._wrote_at and rest > 0:
            return rest
        self._wrote_at.pop(key, None)
        return 0.0

    async def _handle(self, key: str) -> None:
        wait = self._wait_before(key)
        if wait > 0:
            self.queue.add_after(key, wait)
            return
        self._looks.inc()
        begun = self._around.clock.monotonic()
        try:
            effects = await self._reconciler.look(key)
        except (StatusError, Unreachable) as problem:
            log.warning("%s: %s: cannot look: %s", self.name, key, problem)
            self._count_failure("unreachable")
            self._later(key)
            return
        for event in effects.events:
            self._say(event)
        if not effects.stages:
            self._forget_failures(key)
            if effects.requeue_after is not None:
                self.queue.add_after(key, effects.requeue_after)
            return
        outcome = await self._executor.perform(effects)
        self._writes.inc(len(outcome.written))
        now = self._around.clock.monotonic()
        self._look_seconds.observe(now - begun)
        self.expectations.promise(key, outcome.written, now)
        if self._reconciler.pause_seconds > 0:
            self._wrote_at[key] = now
        self._settle(key, effects, outcome)

    def _settle(self, key: str, effects: Effects, outcome: EffectOutcome) -> None:
        if not outcome.failures:
            self._forget_failures(key)
            if effects.requeue_after is not None:
                self.queue.add_after(key, effects.requeue_after)
            return
        for failure in outcome.failures:
            kind = "conflict" if failure.conflict else "refused" if failure.refused else "unreachable"
            self._count_failure(kind)
            self._tell(key, effects, failure)
        if all(failure.conflict for failure in outcome.failures):
            self.queue.add_after(key, CONFLICT_SECONDS)
        else:
            self._later(key)

    def _tell(self, key: str, effects: Effects, failure: Failure) -> None:
        if failure.conflict:
            return
        what = type(failure.action).__name__.lower()
        log.warning("%s: %s: cannot %s: %s", self.name, key, what, failure.message)
        if failure.refused and effects.about is not None:
            verb = "FailedCreate" if isinstance(failure.action, Create) else "FailedUpdate"
            self._say(EmitEvent(effects.about, "Warning", verb, f"Error: {failure.message}", lasting=True))

    def _say(self, event: EmitEvent) -> None:
        """What lasts is said once, what happens is said each time."""
        if event.lasting:
            words = (_timeless(event.about), event.reason, event.message)
            if words in self._said:
                return
            if len(self._said) > REMEMBERED_WORDS:
                self._said.clear()
            self._said.add(words)
        self._around.recorder.event(event.about, event.type, event.reason, event.message)

    def _count_failure(self, kind: str) -> None:
        self._around.metrics.failures.labels(self.name, kind).inc()

    def _later(self, key: str) -> None:
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = self._backoffs[key] = Backoff(self._around.rng, 0.1, 2.0, 60.0, 0.2)
        self.queue.add_after(key, backoff.next())

    def _forget_failures(self, key: str) -> None:
        self._backoffs.pop(key, None)

    def _hurry(self) -> None:
        """The server serves again: what failed is looked at again soon."""
        for key, backoff in self._backoffs.items():
            backoff.reset()
            self.queue.add_after(key, SPREAD_SECONDS * self._around.rng.random())


def _timeless(ref: ObjectRef) -> ObjectRef:
    return ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, ref.uid)

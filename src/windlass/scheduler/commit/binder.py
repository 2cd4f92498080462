"""Carries out binds: concurrently, as many at once as the server bears.

Every bind ends in exactly one :class:`BindResult`. What the server does not answer is asked again until
``give_up_seconds``. A conflict, and a failure of which it is not certain that nothing was done, is looked into until
there is an answer, for room that is given to another while the pod may stand there is given twice: a bind whose
answer was lost is a success after all; a pod that another scheduler took is a loss, and the pod as it is now is
handed back.

Binds come in batches. What a batch writes first (a gang's reservation, what its volumes need) is written
before the first of its binds, and its volumes are waited for: either all of a batch begins, or nothing. What has
begun is finished, batch by batch, before another begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.responses import is_missing, may_pass, retry_after
from windlass.engine.decision import Bind
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.tasks import TaskGroup
from windlass.model.devices.assignment import own_annotations
from windlass.observe import logs
from windlass.scheduler.commit.concurrency_limit import AdaptiveLimit

VOLUME_SECONDS = 600.0
"""So long may volumes take to be made; kube-scheduler's ``bindTimeoutSeconds``."""
OVERLOAD = (429, 503, 504)
UNSURE_SECONDS = 0.1
"""While somebody else may lead, whether that is still so is asked so often."""
STRAY_SECONDS = 5.0
"""So long is a refusal that may pass not believed of what goes before a batch."""
_DENIED = (401, 403)
_DENIED_SECONDS = 30.0
"""So long is asked all the same: a server that has just started denies everything until it knows the rules."""
log = logs.get("scheduler")


@dataclass(frozen=True, slots=True)
class BindResult:
    """``bound``: the pod is on the decided node. ``pod`` is its newest state where that was looked up.

    ``gone``: there is no such pod any more. ``recalled``: it was not sent. ``seconds``: how long the binding took.
    """

    bind: Bind
    bound: bool
    message: str = ""
    pod: views.Pod | None = None
    gone: bool = False
    recalled: bool = False
    seconds: float = 0.0


class Withdrawn(Exception):
    """Why a bind is not to be sent any more, found as what goes before it is put together."""


@dataclass(frozen=True, slots=True)
class PreBindWrite:
    """A merge patch that goes before a bind. ``vital``: without it nothing may be bound, else only where the
    object is gone. ``what`` is said of it where it fails."""

    resource: resources.Resource
    namespace: str
    name: str
    body: Mapping[str, Any]
    subresource: str | None = None
    vital: bool = True

    @property
    def what(self) -> str:
        return f"{self.resource.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class BindBatch:
    """Binds that begin together. ``settled`` is asked after ``writes``: what is in the way for good, in
    words; ``""`` if nothing is; ``None`` while something is to be waited for. ``proven`` asks the server, last.
    ``undo``: what takes back what was written, if nothing is bound in the end."""

    binds: tuple[Bind, ...]
    writes: tuple[PreBindWrite, ...] = ()
    settled: Callable[[], str | None] | None = None
    proven: Callable[[], Awaitable[str]] | None = None
    undo: Callable[[], Sequence[PreBindWrite]] | None = None


class SerialNodes(Protocol):
    """Nodes on which pods are bound one by one, because of somebody who reads there who is next."""

    def due(self, bind: Bind) -> bool:
        """Whether a bind has to wait for its turn."""
        ...

    async def take(self, bind: Bind) -> str:
        """Returns when it is its turn: ``""``; or why it never is."""
        ...

    async def give_back(self, bind: Bind) -> None:
        """It was not bound after all. Never raises."""
        ...

    def bound(self, bind: Bind) -> None:
        """It was."""
        ...


def _own_words(bind: Bind, now: float) -> Mapping[str, str]:
    return own_annotations(bind.devices)


def _no_writes(bind: Bind) -> Sequence[PreBindWrite]:
    return ()


def _always(now: float) -> bool:
    return True


def _no_objection(bind: Bind) -> str:
    return ""


FEW = 4


class Binder:
    """``done`` is called once per bind, in the order of completion. ``words`` gives the annotations that go with
    a binding, ``before`` what is written just before it; ``objection`` says why a bind is not to be sent any more,
    asked before each send; while it is not ``sure`` that nobody else leads, nothing is written before binds; while
    ``alone(now)`` is false, another scheduler is at work and only :data:`FEW` are under way at once."""

    def __init__(
        self,
        client: Client,
        done: Callable[[BindResult], None],
        *,
        clock: Clock,
        rng: Random,
        limit: AdaptiveLimit,
        give_up_seconds: float = 30.0,
        words: Callable[[Bind, float], Mapping[str, str]] = _own_words,
        before: Callable[[Bind], Sequence[PreBindWrite]] = _no_writes,
        objection: Callable[[Bind], str] = _no_objection,
        sure: Callable[[], bool] = lambda: True,
        alone: Callable[[float], bool] = _always,
        turns: SerialNodes | None = None,
    ) -> None:
        self._turns = turns
        self._before = before
        self._alone = alone
        self._objection = objection
        self._sure = sure
        self._words = words
        self.limit = limit
        self._client = client
        self._done = done
        self._clock = clock
        self._rng = rng
        self._give_up_seconds = give_up_seconds
        self._queue: deque[Bind | BindBatch] = deque()
        self._begun: deque[Bind] = deque()
        """Of batches whose writes are done."""
        self._task_group = TaskGroup()
        self._under_way = 0
        self._resuming = False

    @property
    def busy(self) -> int:
        """Requests under way, and binds and batches waiting for their turn."""
        return self._under_way + len(self._begun) + len(self._queue)

    def submit(self, batches: Iterable[BindBatch]) -> None:
        """Carry out in this order (starts are in order, ends need not be)."""
        for batch in batches:
            if batch.writes or batch.settled is not None:
                self._queue.append(batch)
            else:
                self._queue.extend(batch.binds)
        self._pump()

    async def run(self) -> None:
        """Watch over the binds under way until cancelled, then abandon them. Raises their defects."""
        try:
            await self._task_group.watch()
        finally:
            self._begun.clear()
            self._queue.clear()
            await self._task_group.stop()

    def _pump(self) -> None:
        now = self._clock.monotonic()
        most = self.limit.ceiling if self._alone(now) else FEW
        queues = (self._begun, self._queue)
        while any(queues) and self._under_way < most and self.limit.may_start(self._under_way, now):
            work = self._begun.popleft() if self._begun else self._queue.popleft()
            if isinstance(work, BindBatch):
                self._under_way += 1
                self._task_group.start(self._begin(work), "binds begin")
            elif objection := self._objection(work):
                self._done(BindResult(work, False, objection, recalled=True))
            else:
                self._under_way += 1
                self._task_group.start(self._carry_out(work), "bind")
        if any(queues) and not self._under_way and not self._resuming:
            self._resuming = True
            self._task_group.start(self._resume(max(0.0, self.limit.paused_until - now)), "binds resume")

    async def _resume(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._resuming = False
        self._pump()

    # ------------------------------------------------------------------ batches

    async def _begin(self, batch: BindBatch) -> None:
        """Write what goes before the binds, and wait for what they need."""
        recalled = False
        try:
            problem = await self._prepare(list(batch.writes), self._clock.monotonic())
        finally:
            self._under_way -= 1
        if not problem and batch.settled is not None:
            self._pump()  # who waits for volumes holds nobody up
            problem = await self._settle(batch.settled)
            if not problem:
                problem = self._recalled(batch) or (await batch.proven() if batch.proven is not None else "")
                recalled = bool(problem)
        if problem and batch.undo is not None:
            failed = await self._prepare(list(batch.undo()), self._clock.monotonic())
            if failed:
                log.warning("not taken back", why=failed)
        if problem:
            for bind in batch.binds:
                self._done(BindResult(bind, False, problem, recalled=recalled))
        else:
            self._begun.extend(batch.binds)
        self._pump()

    def _recalled(self, batch: BindBatch) -> str:
        """While a batch waited somebody else may have taken the room of one of its binds: then none is sent."""
        found = {bind.task: why for bind in batch.binds if (why := self._objection(bind))}
        return next(iter(found.values()), "")

    async def _prepare(self, writes: list[PreBindWrite], started: float) -> str:
        """Write all of them, again and again while the server is overloaded. What is in the way for good."""
        backoff = self._backoff()
        while True:
            while not self._sure():  # another instance's reservations may stand there by now
                await self._clock.sleep(UNSURE_SECONDS)
            try:
                return await self._write(writes, started + STRAY_SECONDS)
            except (StatusError, Unreachable) as error:
                stray = isinstance(error, StatusError) and error.code not in OVERLOAD
                if not stray and self._overloaded(error, started):
                    return error.message
                await self._pause(error, backoff)

    async def _settle(self, settled: Callable[[], str | None]) -> str:
        deadline = self._clock.monotonic() + VOLUME_SECONDS
        pause = 0.05
        while (problem := settled()) is None:
            if self._clock.monotonic() > deadline:
                return f"its volumes were not there after {VOLUME_SECONDS:g} s"
            await self._clock.sleep(pause)
            pause = min(2.0, pause * 1.5)
        return problem

    async def _write(self, writes: list[PreBindWrite], until: float) -> str:
        """Write what is left of ``writes``; what is in the way for good, in words. Raises ``Unreachable``,
        and ``StatusError`` where it is worth trying again: ``until`` then (monotonic) whatever may pass is."""
        while writes:
            write = writes[0]
            try:
                await self._client.patch(
                    write.resource,
                    write.name,
                    dict(write.body),
                    write.namespace or None,
                    subresource=write.subresource,
                )
            except StatusError as error:
                if error.code in OVERLOAD or (may_pass(error) and self._clock.monotonic() < until):
                    raise
                problem = f"{write.what} could not be prepared: {error.message}"
                if write.vital or error.code == 404:
                    return problem
                log.warning("bound without it", why=problem)
            del writes[0]
        return ""

    # ------------------------------------------------------------------ one bind

    async def _carry_out(self, bind: Bind) -> None:
        try:
            if self._turns is not None and self._turns.due(bind):
                result = await self._in_turn(bind, self._turns)
            else:
                result = await self._try(bind, self._clock.monotonic())
        finally:
            self._under_way -= 1
        self._done(result)
        self._pump()

    async def _in_turn(self, bind: Bind, turns: SerialNodes) -> BindResult:
        self._under_way -= 1
        self._pump()  # who waits for a turn holds nobody up
        try:
            problem = await turns.take(bind)
        finally:
            self._under_way += 1
        if problem:
            return BindResult(bind, False, problem)
        result = await self._try(bind, self._clock.monotonic())
        if result.bound:
            turns.bound(bind)
        else:
            await turns.give_back(bind)
        return result

    async def _try(self, bind: Bind, started: float) -> BindResult:
        namespace, _, name = bind.task.partition("/")
        annotations = dict(self._words(bind, self._clock.now())) or None
        backoff = None
        uncertain = False
        try:
            writes = list(self._before(bind))
        except Withdrawn as error:
            return BindResult(bind, False, str(error), recalled=True)
        while True:
            try:
                if writes and (problem := await self._write(writes, started)):
                    return BindResult(bind, False, problem)
                if objection := self._objection(
                    bind
                ):  # asked last before each send: who was frozen may have slept
                    unsent = BindResult(bind, False, objection, recalled=True)
                    return await self._look(bind, objection, started) if uncertain else unsent
                sent = self._clock.monotonic()
                await self._client.bind(namespace, name, bind.node, uid=bind.uid, annotations=annotations)
            except (StatusError, Unreachable) as error:
                uncertain = uncertain or _uncertain(error)
                result = await self._judge(bind, error, started, uncertain)
                if result is not None:
                    return result
                backoff = backoff or self._backoff()
                await self._pause(error, backoff)
                continue
            now = self._clock.monotonic()
            self.limit.succeeded(now - sent)
            return BindResult(bind, True, seconds=now - started)

    def _backoff(self) -> Backoff:
        return Backoff(self._rng, 0.1, 2.0, 5.0, 0.5)

    async def _pause(self, error: StatusError | Unreachable, backoff: Backoff) -> None:
        asked = retry_after(error) if isinstance(error, StatusError) else None
        await self._clock.sleep(backoff.next() if asked is None else asked)

    def _overloaded(self, error: StatusError | Unreachable, started: float) -> bool:
        """The server bears less than it is asked. Whether that has lasted too long."""
        now = self._clock.monotonic()
        self.limit.overloaded(now, retry_after(error) if isinstance(error, StatusError) else None)
        return now - started > self._give_up_seconds

    async def _judge(
        self, bind: Bind, error: StatusError | Unreachable, started: float, uncertain: bool
    ) -> BindResult | None:
        """What a failure means; None to try again. ``uncertain``: this or an earlier try may have bound the pod."""
        if isinstance(error, Unreachable) or error.code in OVERLOAD:
            if not self._overloaded(error, started):
                return None
        elif is_missing(error):
            return BindResult(bind, False, error.message, gone=True)
        elif error.code == 409:
            uncertain = True
        message = error.message
        return await self._look(bind, message, started) if uncertain else BindResult(bind, False, message)

    async def _look(self, bind: Bind, message: str, started: float) -> BindResult:
        """Whose is the pod now? Asked until the server says so, unless it says that nobody tells us. ``message``: why
        it may not be bound."""
        backoff = self._backoff()
        until = self._clock.monotonic() + _DENIED_SECONDS
        while True:
            try:
                pod = await self.look_up(bind.task)
                break
            except (StatusError, Unreachable) as silence:
                denied = isinstance(silence, StatusError) and silence.code in _DENIED
                if denied and self._clock.monotonic() >= until:
                    return BindResult(bind, False, message)
                await self._pause(silence, backoff)
        if pod is None or pod.uid != bind.uid:
            return BindResult(bind, False, message, pod, gone=True)
        if pod.node_name == bind.node:
            return BindResult(bind, True, pod=pod, seconds=self._clock.monotonic() - started)
        return BindResult(bind, False, message, pod)

    async def look_up(self, key: str) -> views.Pod | None:
        """The pod as the server has it; None if there is none. Raises ``StatusError``, ``Unreachable``."""
        namespace, _, name = key.partition("/")
        try:
            found = await self._client.get(resources.PODS, name, namespace)
        except StatusError as error:
            if is_missing(error):
                return None
            raise
        return views.decode_pod(views.encode(found))


def _uncertain(error: StatusError | Unreachable) -> bool:
    """Whether what was asked may have been done all the same, or be done yet: the server, or a proxy before it, failed,
    or did not wait for what is behind it."""
    return error.processed if isinstance(error, Unreachable) else error.code >= 500 or error.code == 408

"""Binder: sends binds concurrently, as many at once as the server bears.

Every bind ends in exactly one
:class:`~windlass.scheduler.commit.bind_batch.BindResult`. An unanswered bind is
repeated until ``give_up_seconds``. A conflict, or a failure after which the pod may be
bound all the same, is resolved by looking the pod up until the server answers.
Otherwise the capacity could be given to another pod as well. A bind without an answer
may be a success after all. A pod that another scheduler has bound is a failure, and its
current state is part of the result.

Binds come in batches. The writes of a batch (a gang's reservation, what its volumes
need) come before the first of its binds, and its conditions are awaited: either all
binds of a batch begin or none. What has begun is finished, batch by batch, before
another begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.responses import is_missing
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.tasks import TaskGroup
from windlass.observe import logs
from windlass.scheduler.commit.bind_batch import BindBatch, BindResult, PreBindWrite, Withdrawn
from windlass.scheduler.commit.bind_checks import BindChecks
from windlass.scheduler.commit.bind_queue import BindQueue
from windlass.scheduler.commit.node_locks import SerialNodes
from windlass.scheduler.commit.pod_lookup import PodLookup
from windlass.scheduler.commit.pre_bind_writer import PreBindWriter
from windlass.scheduler.commit.request_retry import OVERLOAD, new_backoff, pause

MAX_CONTESTED = 4
"""Maximum number of binds in progress while another scheduler binds pods."""
_DENIED = (401, 403)
_DENIED_SECONDS = 30.0
"""Time in seconds for which a look-up is repeated although the server denies it.

A server that has just started denies everything until it has loaded its rules.
"""
log = logs.get("scheduler")


class Binder:
    """Sends binds.

    ``done`` is called once per bind, in the order of completion. ``annotations(bind,
    now)`` returns those that go with a binding. ``pre_bind_writes(bind)`` returns what
    is written just before it, and may raise
    :class:`~windlass.scheduler.commit.bind_batch.Withdrawn`. ``checks`` are made before
    each send.
    """

    def __init__(
        self,
        client: Client,
        queue: BindQueue,
        checks: BindChecks,
        node_locks: SerialNodes,
        writer: PreBindWriter,
        look_up: PodLookup,
        done: Callable[[BindResult], None],
        *,
        clock: Clock,
        rng: Random,
        annotations: Callable[[Bind, float], Mapping[str, str]],
        pre_bind_writes: Callable[[Bind], Sequence[PreBindWrite]],
    ) -> None:
        self._client = client
        self._queue = queue
        self._checks = checks
        self._node_locks = node_locks
        self._writer = writer
        self._look_up = look_up
        self._done = done
        self._clock = clock
        self._rng = rng
        self._annotations = annotations
        self._pre_bind_writes = pre_bind_writes
        self._task_group = TaskGroup()
        self._resuming = False

    def submit(self, batches: Iterable[BindBatch]) -> None:
        """Begin in this order. Binds may end in another one."""
        self._queue.add(batches)
        self._start_next()

    async def run(self) -> None:
        """Watch over the binds in progress until cancelled, then abandon them.

        Raises their defects.
        """
        try:
            await self._task_group.watch()
        finally:
            self._queue.clear()
            await self._task_group.stop()

    def _start_next(self) -> None:
        now, queue, limit = self._clock.monotonic(), self._queue, self._queue.limit
        maximum = limit.ceiling if self._checks.is_unrivaled(now) else MAX_CONTESTED
        while queue and queue.in_progress < maximum and limit.may_start(queue.in_progress, now):
            work = queue.take()
            if isinstance(work, BindBatch):
                queue.in_progress += 1
                self._task_group.start(self._begin(work), "binds begin")
            elif objection := self._checks.objection(work):
                self._done(BindResult(work, False, objection, recalled=True))
            else:
                queue.in_progress += 1
                self._task_group.start(self._bind(work), "bind")
        if queue and not queue.in_progress and not self._resuming:
            self._resuming = True
            self._task_group.start(self._resume(max(0.0, limit.paused_until - now)), "binds resume")

    async def _resume(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._resuming = False
        self._start_next()

    # ------------------------------------------------------------------ batches

    async def _begin(self, batch: BindBatch) -> None:
        """Perform the writes of a batch, and wait for its conditions."""
        recalled = False
        try:
            problem = await self._writer.write_all(batch.writes)
        finally:
            self._queue.in_progress -= 1
        if not problem and batch.ready is not None:
            self._start_next()  # a batch that waits for volumes delays no other
            problem = await self._writer.wait(batch.ready)
            if not problem:
                problem = self._objection_to(batch)
                if not problem and batch.verify is not None:
                    problem = await batch.verify()
                recalled = bool(problem)
        if problem:
            if batch.undo is not None:
                failed = await self._writer.write_all(batch.undo())
                if failed:
                    log.warning("writes of a failed batch are not undone", why=failed)
            for bind in batch.binds:
                self._done(BindResult(bind, False, problem, recalled=recalled))
        else:
            self._queue.add_prepared(batch.binds)
        self._start_next()

    def _objection_to(self, batch: BindBatch) -> str:
        """Return an objection to any bind of the batch: then none is sent.

        While the batch waited, another scheduler may have taken the capacity.
        """
        objections = {bind.task: why for bind in batch.binds if (why := self._checks.objection(bind))}
        return next(iter(objections.values()), "")

    # ------------------------------------------------------------------ one bind

    async def _bind(self, bind: Bind) -> None:
        try:
            if self._node_locks.applies_to(bind):
                result = await self._with_node_lock(bind)
            else:
                result = await self._attempt(bind, self._clock.monotonic())
        finally:
            self._queue.in_progress -= 1
        self._done(result)
        self._start_next()

    async def _with_node_lock(self, bind: Bind) -> BindResult:
        self._queue.in_progress -= 1
        self._start_next()  # a bind that waits for a lock delays no other
        try:
            problem = await self._node_locks.acquire(bind)
        finally:
            self._queue.in_progress += 1
        if problem:
            return BindResult(bind, False, problem)
        result = await self._attempt(bind, self._clock.monotonic())
        if result.bound:
            self._node_locks.bound(bind)
        else:
            await self._node_locks.release(bind)
        return result

    async def _attempt(self, bind: Bind, started: float) -> BindResult:
        """Send a bind until its result is known."""
        namespace, _, name = bind.task.partition("/")
        annotations = dict(self._annotations(bind, self._clock.now())) or None
        backoff = None
        uncertain = False
        try:
            writes = list(self._pre_bind_writes(bind))
        except Withdrawn as error:
            return BindResult(bind, False, str(error), recalled=True)
        while True:
            try:
                if writes and (problem := await self._writer.write(writes, started)):
                    return BindResult(bind, False, problem)
                # Asked just before each send: the process may have been suspended since.
                if objection := self._checks.objection(bind):
                    if uncertain:
                        return await self._resolve(bind, objection, started)
                    return BindResult(bind, False, objection, recalled=True)
                sent = self._clock.monotonic()
                await self._client.bind(namespace, name, bind.node, uid=bind.uid, annotations=annotations)
            except (StatusError, Unreachable) as error:
                uncertain = uncertain or _may_be_done(error)
                result = await self._failed(bind, error, started, uncertain)
                if result is not None:
                    return result
                backoff = backoff or new_backoff(self._rng)
                await pause(self._clock, error, backoff)
                continue
            now = self._clock.monotonic()
            self._queue.limit.succeeded(now - sent)
            return BindResult(bind, True, seconds=now - started)

    async def _failed(
        self, bind: Bind, error: StatusError | Unreachable, started: float, uncertain: bool
    ) -> BindResult | None:
        """Return the result of a failed attempt, ``None`` for another attempt.

        ``uncertain``: this or an earlier attempt may have bound the pod.
        """
        if isinstance(error, Unreachable) or error.code in OVERLOAD:
            if not self._writer.overloaded(error, started):
                return None
        elif is_missing(error):
            return BindResult(bind, False, error.message, gone=True)
        elif error.code == 409:
            uncertain = True
        message = error.message
        return await self._resolve(bind, message, started) if uncertain else BindResult(bind, False, message)

    async def _resolve(self, bind: Bind, message: str, started: float) -> BindResult:
        """Look up where the pod is, until the server answers or denies it for good.

        ``message``: why the pod may not be bound.
        """
        backoff = new_backoff(self._rng)
        until = self._clock.monotonic() + _DENIED_SECONDS
        while True:
            try:
                pod = await self._look_up(bind.task)
                break
            except (StatusError, Unreachable) as error:
                denied = isinstance(error, StatusError) and error.code in _DENIED
                if denied and self._clock.monotonic() >= until:
                    return BindResult(bind, False, message)
                await pause(self._clock, error, backoff)
        if pod is None or pod.uid != bind.uid:
            return BindResult(bind, False, message, pod, gone=True)
        if pod.node_name == bind.node:
            return BindResult(bind, True, pod=pod, seconds=self._clock.monotonic() - started)
        return BindResult(bind, False, message, pod)


def _may_be_done(error: StatusError | Unreachable) -> bool:
    """Return whether a failed request may have been carried out, or may be yet.

    The server, or a proxy before it, failed or did not wait for what is behind it.
    """
    return error.processed if isinstance(error, Unreachable) else error.code >= 500 or error.code == 408

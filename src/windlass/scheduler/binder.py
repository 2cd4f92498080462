"""Carries out binds: concurrently, as many at once as the server bears.

Every bind ends in exactly one :class:`Outcome`. A conflict is looked into: a bind whose answer was lost
is a success after all; a pod that another scheduler took is a loss, and the pod as it is now is handed
back. What cannot be known (no answer) is asked again until ``give_up_seconds``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.engine.decision import Bind
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.model.claims import ClaimWrite
from windlass.model.handout import own_words
from windlass.model.volumes import StorageWrite
from windlass.scheduler.limiter import AdaptiveLimit
from windlass.scheduler.waiting import Keeper


@dataclass(frozen=True, slots=True)
class Outcome:
    """``bound``: the pod is on the decided node. ``pod`` is its newest state where that was looked up.

    ``gone``: there is no such pod any more. ``seconds``: how long the binding took.
    """

    bind: Bind
    bound: bool
    message: str = ""
    pod: views.Pod | None = None
    gone: bool = False
    seconds: float = 0.0


def _no_writes(task: str, node: str) -> Sequence[StorageWrite]:
    return ()


def _own_words(bind: Bind, now: float) -> Mapping[str, str]:
    return own_words(bind.devices)


def _kind_of(write: StorageWrite | ClaimWrite) -> resources.Resource:
    if isinstance(write, ClaimWrite):
        return resources.RESOURCE_CLAIMS
    return resources.PERSISTENT_VOLUME_CLAIMS if write.namespace else resources.PERSISTENT_VOLUMES


def _no_claims(bind: Bind) -> Sequence[ClaimWrite]:
    return ()


class Binder:
    """``done`` is called once per bind, in the order of completion. ``before`` says what has to be written
    about a pod's claims before it is bound to a node; ``words`` the annotations that go with its binding."""

    def __init__(
        self,
        client: Client,
        done: Callable[[Outcome], None],
        *,
        clock: Clock,
        rng: Random,
        limit: AdaptiveLimit,
        give_up_seconds: float = 30.0,
        before: Callable[[str, str], Sequence[StorageWrite]] = _no_writes,
        words: Callable[[Bind, float], Mapping[str, str]] = _own_words,
        claims: Callable[[Bind], Sequence[ClaimWrite]] = _no_claims,
    ) -> None:
        self._claims = claims
        self._before = before
        self._words = words
        self.limit = limit
        self._client = client
        self._done = done
        self._clock = clock
        self._rng = rng
        self._give_up_seconds = give_up_seconds
        self._queue: deque[Bind] = deque()
        self._keeper = Keeper()
        self._under_way = 0
        self._resuming = False

    @property
    def busy(self) -> int:
        """Binds under way or waiting for their turn."""
        return self._under_way + len(self._queue)

    def submit(self, binds: Sequence[Bind]) -> None:
        """Carry out in this order (starts are in order, ends need not be)."""
        self._queue.extend(binds)
        self._pump()

    async def run(self) -> None:
        """Watch over the binds under way until cancelled, then abandon them. Raises their defects."""
        try:
            await self._keeper.watch()
        finally:
            self._queue.clear()
            await self._keeper.stop()

    def _pump(self) -> None:
        now = self._clock.monotonic()
        while self._queue and self.limit.may_start(self._under_way, now):
            self._under_way += 1
            self._keeper.start(self._carry_out(self._queue.popleft()), "bind")
        if self._queue and not self._under_way and not self._resuming:
            self._resuming = True
            self._keeper.start(self._resume(max(0.0, self.limit.paused_until - now)), "binds resume")

    async def _resume(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._resuming = False
        self._pump()

    async def _carry_out(self, bind: Bind) -> None:
        try:
            outcome = await self._try(bind, self._clock.monotonic())
        finally:
            self._under_way -= 1
        self._done(outcome)
        self._pump()

    async def _try(self, bind: Bind, started: float) -> Outcome:
        namespace, _, name = bind.task.partition("/")
        annotations = dict(self._words(bind, self._clock.now())) or None
        backoff = Backoff(self._rng, 0.1, 2.0, 5.0, 0.5)
        writes = [*self._before(bind.task, bind.node), *self._claims(bind)]
        while True:
            try:
                problem = await self._write(writes)
                if problem:
                    return Outcome(bind, False, problem)
                await self._client.bind(namespace, name, bind.node, uid=bind.uid, annotations=annotations)
            except (StatusError, Unreachable) as error:
                outcome = await self._judge(bind, error, started)
                if outcome is not None:
                    return outcome
                asked = error.retry_after_seconds if isinstance(error, StatusError) else None
                await self._clock.sleep(backoff.next() if asked is None else float(asked))
                continue
            self.limit.succeeded()
            return Outcome(bind, True, seconds=self._clock.monotonic() - started)

    async def _write(self, writes: list[StorageWrite | ClaimWrite]) -> str:
        """Write what is left of ``writes``; what is in the way for good, in words. Raises ``Unreachable``,
        and ``StatusError`` where it is worth trying again."""
        while writes:
            write = writes[0]
            claims = isinstance(write, ClaimWrite)
            kind = (
                resources.RESOURCE_CLAIMS
                if claims
                else resources.PERSISTENT_VOLUME_CLAIMS
                if write.namespace
                else resources.PERSISTENT_VOLUMES
            )
            try:
                await self._client.patch(
                    kind,
                    write.name,
                    dict(write.body),
                    write.namespace or None,
                    subresource="status" if claims else None,
                )
            except StatusError as error:
                if error.code in (429, 503, 504):
                    raise
                return f"{kind.kind} {write.name} could not be prepared: {error.message}"
            del writes[0]
        return ""

    async def _judge(self, bind: Bind, error: StatusError | Unreachable, started: float) -> Outcome | None:
        """What a failure means; None to try again."""
        now = self._clock.monotonic()
        late = now - started > self._give_up_seconds
        if isinstance(error, Unreachable):
            self.limit.overloaded(now)
            return Outcome(bind, False, error.message) if late else None
        if error.code in (429, 503, 504):
            self.limit.overloaded(now, error.retry_after_seconds)
            return Outcome(bind, False, error.message) if late else None
        if error.code == 404:
            return Outcome(bind, False, error.message, gone=True)
        if error.code == 409:
            return await self._look(bind, error, started)
        return Outcome(bind, False, error.message)

    async def _look(self, bind: Bind, conflict: StatusError, started: float) -> Outcome:
        """After a conflict: whose is the pod now?"""
        try:
            pod = await self.look_up(bind.task)
        except (StatusError, Unreachable):
            return Outcome(bind, False, conflict.message)
        if pod is None or pod.uid != bind.uid:
            return Outcome(bind, False, conflict.message, pod, gone=True)
        if pod.node_name == bind.node:
            return Outcome(bind, True, pod=pod, seconds=self._clock.monotonic() - started)
        return Outcome(bind, False, conflict.message, pod)

    async def look_up(self, key: str) -> views.Pod | None:
        """The pod as the server has it; None if there is none. Raises ``StatusError``, ``Unreachable``."""
        namespace, _, name = key.partition("/")
        try:
            found = await self._client.get(resources.PODS, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            raise
        return views.decode_pod(views.encode(found))

"""Initial synchronization of the engine: a whole cluster state is delivered in batches.

The API server needs seconds to list the pods of a large cluster. Pods that have arrived
are delivered meanwhile, so that little is left to do after the last one. No batch
blocks the event loop, and with it health probes, for long. An instance that stands by
does the same, so that it can decide at once.

Invariants: nothing is delivered before all other kinds are synced, and nothing is
decided here. A change that affects all pods, such as a label that some pod selects on,
has the delivered ones delivered again. If that becomes too much, the rest is delivered
once, at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from windlass.engine import deltas
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler.cache.event_handlers import EventHandlers

BATCH_PODS = 500
"""Number of pods delivered together, which takes some tens of milliseconds."""
MAX_REPEATED_PODS = 20_000
"""Maximum number of pods delivered again while others still arrive."""


class InitialSync:
    """Delivers the state of the model in batches.

    ``begin()`` is awaited before the first batch. ``deliver(changes)`` gives deltas to
    the engine. ``wake_up`` is set by every change that ``event_handlers`` see.
    ``now()``: Unix seconds.
    """

    def __init__(
        self,
        event_handlers: EventHandlers,
        model: ClusterModel,
        wake_up: asyncio.Event,
        *,
        begin: Callable[[], Awaitable[None]],
        deliver: Callable[[list[deltas.Delta]], None],
        now: Callable[[], float],
    ) -> None:
        self._event_handlers = event_handlers
        self._model = model
        self._wake_up = wake_up
        self._begin = begin
        self._deliver = deliver
        self._now = now
        self._started = False
        self._delivered = self._repeated = self._label_version = 0

    async def pods(self) -> None:
        """Return once all pods are known. The other kinds must be synced."""
        synced = asyncio.ensure_future(self._event_handlers.wait_pods())
        synced.add_done_callback(lambda _: self._wake_up.set())
        try:
            while not synced.done():
                if self._model.marked_pods >= BATCH_PODS and self._repeated <= MAX_REPEATED_PODS:
                    await self._deliver_batch()
                    continue
                self._wake_up.clear()
                if not synced.done():
                    await self._wake_up.wait()
            await synced
        finally:
            synced.cancel()

    async def rest(self) -> None:
        """Deliver everything but the last batch, which the first cycle takes."""
        await self._start()
        while self._model.marked_pods > BATCH_PODS:
            await self._deliver_batch()

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._begin()

    async def _deliver_batch(self) -> None:
        await self._start()
        version = self._model.label_version
        if version != self._label_version:
            self._label_version = version
            self._repeated += self._delivered
        self._delivered += BATCH_PODS
        self._deliver(self._model.take(self._now(), BATCH_PODS))
        await asyncio.sleep(0)  # other tasks first

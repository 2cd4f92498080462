"""The first reading of a cluster, and whatever else is a whole state at once: the engine is told of it piece by piece.

A large cluster's pods take the API server seconds to list. The engine is told of those that are there meanwhile, so
that hardly anything is left to do once the last one has come; and nothing holds up the event loop, and with it probes,
for longer than a piece takes. One that stands by does the same: who takes over decides at once.

Invariants: nothing is told before all other kinds are known completely; nothing is decided here. What makes all pods
another thing for the engine (a label that some pod selects on) makes it tell those again that it has told: where that
comes to too much, the rest is told at the end, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from windlass.engine import deltas
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler.cache.event_handlers import EventHandlers

PIECE = 500
"""Pods that are told together: some tens of milliseconds."""
MOST_AGAIN = 20_000
"""So many pods at most are told again while others still come."""


class InitialSync:
    """``begin`` is awaited before the first piece. ``tell`` takes what the engine is to be told. ``wake`` is set by
    every change that ``feed`` sees."""

    def __init__(
        self,
        event_handlers: EventHandlers,
        model: ClusterModel,
        wake: asyncio.Event,
        *,
        begin: Callable[[], Awaitable[None]],
        tell: Callable[[list[deltas.Delta]], None],
        time: Callable[[], float],
    ) -> None:
        self._event_handlers = event_handlers
        self._model = model
        self._wake = wake
        self._begin = begin
        self._tell = tell
        self._time = time
        self._begun = False
        self._told = self._again = self._words = 0

    async def pods(self) -> None:
        """Return when all pods are known; the other kinds must be."""
        synced = asyncio.ensure_future(self._event_handlers.wait_pods())
        synced.add_done_callback(lambda _: self._wake.set())
        try:
            while not synced.done():
                if self._model.untold >= PIECE and self._again <= MOST_AGAIN:
                    await self._piece()
                    continue
                self._wake.clear()
                if not synced.done():
                    await self._wake.wait()
            await synced
        finally:
            synced.cancel()

    async def rest(self) -> None:
        """Tell all that is not told yet but the last piece, which the first cycle takes."""
        await self._first()
        while self._model.untold > PIECE:
            await self._piece()

    async def _first(self) -> None:
        if not self._begun:
            self._begun = True
            await self._begin()

    async def _piece(self) -> None:
        await self._first()
        words = self._model.words
        if words != self._words:
            self._words = words
            self._again += self._told
        self._told += PIECE
        self._tell(self._model.take(self._time(), PIECE))
        await asyncio.sleep(0)  # others first

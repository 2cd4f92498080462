"""An election on a thread with an event loop and connections of its own.

What a scheduler does in one piece (a cycle over 150 000 pods may take seconds) must not cost it the lease, nor
may lease requests queue behind binds and lists for the connections that they share. The election itself is
:class:`~windlass.scheduler.leader.election.Election`, unchanged; here its methods are called from the loop of the work.

Invariants: the thread starts with the first call and ends with :meth:`LeaseThread.close`; who is cancelled here has
the call cancelled there; the loss of the lease reaches the work as soon as its loop runs, and what it sends before
asks :attr:`LeaseThread.sure`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.http import HttpOptions, HttpTransport
from windlass.kits import rng as randomness
from windlass.kits.clock import Clock
from windlass.scheduler.leader.election import Election, LeaderLost, LeaseOptions

CONNECTIONS = 2
LEAVE_SECONDS = 5.0


class LeaseThread:
    """``identity`` names this instance: unique per process. ``pace``, ``leading``, ``standing_by``, ``sure`` and
    ``ahead`` are those of the election and may be used from any thread."""

    def __init__(
        self,
        connection: Connection,
        identity: str,
        *,
        user_agent: str,
        clock: Clock,
        options: LeaseOptions | None = None,
    ) -> None:
        self.identity = identity
        rng = randomness.system()
        transport = HttpTransport(connection, options=HttpOptions(limit=CONNECTIONS))
        self._client = Client(transport, user_agent=user_agent, clock=clock, rng=rng)
        self._election = Election(self._client, identity, clock=clock, rng=rng, options=options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.pace = self._election.pace

    @property
    def leading(self) -> bool:
        return self._election.leading

    @property
    def standing_by(self) -> bool:
        return self._election.standing_by

    @property
    def sure(self) -> bool:
        return self._election.sure

    @property
    def ahead(self) -> float:
        return self._election.ahead

    async def acquire(self) -> None:
        """Return once this instance leads."""
        await self._there(self._election.acquire())

    async def hold(self) -> None:
        """Renew until cancelled. Raises :class:`~windlass.scheduler.leader.election.LeaderLost`."""
        await self._there(self._election.hold())

    async def release(self) -> None:
        """Give the lease back, so that the next one need not wait."""
        await self._there(self._election.release())

    async def leave(self) -> None:
        """Give the lease back and end the thread. A server that does not answer is not waited for long: the lease ends
        by itself."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.release()
        await self.close()

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Stand by, then do ``work`` as long as the lease is held, and leave. Raises what the work raises, and
        :class:`~windlass.scheduler.leader.election.LeaderLost`."""
        try:
            await self.acquire()
            async with asyncio.TaskGroup() as group:
                group.create_task(work(), name=name)
                group.create_task(self.hold(), name=f"lease of the {name}")
        except* LeaderLost as lost:
            raise lost.exceptions[0] from None
        finally:
            await self.leave()

    async def close(self) -> None:
        """End the thread, and what still runs on it."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._loop = self._thread = None
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_end(self._client), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()

    async def _there(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="lease", daemon=True)
            self._thread.start()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


async def _end(client: Client) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await client.close()

"""Leader election on a thread with an event loop and connections of its own.

A cycle over 150 000 pods may take seconds and must not cost the scheduler its lease.
Nor may lease requests queue behind binds and lists for shared connections. The election
itself is :class:`~windlass.scheduler.leader.election.Election`. Here its methods are
called from the event loop of the scheduler.

Invariants: the thread starts with the first call and ends with
:meth:`LeaseThread.close`. Cancelling a call here cancels it on the thread. The loss of
the lease reaches the scheduler as soon as its loop runs, and requests sent before check
:meth:`LeaseThread.holds_lease`.
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
"""Timeout of the release in seconds."""


class LeaseThread:
    """Election on its own thread. ``identity``: unique per process.

    ``set_retry_seconds``, ``leading``, ``standing_by``, ``holds_lease`` and ``ahead``
    are those of the election, and may be used from any thread.
    """

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
        self.set_retry_seconds = self._election.set_retry_seconds

    @property
    def leading(self) -> bool:
        return self._election.leading

    @property
    def standing_by(self) -> bool:
        return self._election.standing_by

    def holds_lease(self) -> bool:
        return self._election.holds_lease()

    @property
    def ahead(self) -> float:
        return self._election.ahead

    async def acquire(self) -> None:
        """Return once this instance leads."""
        await self._on_thread(self._election.acquire())

    async def hold(self) -> None:
        """Renew until cancelled.

        Raises :class:`~windlass.scheduler.leader.election.LeaderLost`.
        """
        await self._on_thread(self._election.hold())

    async def release(self) -> None:
        """Release the lease, so that the next leader need not wait."""
        await self._on_thread(self._election.release())

    async def leave(self) -> None:
        """Release the lease and end the thread.

        A server that does not answer is not awaited for long: the lease ends by itself.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.release()
        await self.close()

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Stand by, then run ``work`` while the lease is held, and leave.

        Raises the errors of the work, and
        :class:`~windlass.scheduler.leader.election.LeaderLost`.
        """
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
        """End the thread and its tasks."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._loop = self._thread = None
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_end(self._client), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()

    async def _on_thread(self, work: Coroutine[Any, Any, None]) -> None:
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

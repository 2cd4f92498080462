"""Event recorder: never blocks its caller, never raises to it, never floods the server.

:meth:`EventRecorder.event` correlates (``client.event_correlator``) and queues an
event. :meth:`EventRecorder.run` writes the queue. A repeat of an event that is still
queued only changes the queued one. A full queue drops events and counts them. Events of
one object are written in order.

A *vital* event is lost only if the server rejects it permanently, or fails for as long
as it would retain the event. The spam filter, a full queue and a long outage do not
drop it. An event at which the server fails repeatedly is set aside, with the later
events of its object, so that those of other objects are written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from windlass.api.errors import StatusError
from windlass.api.resources import EVENTS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.event_correlator import EventCorrelator, ObjectRef
from windlass.client.responses import may_pass, retry_after
from windlass.kits.clock import Clock
from windlass.kits.rng import Random

__all__ = ["EventRecorder", "ObjectRef"]

QUEUE_LIMIT = 4096
TRIES = 12
RETRY_SECONDS = 10.0
LEAST_PAUSE_SECONDS = 1.0
SET_ASIDE_AFTER, MOST_ASIDE = 3, 64
"""Maximum number of failures per event before it is set aside, and of objects set aside.

Beyond the second limit the server is considered down, and the recorder waits for it."""
KEPT_SECONDS = 3600.0
"""Retention time of events on a server (seconds)."""
LANES = 4
"""Number of writes in flight. The events of an object always use the same lane."""


@dataclass(slots=True)
class _Pending:
    """Event to write.

    ``about``: its object.
    ``failed``: number of temporary failures of the server, except overload.
    """

    event: dict[str, Any]
    repeat: bool
    vital: bool
    about: str
    since: float
    tries: int = 0
    failed: int = 0


class EventRecorder:
    """Recorder of one component's events. ``host``: the machine, if relevant (a node agent)."""

    def __init__(self, client: Client, component: str, clock: Clock, rng: Random, *, host: str = "") -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._correlator = EventCorrelator(component, clock, host)
        self._lanes: list[deque[_Pending]] = [deque() for _ in range(LANES)]
        self._waiting: dict[str, _Pending] = {}
        self._aside: dict[str, deque[_Pending]] = {}
        """By object, what waits for an event that the server fails at, that one included."""
        self._wake = [asyncio.Event() for _ in range(LANES)]
        self._idle = asyncio.Event()
        self._idle.set()
        self._unfinished = 0
        self.written = 0
        self.dropped = 0
        """Number of events lost to a full queue, to the spam filter, or to rejection."""

    def event(self, ref: ObjectRef, type: str, reason: str, message: str, *, vital: bool = False) -> None:
        """Record that ``reason`` happened to ``ref``. ``type`` is ``Normal`` or ``Warning``."""
        correlated = self._correlator.observe(ref, type, reason, message, vital=vital)
        if correlated is None:
            self.dropped += 1
            return
        event = correlated.event
        name = f"{event['metadata']['namespace']}/{event['metadata']['name']}"
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.event = event
            waiting.vital = waiting.vital or vital
            return
        if self._unfinished >= QUEUE_LIMIT and not vital:
            self.dropped += 1
            return
        about = f"{ref.kind}/{ref.namespace}/{ref.name}"
        pending = _Pending(event, correlated.repeat, vital, about, self._clock.monotonic())
        lane = crc32(about.encode()) % LANES
        self._waiting[name] = pending
        self._lanes[lane].append(pending)
        self._unfinished += 1
        self._idle.clear()
        self._wake[lane].set()

    @property
    def waiting(self) -> int:
        """Number of events recorded and not yet written or dropped."""
        return self._unfinished

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for lane in range(LANES):
                group.create_task(self._run_lane(lane, group), name=f"events lane {lane}")

    async def drain(self) -> None:
        """Return when all recorded events are written or dropped. :meth:`run` must be running."""
        await self._idle.wait()

    async def _run_lane(self, lane: int, group: asyncio.TaskGroup) -> None:
        queue, wake = self._lanes[lane], self._wake[lane]
        while True:
            while not queue:
                wake.clear()
                await wake.wait()
            pending = queue.popleft()
            behind = self._aside.get(pending.about)
            if behind is not None:
                behind.append(pending)
            elif not await self._write(pending, may_leave=True):
                self._aside[pending.about] = deque([pending])
                group.create_task(self._run_aside(pending.about), name=f"events of {pending.about}")

    async def _run_aside(self, about: str) -> None:
        behind = self._aside[about]
        while behind:
            await self._write(behind.popleft(), may_leave=False)
        del self._aside[about]

    async def _write(self, pending: _Pending, *, may_leave: bool) -> bool:
        """Try until the event is written or given up.

        With ``may_leave``, return False if it has to be set aside.
        """
        metadata = pending.event["metadata"]
        self._waiting.pop(f"{metadata['namespace']}/{metadata['name']}", None)
        while not await self._try(pending):
            if may_leave and pending.failed >= SET_ASIDE_AFTER and len(self._aside) < MOST_ASIDE:
                return False
        self._unfinished -= 1
        if not self._unfinished:
            self._idle.set()
        return True

    async def _try(self, pending: _Pending) -> bool:
        """Try once to write; return True if the event is finished, written or dropped.

        Otherwise return once the next attempt is due.
        """
        try:
            await self._send(pending)
        except (StatusError, Unreachable) as problem:
            if isinstance(problem, StatusError) and problem.reason == "AlreadyExists":
                self.written += 1  # its answer was lost
                return True
            rejection = isinstance(problem, StatusError)
            pending.tries += 1
            pending.failed += rejection and problem.code != 429
            # a terminating namespace, no permission: trying again changes nothing
            final = rejection and not may_pass(problem)
            late = pending.failed > 0 and self._clock.monotonic() - pending.since >= KEPT_SECONDS
            if final or late or (pending.tries >= TRIES and not pending.vital):
                self.dropped += 1
                return True
            await self._clock.sleep(self._pause(problem, pending.tries))
            return False
        self.written += 1
        return True

    def _pause(self, problem: StatusError | Unreachable, tries: int) -> float:
        requested = retry_after(problem) if isinstance(problem, StatusError) else None
        if requested is not None:
            return max(LEAST_PAUSE_SECONDS, requested)
        # client-go: the first wait is random, so that components do not come back in step
        return RETRY_SECONDS * (self._rng.random() if tries == 1 else 1.0)

    async def _send(self, pending: _Pending) -> None:
        event = pending.event
        metadata = event["metadata"]
        if pending.repeat:
            change = {"count": event["count"], "lastTimestamp": event["lastTimestamp"]}
            change["message"] = event["message"]
            try:
                await self._client.patch(EVENTS, metadata["name"], change, metadata["namespace"])
                return
            except StatusError as problem:
                if problem.code != 404:
                    raise
                # the old one expired, or was never written
        await self._client.create(EVENTS, event)

"""Execution of the writes and conditions that come before the binds of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.responses import may_pass
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.observe import logs
from windlass.scheduler.commit.bind_batch import Condition, PreBindWrite
from windlass.scheduler.commit.concurrency_limit import AdaptiveLimit
from windlass.scheduler.commit.request_retry import OVERLOAD, new_backoff, pause, requested_pause

VOLUME_SECONDS = 600.0
"""Timeout of volume provisioning in seconds, kube-scheduler's ``bindTimeoutSeconds``."""
LEASE_CHECK_SECONDS = 0.1
"""Interval in seconds between checks of the lease while another instance may lead."""
STRAY_SECONDS = 5.0
"""Time in seconds for which an error that may be temporary is not taken as final."""
log = logs.get("scheduler")


class PreBindWriter:
    """Performs the writes of batches, and waits for their conditions.

    ``holds_lease()``: whether no other instance can lead. Nothing is written before.
    """

    def __init__(
        self,
        client: Client,
        limit: AdaptiveLimit,
        *,
        clock: Clock,
        rng: Random,
        give_up_seconds: float,
        holds_lease: Callable[[], bool],
    ) -> None:
        self._client = client
        self._limit = limit
        self._clock = clock
        self._rng = rng
        self._give_up_seconds = give_up_seconds
        self._holds_lease = holds_lease

    async def write_all(self, writes: Sequence[PreBindWrite]) -> str:
        """Perform all writes, repeatedly while the server is overloaded.

        Returns why they cannot be performed, ``""`` if they are.
        """
        left, started = list(writes), self._clock.monotonic()
        backoff = new_backoff(self._rng)
        while True:
            while not self._holds_lease():  # another leader may have written reservations there
                await self._clock.sleep(LEASE_CHECK_SECONDS)
            try:
                return await self.write(left, started + STRAY_SECONDS)
            except (StatusError, Unreachable) as error:
                stray = isinstance(error, StatusError) and error.code not in OVERLOAD
                if not stray and self.overloaded(error, started):
                    return error.message
                await pause(self._clock, error, backoff)

    async def write(self, writes: list[PreBindWrite], until: float) -> str:
        """Perform the writes in order, and remove each from the list once it is done.

        Returns why they cannot be performed, ``""`` if they are. Raises
        ``Unreachable``, and ``StatusError`` if it is worth another attempt. Until the
        monotonic time ``until``, this includes any error that may be temporary.
        """
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
                problem = f"{write.description} could not be prepared: {error.message}"
                if write.vital or error.code == 404:
                    return problem
                log.warning("binding without a write that failed", why=problem)
            del writes[0]
        return ""

    async def wait(self, condition: Condition) -> str:
        """Wait until a condition is met. Return why it cannot be, ``""`` if it is."""
        deadline = self._clock.monotonic() + VOLUME_SECONDS
        seconds = 0.05
        while (problem := condition()) is None:
            if self._clock.monotonic() > deadline:
                return f"its volumes were not there after {VOLUME_SECONDS:g} s"
            await self._clock.sleep(seconds)
            seconds = min(2.0, seconds * 1.5)
        return problem

    def overloaded(self, error: StatusError | Unreachable, started: float) -> bool:
        """Lower the limit of concurrent requests. Return whether to give up."""
        now = self._clock.monotonic()
        self._limit.overloaded(now, requested_pause(error))
        return now - started > self._give_up_seconds

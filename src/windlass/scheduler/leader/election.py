"""Leader election by a Lease, as in client-go.

The leader renews the lease every ``retry_seconds`` and gives up after ``renew_seconds``
without success. Other instances take the lease when they have seen no renewal for its
whole duration *by their own clock since they first saw the record*. So clocks that
differ between machines do not matter. That clock includes suspended time: an instance
that wakes up in the morning does not trust the lease of the evening.

The server records in its own time when the lease was written (``managedFields``), so
the leader can compare clocks: :attr:`Election.ahead`. Nothing here depends on that.

A single unanswered request does not cost the lease. An attempt gets half of
``renew_seconds``, as client-go's requests do, and the next uses another connection. The
leader writes the lease at once with the version that it wrote last, and reads it only
if another instance has written it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windlass.api import resources
from windlass.api.errors import StatusError, WindlassError
from windlass.api.leases import CLOCK_SECONDS, renews
from windlass.client.client import Client
from windlass.client.errors import Unreachable, timed_out
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.timestamps import age, parse_rfc3339, rfc3339_micro
from windlass.observe import logs

log = logs.get("leader")
LOST = "WL-LEADER-409"
_MARGIN_SECONDS = 0.05
_RETRY_FACTOR = 0.25
"""Interval before the next attempt after a failure, as a fraction of ``retry_seconds``."""
_RELEASE_TRIES = 3


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Lease and its times in seconds, by default client-go's.

    ``duration_seconds`` > ``renew_seconds`` > ``retry_seconds``.
    """

    name: str = "windlass-scheduler"
    namespace: str = "kube-system"
    duration_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0


class LeaderLost(WindlassError):
    """Another instance leads, or may lead. This one must stop deciding at once."""


class Election:
    """Takes and renews the lease. ``identity``: unique per process."""

    def __init__(
        self, client: Client, identity: str, *, clock: Clock, rng: Random, options: LeaseOptions | None = None
    ) -> None:
        self.identity = identity
        self._client = client
        self._clock = clock
        self._rng = rng
        self._options = options or LeaseOptions()
        self._seen: Mapping[str, Any] = {}
        self._seen_at = 0.0
        self._read_at = float("-inf")
        self._written: dict[str, Any] | None = None
        """The lease as written last, unless another instance may have written it since."""
        self._renewed_at = float("-inf")
        self.leading = False
        """True once :meth:`acquire` has returned, until the lease is released."""
        self.ahead = 0.0
        """Seconds by which this machine's clock was ahead of the API server's at the last write.

        0 if the difference is below :data:`CLOCK_SECONDS`, or the server did not report
        its time.
        """

    def set_retry_seconds(self, retry_seconds: float) -> None:
        """Change the retry interval.

        It is the only time that may change while a lease is held, since other instances
        do not rely on it. Raises ``ValueError`` if renewing would have failed before
        the next attempt.
        """
        if not 0 < retry_seconds < self._options.renew_seconds:
            within = f"within the {self._options.renew_seconds:g} s for which renewing may fail"
            raise ValueError(f"{retry_seconds:g} s between renewals does not lie {within}")
        self._options = replace(self._options, retry_seconds=retry_seconds)

    @property
    def standing_by(self) -> bool:
        """Return whether another instance leads, and this one has just read its lease."""
        fresh = self._clock.elapsed() - self._read_at <= self._options.renew_seconds
        return not self.leading and fresh and bool(self._seen.get("holderIdentity"))

    def holds_lease(self) -> bool:
        """Return whether no other instance can lead now."""
        return self.leading and self._clock.elapsed() < self._renewed_at + self._options.renew_seconds

    async def acquire(self) -> None:
        """Return once this instance leads."""
        logged = ""
        while True:
            try:
                if await self._attempt_within(self._options.renew_seconds / 2):
                    self.leading = True
                    log.info("leading", identity=self.identity)
                    return
            except (StatusError, Unreachable) as error:
                log.warning("lease attempt failed", why=error.message)
            holder = str(self._seen.get("holderIdentity") or "")
            if holder != logged:
                logged = holder
                log.info("waiting for the lease", holder=holder)
            await self._clock.sleep(self._until_next_attempt())

    def _until_next_attempt(self) -> float:
        """Return about ``retry_seconds``, but not past the end of the seen lease."""
        pause = self._options.retry_seconds * (1.0 + 0.2 * self._rng.random())
        left = self._seen_at + self._duration(self._seen) - self._clock.elapsed()
        return min(pause, left + _MARGIN_SECONDS) if self._seen and left > 0 else pause

    def _duration(self, spec: Mapping[str, Any]) -> float:
        return float(spec.get("leaseDurationSeconds") or self._options.duration_seconds)

    async def hold(self) -> None:
        """Renew until cancelled. Raises :class:`LeaderLost`."""
        renew = self._options.renew_seconds
        pause = self._options.retry_seconds
        while True:
            await self._clock.sleep(pause)
            why = "another instance took the lease"
            left = max(0.0, self._renewed_at + renew - self._clock.elapsed())
            try:
                if await self._attempt_within(min(left, renew / 2)):
                    pause = self._options.retry_seconds
                    continue
                if self._seen.get("holderIdentity") != self.identity:
                    raise LeaderLost(LOST, why, evidence=f"holder {self._seen.get('holderIdentity')}")
            except (StatusError, Unreachable) as error:
                why = error.message
                log.warning("lease not renewed", why=why)
            if self._clock.elapsed() - self._renewed_at >= renew:
                raise LeaderLost(LOST, "the lease could not be renewed in time", evidence=why)
            pause = _RETRY_FACTOR * self._options.retry_seconds

    async def release(self) -> None:
        """Release the lease, so that the next leader need not wait."""
        self.leading = False
        for left in reversed(range(_RELEASE_TRIES)):
            try:
                lease = await self._find()
                if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                    lease["spec"].update({"holderIdentity": "", "leaseDurationSeconds": 1})
                    await self._client.update(resources.LEASES, lease)
                return
            except (StatusError, Unreachable) as error:
                if left and isinstance(error, StatusError) and error.code == 409:
                    continue  # a renewal was still in progress
                log.warning("lease not released", why=error.message)
                return

    async def _find(self) -> dict[str, Any] | None:
        return await self._client.find(resources.LEASES, self._options.name, self._options.namespace)

    async def _attempt_within(self, seconds: float) -> bool:
        """Call :meth:`_attempt` with a timeout, so that waiting does not cost the lease.

        Raises ``StatusError``, and ``Unreachable``, also after the timeout.
        """
        attempt = asyncio.ensure_future(self._attempt())
        limit = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({attempt, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not attempt.done():
                raise timed_out("the API server", "an answer about the lease", seconds, processed=True)
            return attempt.result()
        finally:
            for task in (attempt, limit):
                task.cancel()
            await asyncio.gather(attempt, limit, return_exceptions=True)

    async def _attempt(self) -> bool:
        """Take or renew the lease if that is allowed.

        Raises ``StatusError`` and ``Unreachable``.
        """
        sent = self._clock.elapsed()
        if not await self._renew() and not await self._read_and_take():
            return False
        # Others wait for the whole duration from when they see this, at the earliest from the request.
        slack = self._options.duration_seconds - self._options.renew_seconds
        self._renewed_at = min(self._clock.elapsed(), sent + max(0.0, slack))
        return True

    async def _renew(self) -> bool:
        """Renew the lease of this instance, unless another one has written it since."""
        lease, self._written = self._written, None
        if lease is None or not self.leading:
            return False
        try:
            await self._write(lease, self._spec(lease["spec"], self._clock.now()))
        except StatusError as error:
            if error.code in (404, 409):
                return False
            raise
        return True

    async def _write(self, lease: Mapping[str, Any], spec: dict[str, Any]) -> None:
        self._written = await self._client.update(resources.LEASES, {**lease, "spec": spec})
        self._compare_clocks(self._written)
        self._record(spec)

    def _compare_clocks(self, lease: Mapping[str, Any]) -> None:
        """Compare the written time with the server's time of the write."""
        times = [field["time"] for field in lease["metadata"].get("managedFields") or () if renews(field)]
        if not times:
            return
        ahead = parse_rfc3339(lease["spec"]["renewTime"]) - max(map(parse_rfc3339, times))
        ahead = ahead if abs(ahead) >= CLOCK_SECONDS else 0.0
        if bool(ahead) != bool(self.ahead):
            if ahead:
                by = f"{age(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"
                log.warning(f"this machine's clock is {by} the API server's", remedy="timedatectl status")
            else:
                log.info("this machine's clock agrees with the API server's again")
        self.ahead = ahead

    async def _read_and_take(self) -> bool:
        """Read the lease, then take or renew it."""
        lease = await self._find()
        self._read_at = self._clock.elapsed()
        now = self._clock.now()
        if lease is None:
            spec = self._spec({}, now)
            try:
                self._written = await self._client.create(resources.LEASES, self._object(spec))
            except StatusError as error:
                if error.reason == "AlreadyExists":
                    return False
                raise
            self._compare_clocks(self._written)
            self._record(spec)
            return True
        current = lease.get("spec") or {}
        if dict(current) != dict(self._seen):
            self._record(current)
        holder = current.get("holderIdentity")
        runs_out = self._seen_at + self._duration(current)
        if holder and holder != self.identity and self._clock.elapsed() < runs_out:
            return False
        spec = self._spec(current, now)
        try:
            await self._write(lease, spec)
        except StatusError as error:
            if error.code == 409:
                return False
            raise
        return True

    def _record(self, spec: Mapping[str, Any]) -> None:
        self._seen = dict(spec)
        self._seen_at = self._clock.elapsed()

    def _spec(self, current: Mapping[str, Any], now: float) -> dict[str, Any]:
        stamp = rfc3339_micro(now)
        spec = {
            **current,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._options.duration_seconds,
            "renewTime": stamp,
        }
        if current.get("holderIdentity") != self.identity:
            spec["acquireTime"] = stamp
            spec["leaseTransitions"] = int(current.get("leaseTransitions") or 0) + (1 if current else 0)
        return spec

    def _object(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": resources.LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self._options.name, "namespace": self._options.namespace},
            "spec": dict(spec),
        }

"""Which claims got nothing, and when they are to be made again.

A claim is that of the first groups of a bucket. One in vain is made again once *affairs* have changed; but where it
is easily seen what stands in its way (:data:`Obstacle`), that is looked at instead, once for all that it stands in
the way of. A moment that a policy named ends the waiting too. Who has tried often in vain pauses between his tries.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import msgspec

from windlass.engine.parking import Bucket, ParkingLot
from windlass.engine.stops import Stop

Obstacle = Callable[[], bool]
"""Whether what stands in the way of a claim still does. Equal for claims of which one cannot be had without the
others."""

PATIENCE = 6
"""So often in a row a bucket may get nothing before it pauses."""
LONGEST_PAUSE = 32
"""The first pause is doubled with each further try in vain, up to so many times its length."""
CACHED = 4096
FIRST = -1
"""The affairs of those that are tried before all others."""


class ClaimRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One bucket, named by one of its groups. ``failed``: it got nothing, as affairs stand now or (False)
    stood before."""

    group: str
    in_vain: int = 0
    pause: float = 0.0
    until: float | None = None
    failed: bool | None = None
    stopped: tuple[Stop, ...] = ()


class Tries:
    """``pause_seconds``: how long the first pause is; 0 for none."""

    def __init__(self, lot: ParkingLot, pause_seconds: float) -> None:
        self._lot = lot
        self._pause_seconds = pause_seconds
        self._affairs = 0
        self._failed: dict[Bucket, int] = {}
        """Bucket → the state of affairs in which it got nothing."""
        self._again: deque[tuple[int, Bucket]] = deque()
        """The same in the order in which they were tried; entries that no longer hold are skipped."""
        self._obstacles: dict[Bucket, Obstacle] = {}
        """Bucket that got nothing → what stands in its way. It is not among those."""
        self._behind: dict[Obstacle, dict[Bucket, None]] = {}
        self._looked = 0
        """The state of affairs in which obstacles were looked at."""
        self.moments: list[tuple[float, int, Bucket]] = []
        self._until: dict[Bucket, float] = {}
        """Bucket → the moment that stands in ``moments`` for it."""
        self._in_vain: dict[Bucket, int] = {}
        """Bucket → how often in a row it got nothing."""
        self._pauses: dict[Bucket, float] = {}
        """Bucket → the moment until which it pauses."""
        self._ticket = 0

    @property
    def idle(self) -> bool:
        """Whether nobody is known who got nothing."""
        return not (self._again or self._behind or self.moments)

    def change(self) -> None:
        """Affairs have changed."""
        self._affairs += 1

    def lives(self, bucket: Bucket) -> bool:
        """Whether the bucket still has groups that wait."""
        return self._lot.buckets.get(bucket.signature) is bucket

    def pausing(self, bucket: Bucket, now: float) -> bool:
        return bool(self._pauses) and self._pauses.get(bucket, 0.0) > now

    # ------------------------------------------------------------------ what came of a try

    def done(self, bucket: Bucket) -> None:
        """It got what it asked for."""
        self._in_vain.pop(bucket, None)
        self._pauses.pop(bucket, None)
        self._leave(bucket)

    def fail(self, bucket: Bucket, now: float, until: float | None, obstacle: Obstacle | None) -> None:
        """It got nothing. ``until``: when it may."""
        times = self._in_vain[bucket] = self._in_vain.get(bucket, 0) + 1
        first = self._pause_seconds
        if times > PATIENCE and first > 0:
            pause = first * min(2.0 ** min(times - PATIENCE - 1, 40), LONGEST_PAUSE)
            self._pauses[bucket] = now + pause
            self._push(now + pause, bucket)
        if len(self._in_vain) > CACHED:
            self._in_vain = {b: n for b, n in self._in_vain.items() if self.lives(b)}
            self._pauses = {b: moment for b, moment in self._pauses.items() if moment > now}
        self._leave(bucket)
        if obstacle is not None and until is None:
            self._failed.pop(bucket, None)
            self._obstacles[bucket] = obstacle
            self._behind.setdefault(obstacle, {})[bucket] = None
            return
        self._failed[bucket] = self._affairs
        self._again.append((self._affairs, bucket))
        if until is not None and self._until.get(bucket) != until:
            self._until[bucket] = until
            self._push(until, bucket)

    def put_off(self, due: list[Bucket]) -> None:
        """Have buckets tried first in the next cycle."""
        for bucket in reversed(due):
            self._leave(bucket)
            self._failed[bucket] = FIRST
            self._again.appendleft((FIRST, bucket))

    def forget(self, bucket: Bucket) -> None:
        """It is another matter now: to be tried after its pause."""
        self._failed.pop(bucket, None)
        self._leave(bucket)

    def _leave(self, bucket: Bucket) -> None:
        obstacle = self._obstacles.pop(bucket, None)
        if obstacle is not None:
            behind = self._behind[obstacle]
            del behind[bucket]
            if not behind:
                del self._behind[obstacle]

    def _push(self, moment: float, bucket: Bucket) -> None:
        self._ticket += 1
        heapq.heappush(self.moments, (moment, self._ticket, bucket))

    # ------------------------------------------------------------------ who is due

    def stuck(self, bucket: Bucket) -> bool:
        """Whether what was in its way the last time still is, as of the last :meth:`clear`."""
        return bucket in self._obstacles

    def clear(self) -> None:
        """Have those tried again whose obstacle is gone, if affairs have changed."""
        if self._looked == self._affairs:
            return
        self._looked = self._affairs
        for obstacle in [obstacle for obstacle in self._behind if not obstacle()]:
            for bucket in self._behind.pop(obstacle):
                del self._obstacles[bucket]
                if self.lives(bucket):
                    self._failed[bucket] = FIRST
                    self._again.appendleft((FIRST, bucket))

    def reached(self, now: float) -> list[Bucket]:
        """Those of which a moment has come."""
        found = []
        while self.moments and self.moments[0][0] <= now:
            moment, _, bucket = heapq.heappop(self.moments)
            if self._until.get(bucket) == moment:
                del self._until[bucket]
            elif bucket in self._obstacles or self._failed.get(bucket) == self._affairs:
                continue  # its pause is over, and all is as it was: it would get nothing again
            if self.lives(bucket):
                found.append(bucket)
        return found

    def again(self, now: float, most: int) -> list[Bucket]:
        """Those that got nothing as affairs stood before, but for those that pause: so many at most."""
        again, found = self._again, list[Bucket]()
        while again and len(found) < most and again[0][0] != self._affairs:
            affairs, bucket = again.popleft()
            if self._failed.get(bucket) == affairs:
                del self._failed[bucket]
                if self.lives(bucket) and not self.pausing(bucket, now):
                    found.append(bucket)
        return found

    @property
    def more(self) -> bool:
        """Whether :meth:`again` has not told all of them."""
        return bool(self._again) and self._again[0][0] != self._affairs

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self, action: str) -> list[ClaimRecord]:
        """Who got nothing, since when, and who pauses; buckets by one of their groups."""
        places = {
            bucket: at
            for at, (affairs, bucket) in enumerate(self._again)
            if self._failed.get(bucket) == affairs
        }
        known = sorted(
            {*places, *self._in_vain, *self._obstacles}, key=lambda bucket: places.get(bucket, len(places))
        )
        return [
            ClaimRecord(
                min(living),
                self._in_vain.get(bucket, 0),
                self._pauses.get(bucket, 0.0),
                self._until.get(bucket),
                self._fails(bucket, known=bucket in places),
                bucket.stopped.get(action, ()),
            )
            for bucket in known
            if self.lives(bucket)
            and (living := [key for key, group in bucket.members.items() if group.group is not None])
        ]

    def _fails(self, bucket: Bucket, *, known: bool) -> bool | None:
        if bucket in self._obstacles:
            return True
        return self._failed[bucket] == self._affairs if known else None

    def begin_anew(self) -> None:
        """Before :meth:`restore`."""
        self._affairs = self._looked = 1

    def restore(self, bucket: Bucket, record: ClaimRecord) -> None:
        """Enter what was known of a bucket."""
        if record.in_vain:
            self._in_vain[bucket] = record.in_vain
        if record.pause:
            self._pauses[bucket] = record.pause
            self._push(record.pause, bucket)
        if record.failed is not None:
            self._failed[bucket] = int(record.failed)
            self._again.append((int(record.failed), bucket))
        if record.until is not None:
            self._until[bucket] = record.until
            self._push(record.until, bucket)

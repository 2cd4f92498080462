"""Which claims got nothing, and when they are to be made again.

A claim is that of the first groups of a bucket. One in vain is made again once *affairs* have changed; but where it
is easily seen what stands in its way (:data:`Obstacle`), that is looked at instead, once for all that it stands in
the way of. A moment that a policy named ends the waiting too.

In a cluster where something changes all the time who claims in vain pauses between his tries (:class:`Spell`). When he
does follows from the clock alone: what happens at one moment, or in a short while, is one event in however many cycles
it is heard of, so that the simulator, which hears of it at once, decides as the scheduler does.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import msgspec

from windlass.engine.pending.scheduling_queue import Bucket, ParkingLot
from windlass.engine.victims.budget_blockers import Stop

Obstacle = Callable[[], bool]
"""Whether what stands in the way of a claim still does. Equal for claims of which one cannot be had without the
others."""

BURST_SECONDS = 0.05
"""For so long a bucket is tried at every change before it pauses: most of what follows from one event is heard of by
then."""
LONGEST_PAUSE = 32
"""A pause is about as long as the bucket has got nothing so far: up to so many times the first."""
CACHED = 4096
FIRST = -1
"""The affairs of those that are tried before all others."""


class Spell(msgspec.Struct, frozen=True):
    """A bucket gets nothing. ``since``: when that was first seen. ``opened``: from then on it is tried at every change
    for :data:`BURST_SECONDS`, and then not before ``ends``. Unix seconds."""

    since: float
    opened: float
    ends: float


class ClaimRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One bucket, named by one of its groups. ``missed``: it is to be tried after its pause. ``failed``: it got
    nothing, as affairs stand now or (False) stood before. ``stuck``: what is looked at instead, in words of the action.
    """

    group: str
    spell: Spell | None = None
    missed: bool = False
    until: float | None = None
    failed: bool | None = None
    stopped: tuple[Stop, ...] = ()
    stuck: tuple[str, ...] = ()


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
        self._spells: dict[Bucket, Spell] = {}
        """Those that got nothing, where anybody pauses."""
        self._missed: dict[Bucket, None] = {}
        """Those that something may have changed for in their pause. Its end stands in ``moments``."""
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
        spell = self._spells.get(bucket)
        return spell is not None and spell.opened + BURST_SECONDS <= now < spell.ends

    # ------------------------------------------------------------------ what came of a try

    def done(self, bucket: Bucket) -> None:
        """It got what it asked for."""
        self._spells.pop(bucket, None)
        self._missed.pop(bucket, None)
        self._leave(bucket)

    def fail(self, bucket: Bucket, now: float, until: float | None, obstacle: Obstacle | None) -> None:
        """It got nothing. ``until``: when it may."""
        if self._pause_seconds > 0:
            self._begin_spell(bucket, now)
        self._missed.pop(bucket, None)
        self._leave(bucket)
        if obstacle is not None and until is None:
            self._failed.pop(bucket, None)
            self._stick(bucket, obstacle)
            return
        self._failed[bucket] = self._affairs
        self._again.append((self._affairs, bucket))
        if until is not None and self._until.get(bucket) != until:
            self._until[bucket] = until
            self._push(until, bucket)

    def _begin_spell(self, bucket: Bucket, now: float) -> None:
        """Say how long it pauses, unless that is said already."""
        before, first = self._spells.get(bucket), self._pause_seconds
        if before is not None and now < before.ends:
            return
        since = now if before is None else before.since
        ends = now + min(max(now - since, first), LONGEST_PAUSE * first)
        self._spells[bucket] = Spell(since, now, ends)
        if len(self._spells) > CACHED:
            self._spells = {b: spell for b, spell in self._spells.items() if self.lives(b)}

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
        self._miss(bucket)

    def _miss(self, bucket: Bucket) -> None:
        """It pauses, and is to be tried after that."""
        if bucket not in self._missed:
            self._missed[bucket] = None
            self._push(self._spells[bucket].ends, bucket)

    def _stick(self, bucket: Bucket, obstacle: Obstacle) -> None:
        self._obstacles[bucket] = obstacle
        self._behind.setdefault(obstacle, {})[bucket] = None

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
        """Have those tried again whose obstacle is gone, if affairs have changed. An obstacle behind which nobody is
        left that waits is forgotten unseen."""
        if self._looked == self._affairs:
            return
        self._looked = self._affairs
        lives = self.lives
        for obstacle, behind in list(self._behind.items()):
            if any(map(lives, behind)) and obstacle():
                continue
            del self._behind[obstacle]
            for bucket in behind:
                del self._obstacles[bucket]
                if lives(bucket):
                    self._failed[bucket] = FIRST
                    self._again.appendleft((FIRST, bucket))

    def reached(self, now: float) -> list[Bucket]:
        """Those of which a moment has come."""
        found = []
        while self.moments and self.moments[0][0] <= now:
            moment, _, bucket = heapq.heappop(self.moments)
            if self._until.get(bucket) == moment:
                del self._until[bucket]
            elif bucket not in self._missed or self.pausing(bucket, now):
                continue
            self._missed.pop(bucket, None)
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
                if not self.lives(bucket):
                    continue
                if self.pausing(bucket, now):
                    self._miss(bucket)
                else:
                    found.append(bucket)
        return found

    @property
    def more(self) -> bool:
        """Whether :meth:`again` has not told all of them."""
        return bool(self._again) and self._again[0][0] != self._affairs

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self, action: str, words: Callable[[Obstacle], tuple[str, ...]]) -> list[ClaimRecord]:
        """Who got nothing, since when, what stands in whose way, and who pauses; buckets by one of their groups."""
        places = dict.fromkeys(
            [bucket for affairs, bucket in self._again if self._failed.get(bucket) == affairs]
        )
        stuck = [bucket for behind in self._behind.values() for bucket in behind]
        known = dict.fromkeys([*places, *stuck, *self._spells])
        return [
            ClaimRecord(
                min(living),
                self._spells.get(bucket),
                bucket in self._missed,
                self._until.get(bucket),
                self._failed[bucket] == self._affairs if bucket in places else None,
                bucket.stopped.get(action, ()),
                words(self._obstacles[bucket]) if bucket in self._obstacles else (),
            )
            for bucket in known
            if self.lives(bucket)
            and (living := [key for key, group in bucket.members.items() if group.group is not None])
        ]

    def begin_anew(self) -> None:
        """Before :meth:`restore`."""
        self._affairs = self._looked = 1

    def restore(self, bucket: Bucket, record: ClaimRecord, obstacle: Obstacle | None) -> None:
        """Enter what was known of a bucket."""
        if record.spell is not None:
            self._spells[bucket] = record.spell
            if record.missed:
                self._miss(bucket)
        if record.failed is not None:
            self._failed[bucket] = int(record.failed)
            self._again.append((int(record.failed), bucket))
        if obstacle is not None:
            self._stick(bucket, obstacle)
        if record.until is not None:
            self._until[bucket] = record.until
            self._push(record.until, bucket)

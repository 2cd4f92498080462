"""Which claims got nothing, and when they are to be made again.

A claim is that of the first groups of a bucket. One in vain is made again once *affairs* have changed; but where it
is easily seen what stands in its way (:data:`Obstacle`), that is looked at instead, once for all that it stands in
the way of. A moment that a policy named ends the waiting too.

In a cluster where something changes all the time who claims in vain pauses between his tries (:class:`BackoffState`).
When he does follows from the clock alone: what happens at one moment, or in a short while, is one event in however many
cycles it is heard of, so that the simulator, which hears of it at once, decides as the scheduler does.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import msgspec

from windlass.engine.pending.scheduling_queue import PendingClass, SchedulingQueue
from windlass.engine.victims.budget_blockers import BudgetBlocker

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


class BackoffState(msgspec.Struct, frozen=True):
    """A bucket gets nothing. ``since``: when that was first seen. ``opened``: from then on it is tried at every change
    for :data:`BURST_SECONDS`, and then not before ``ends``. Unix seconds."""

    since: float
    opened: float
    ends: float


class BackoffRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One bucket, named by one of its groups. ``missed``: it is to be tried after its pause. ``failed``: it got
    nothing, as affairs stand now or (False) stood before. ``stuck``: what is looked at instead, in words of the action.
    """

    group: str
    spell: BackoffState | None = None
    missed: bool = False
    until: float | None = None
    failed: bool | None = None
    stopped: tuple[BudgetBlocker, ...] = ()
    stuck: tuple[str, ...] = ()


class RetryBackoff:
    """``pause_seconds``: how long the first pause is; 0 for none."""

    def __init__(self, scheduling_queue: SchedulingQueue, pause_seconds: float) -> None:
        self._scheduling_queue = scheduling_queue
        self._pause_seconds = pause_seconds
        self._affairs = 0
        self._failed: dict[PendingClass, int] = {}
        """Bucket → the state of affairs in which it got nothing."""
        self._again: deque[tuple[int, PendingClass]] = deque()
        """The same in the order in which they were tried; entries that no longer hold are skipped."""
        self._obstacles: dict[PendingClass, Obstacle] = {}
        """Bucket that got nothing → what stands in its way. It is not among those."""
        self._behind: dict[Obstacle, dict[PendingClass, None]] = {}
        self._looked = 0
        """The state of affairs in which obstacles were looked at."""
        self.moments: list[tuple[float, int, PendingClass]] = []
        self._until: dict[PendingClass, float] = {}
        """Bucket → the moment that stands in ``moments`` for it."""
        self._spells: dict[PendingClass, BackoffState] = {}
        """Those that got nothing, where anybody pauses."""
        self._missed: dict[PendingClass, None] = {}
        """Those that something may have changed for in their pause. Its end stands in ``moments``."""
        self._ticket = 0

    @property
    def idle(self) -> bool:
        """Whether nobody is known who got nothing."""
        return not (self._again or self._behind or self.moments)

    def change(self) -> None:
        """Affairs have changed."""
        self._affairs += 1

    def lives(self, pending_class: PendingClass) -> bool:
        """Whether the bucket still has groups that wait."""
        return self._scheduling_queue.pending_classes.get(pending_class.signature) is pending_class

    def pausing(self, pending_class: PendingClass, now: float) -> bool:
        backoff = self._spells.get(pending_class)
        return backoff is not None and backoff.opened + BURST_SECONDS <= now < backoff.ends

    # ------------------------------------------------------------------ what came of a try

    def done(self, pending_class: PendingClass) -> None:
        """It got what it asked for."""
        self._spells.pop(pending_class, None)
        self._missed.pop(pending_class, None)
        self._leave(pending_class)

    def fail(
        self, pending_class: PendingClass, now: float, until: float | None, obstacle: Obstacle | None
    ) -> None:
        """It got nothing. ``until``: when it may."""
        if self._pause_seconds > 0:
            self._begin_spell(pending_class, now)
        self._missed.pop(pending_class, None)
        self._leave(pending_class)
        if obstacle is not None and until is None:
            self._failed.pop(pending_class, None)
            self._stick(pending_class, obstacle)
            return
        self._failed[pending_class] = self._affairs
        self._again.append((self._affairs, pending_class))
        if until is not None and self._until.get(pending_class) != until:
            self._until[pending_class] = until
            self._push(until, pending_class)

    def _begin_spell(self, pending_class: PendingClass, now: float) -> None:
        """Say how long it pauses, unless that is said already."""
        before, first = self._spells.get(pending_class), self._pause_seconds
        if before is not None and now < before.ends:
            return
        since = now if before is None else before.since
        ends = now + min(max(now - since, first), LONGEST_PAUSE * first)
        self._spells[pending_class] = BackoffState(since, now, ends)
        if len(self._spells) > CACHED:
            self._spells = {b: backoff for b, backoff in self._spells.items() if self.lives(b)}

    def put_off(self, due: list[PendingClass]) -> None:
        """Have buckets tried first in the next cycle."""
        for pending_class in reversed(due):
            self._leave(pending_class)
            self._failed[pending_class] = FIRST
            self._again.appendleft((FIRST, pending_class))

    def forget(self, pending_class: PendingClass) -> None:
        """It is another matter now: to be tried after its pause."""
        self._failed.pop(pending_class, None)
        self._leave(pending_class)
        self._miss(pending_class)

    def _miss(self, pending_class: PendingClass) -> None:
        """It pauses, and is to be tried after that."""
        if pending_class not in self._missed:
            self._missed[pending_class] = None
            self._push(self._spells[pending_class].ends, pending_class)

    def _stick(self, pending_class: PendingClass, obstacle: Obstacle) -> None:
        self._obstacles[pending_class] = obstacle
        self._behind.setdefault(obstacle, {})[pending_class] = None

    def _leave(self, pending_class: PendingClass) -> None:
        obstacle = self._obstacles.pop(pending_class, None)
        if obstacle is not None:
            behind = self._behind[obstacle]
            del behind[pending_class]
            if not behind:
                del self._behind[obstacle]

    def _push(self, moment: float, pending_class: PendingClass) -> None:
        self._ticket += 1
        heapq.heappush(self.moments, (moment, self._ticket, pending_class))

    # ------------------------------------------------------------------ who is due

    def stuck(self, pending_class: PendingClass) -> bool:
        """Whether what was in its way the last time still is, as of the last :meth:`clear`."""
        return pending_class in self._obstacles

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
            for pending_class in behind:
                del self._obstacles[pending_class]
                if lives(pending_class):
                    self._failed[pending_class] = FIRST
                    self._again.appendleft((FIRST, pending_class))

    def reached(self, now: float) -> list[PendingClass]:
        """Those of which a moment has come."""
        found = []
        while self.moments and self.moments[0][0] <= now:
            moment, _, pending_class = heapq.heappop(self.moments)
            if self._until.get(pending_class) == moment:
                del self._until[pending_class]
            elif pending_class not in self._missed or self.pausing(pending_class, now):
                continue
            self._missed.pop(pending_class, None)
            if self.lives(pending_class):
                found.append(pending_class)
        return found

    def again(self, now: float, most: int) -> list[PendingClass]:
        """Those that got nothing as affairs stood before, but for those that pause: so many at most."""
        again, found = self._again, list[PendingClass]()
        while again and len(found) < most and again[0][0] != self._affairs:
            affairs, pending_class = again.popleft()
            if self._failed.get(pending_class) == affairs:
                del self._failed[pending_class]
                if not self.lives(pending_class):
                    continue
                if self.pausing(pending_class, now):
                    self._miss(pending_class)
                else:
                    found.append(pending_class)
        return found

    @property
    def more(self) -> bool:
        """Whether :meth:`again` has not told all of them."""
        return bool(self._again) and self._again[0][0] != self._affairs

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self, action: str, words: Callable[[Obstacle], tuple[str, ...]]) -> list[BackoffRecord]:
        """Who got nothing, since when, what stands in whose way, and who pauses; buckets by one of their groups."""
        places = dict.fromkeys(
            [
                pending_class
                for affairs, pending_class in self._again
                if self._failed.get(pending_class) == affairs
            ]
        )
        stuck = [pending_class for behind in self._behind.values() for pending_class in behind]
        known = dict.fromkeys([*places, *stuck, *self._spells])
        return [
            BackoffRecord(
                min(living),
                self._spells.get(pending_class),
                pending_class in self._missed,
                self._until.get(pending_class),
                self._failed[pending_class] == self._affairs if pending_class in places else None,
                pending_class.stopped.get(action, ()),
                words(self._obstacles[pending_class]) if pending_class in self._obstacles else (),
            )
            for pending_class in known
            if self.lives(pending_class)
            and (living := [key for key, group in pending_class.members.items() if group.group is not None])
        ]

    def begin_anew(self) -> None:
        """Before :meth:`restore`."""
        self._affairs = self._looked = 1

    def restore(self, pending_class: PendingClass, record: BackoffRecord, obstacle: Obstacle | None) -> None:
        """Enter what was known of a bucket."""
        if record.spell is not None:
            self._spells[pending_class] = record.spell
            if record.missed:
                self._miss(pending_class)
        if record.failed is not None:
            self._failed[pending_class] = int(record.failed)
            self._again.append((int(record.failed), pending_class))
        if obstacle is not None:
            self._stick(pending_class, obstacle)
        if record.until is not None:
            self._until[pending_class] = record.until
            self._push(record.until, pending_class)

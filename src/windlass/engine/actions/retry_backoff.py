"""Backoff of failed preemptions, and the conditions for another try.

A preemption is tried for the first groups of a pending class. A failed one is tried
again after a change of the *revision*, which stands for everything that may matter. If
there is an easily checked reason for the failure (:data:`Obstacle`), that is checked
instead, once for all pending classes behind it. A time that a plugin named ends the
wait as well.

In a cluster with constant changes, classes that fail pause between their tries
(:class:`BackoffState`). The pauses depend on the clock alone. Whatever happens at one
time, or shortly after, is one event, in however many cycles it is observed. So the
simulator, which observes it at once, decides like the scheduler.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import msgspec

from windlass.engine.pending.scheduling_queue import PendingClass, SchedulingQueue
from windlass.engine.victims.budget_blockers import BudgetBlocker

Obstacle = Callable[[], bool]
"""Function that returns whether the reason for a failure still holds.

Two of them are equal if they always give the same result.
"""

BURST_SECONDS = 0.05
"""Interval in seconds during which a class is tried at every change before it pauses.

Most consequences of one event are observed within it.
"""
LONGEST_PAUSE = 32
"""Maximum length of a pause in multiples of the first one.

A pause is about as long as the class has failed so far.
"""
CACHED = 4096
FIRST = -1
"""Revision of classes that are tried before all others."""


class BackoffState(msgspec.Struct, frozen=True):
    """Backoff of a pending class that failed.

    ``since``: time of the first failure.
    ``opened``: start of the current burst; the class is tried at every change for
    :data:`BURST_SECONDS`.
    ``ends``: end of the pause after the burst. All are in Unix seconds.
    """

    since: float
    opened: float
    ends: float


class BackoffRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record of one pending class, named by one of its groups.

    ``missed``: it has to be tried after its pause.
    ``failed``: it failed at the present revision, or (False) at an earlier one.
    ``stuck``: the obstacle, in words of the action.
    """

    group: str
    spell: BackoffState | None = None
    missed: bool = False
    until: float | None = None
    failed: bool | None = None
    stopped: tuple[BudgetBlocker, ...] = ()
    stuck: tuple[str, ...] = ()


class RetryBackoff:
    """Pending classes that failed, with their backoff.

    ``pause_seconds``: length of the first pause; 0 for none.
    """

    def __init__(self, scheduling_queue: SchedulingQueue, pause_seconds: float) -> None:
        self._scheduling_queue = scheduling_queue
        self._pause_seconds = pause_seconds
        self._affairs = 0
        self._failed: dict[PendingClass, int] = {}
        """Pending class → revision at which it failed."""
        self._again: deque[tuple[int, PendingClass]] = deque()
        """The same in the order of the tries; outdated entries are skipped."""
        self._obstacles: dict[PendingClass, Obstacle] = {}
        """Failed pending class → obstacle. Such classes are not in ``_failed``."""
        self._behind: dict[Obstacle, dict[PendingClass, None]] = {}
        self._looked = 0
        """Revision at which obstacles were last checked."""
        self.moments: list[tuple[float, int, PendingClass]] = []
        self._until: dict[PendingClass, float] = {}
        """Pending class → its time in ``times``."""
        self._spells: dict[PendingClass, BackoffState] = {}
        """Backoff of failed classes, if pauses are enabled."""
        self._missed: dict[PendingClass, None] = {}
        """Classes with possible changes during their pause. The end of the pause is in ``times``."""
        self._ticket = 0

    @property
    def idle(self) -> bool:
        """Return whether no class is known to have failed."""
        return not (self._again or self._behind or self.moments)

    def change(self) -> None:
        """Start a new revision."""
        self._affairs += 1

    def lives(self, pending_class: PendingClass) -> bool:
        """Return whether the class still has pending groups."""
        return self._scheduling_queue.pending_classes.get(pending_class.signature) is pending_class

    def pausing(self, pending_class: PendingClass, now: float) -> bool:
        backoff = self._spells.get(pending_class)
        return backoff is not None and backoff.opened + BURST_SECONDS <= now < backoff.ends

    # ------------------------------------------------------------------ results of tries

    def done(self, pending_class: PendingClass) -> None:
        """Forget a class that succeeded."""
        self._spells.pop(pending_class, None)
        self._missed.pop(pending_class, None)
        self._leave(pending_class)

    def fail(
        self, pending_class: PendingClass, now: float, until: float | None, obstacle: Obstacle | None
    ) -> None:
        """Record a failure. ``until``: time at which it may succeed."""
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
        """Set the pause of a class, unless it is set already."""
        before, first = self._spells.get(pending_class), self._pause_seconds
        if before is not None and now < before.ends:
            return
        since = now if before is None else before.since
        ends = now + min(max(now - since, first), LONGEST_PAUSE * first)
        self._spells[pending_class] = BackoffState(since, now, ends)
        if len(self._spells) > CACHED:
            self._spells = {b: backoff for b, backoff in self._spells.items() if self.lives(b)}

    def put_off(self, due: list[PendingClass]) -> None:
        """Try these classes first in the next cycle."""
        for pending_class in reversed(due):
            self._leave(pending_class)
            self._failed[pending_class] = FIRST
            self._again.appendleft((FIRST, pending_class))

    def forget(self, pending_class: PendingClass) -> None:
        """Try a changed class after its pause."""
        self._failed.pop(pending_class, None)
        self._leave(pending_class)
        self._miss(pending_class)

    def _miss(self, pending_class: PendingClass) -> None:
        """Mark a pausing class to be tried after the pause."""
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

    # ------------------------------------------------------------------ due classes

    def stuck(self, pending_class: PendingClass) -> bool:
        """Return whether the obstacle of the last try still held at the last :meth:`clear`."""
        return pending_class in self._obstacles

    def clear(self) -> None:
        """Try classes again that lost their obstacle, if the revision has changed.

        An obstacle without any pending groups behind it is forgotten without a check.
        """
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
        """Return the classes with a time that has been reached."""
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
        """Return classes that failed at an earlier revision and do not pause, at most ``most``."""
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
        """Return whether :meth:`again` has left out any."""
        return bool(self._again) and self._again[0][0] != self._affairs

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self, action: str, words: Callable[[Obstacle], tuple[str, ...]]) -> list[BackoffRecord]:
        """Return the failed classes with their obstacle and backoff, named by one of their groups."""
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
                pending_class.budget_blockers.get(action, ()),
                words(self._obstacles[pending_class]) if pending_class in self._obstacles else (),
            )
            for pending_class in known
            if self.lives(pending_class)
            and (living := [key for key, group in pending_class.members.items() if group.group is not None])
        ]

    def begin_anew(self) -> None:
        """Reset the revision before :meth:`restore`."""
        self._affairs = self._looked = 1

    def restore(self, pending_class: PendingClass, record: BackoffRecord, obstacle: Obstacle | None) -> None:
        """Restore what was known of a class."""
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

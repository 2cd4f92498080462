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

from windlass.engine.groups.pending_class import BudgetBlocker, PendingClass
from windlass.engine.pending.scheduling_queue import SchedulingQueue

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
    ``obstacle``: the obstacle, in words of the action.
    """

    group: str
    backoff: BackoffState | None = msgspec.field(default=None, name="spell")
    missed: bool = False
    until: float | None = None
    failed: bool | None = None
    budget_blockers: tuple[BudgetBlocker, ...] = msgspec.field(default=(), name="stopped")
    obstacle: tuple[str, ...] = msgspec.field(default=(), name="stuck")


class RetryBackoff:
    """Pending classes that failed, with their backoff.

    ``pause_seconds``: length of the first pause; 0 for none.
    """

    def __init__(self, scheduling_queue: SchedulingQueue, pause_seconds: float) -> None:
        self._scheduling_queue = scheduling_queue
        self._pause_seconds = pause_seconds
        self._revision = 0
        self._failed: dict[PendingClass, int] = {}
        """Pending class → revision at which it failed."""
        self._again: deque[tuple[int, PendingClass]] = deque()
        """The same in the order of the tries; outdated entries are skipped."""
        self._obstacles: dict[PendingClass, Obstacle] = {}
        """Failed pending class → obstacle. Such classes are not in ``_failed``."""
        self._by_obstacle: dict[Obstacle, dict[PendingClass, None]] = {}
        self._checked_revision = 0
        """Revision at which obstacles were last checked."""
        self.times: list[tuple[float, int, PendingClass]] = []
        self._until: dict[PendingClass, float] = {}
        """Pending class → its time in ``times``."""
        self._backoffs: dict[PendingClass, BackoffState] = {}
        """Backoff of failed classes, if pauses are enabled."""
        self._missed: dict[PendingClass, None] = {}
        """Classes with possible changes during their pause. The end of the pause is in ``times``."""
        self._ticket = 0

    @property
    def idle(self) -> bool:
        """Return whether no class is known to have failed."""
        return not (self._again or self._by_obstacle or self.times)

    def new_revision(self) -> None:
        """Start a new revision."""
        self._revision += 1

    def is_pending(self, pending_class: PendingClass) -> bool:
        """Return whether the class still has pending groups."""
        return self._scheduling_queue.pending_classes.get(pending_class.signature) is pending_class

    def is_pausing(self, pending_class: PendingClass, now: float) -> bool:
        backoff = self._backoffs.get(pending_class)
        return backoff is not None and backoff.opened + BURST_SECONDS <= now < backoff.ends

    # ------------------------------------------------------------------ results of tries

    def succeeded(self, pending_class: PendingClass) -> None:
        """Forget a class that succeeded."""
        self._backoffs.pop(pending_class, None)
        self._missed.pop(pending_class, None)
        self._clear_obstacle(pending_class)

    def failed(
        self, pending_class: PendingClass, now: float, until: float | None, obstacle: Obstacle | None
    ) -> None:
        """Record a failure. ``until``: time at which it may succeed."""
        if self._pause_seconds > 0:
            self._start_backoff(pending_class, now)
        self._missed.pop(pending_class, None)
        self._clear_obstacle(pending_class)
        if obstacle is not None and until is None:
            self._failed.pop(pending_class, None)
            self._set_obstacle(pending_class, obstacle)
            return
        self._failed[pending_class] = self._revision
        self._again.append((self._revision, pending_class))
        if until is not None and self._until.get(pending_class) != until:
            self._until[pending_class] = until
            self._push(until, pending_class)

    def _start_backoff(self, pending_class: PendingClass, now: float) -> None:
        """Set the pause of a class, unless it is set already."""
        previous, first = self._backoffs.get(pending_class), self._pause_seconds
        if previous is not None and now < previous.ends:
            return
        since = now if previous is None else previous.since
        ends = now + min(max(now - since, first), LONGEST_PAUSE * first)
        self._backoffs[pending_class] = BackoffState(since, now, ends)
        if len(self._backoffs) > CACHED:
            self._backoffs = {b: backoff for b, backoff in self._backoffs.items() if self.is_pending(b)}

    def defer(self, due: list[PendingClass]) -> None:
        """Try these classes first in the next cycle."""
        for pending_class in reversed(due):
            self._clear_obstacle(pending_class)
            self._failed[pending_class] = FIRST
            self._again.appendleft((FIRST, pending_class))

    def try_after_pause(self, pending_class: PendingClass) -> None:
        """Try a changed class after its pause."""
        self._failed.pop(pending_class, None)
        self._clear_obstacle(pending_class)
        self._mark_missed(pending_class)

    def _mark_missed(self, pending_class: PendingClass) -> None:
        """Mark a pausing class to be tried after the pause."""
        if pending_class not in self._missed:
            self._missed[pending_class] = None
            self._push(self._backoffs[pending_class].ends, pending_class)

    def _set_obstacle(self, pending_class: PendingClass, obstacle: Obstacle) -> None:
        self._obstacles[pending_class] = obstacle
        self._by_obstacle.setdefault(obstacle, {})[pending_class] = None

    def _clear_obstacle(self, pending_class: PendingClass) -> None:
        obstacle = self._obstacles.pop(pending_class, None)
        if obstacle is not None:
            classes = self._by_obstacle[obstacle]
            del classes[pending_class]
            if not classes:
                del self._by_obstacle[obstacle]

    def _push(self, time: float, pending_class: PendingClass) -> None:
        self._ticket += 1
        heapq.heappush(self.times, (time, self._ticket, pending_class))

    # ------------------------------------------------------------------ due classes

    def is_stuck(self, pending_class: PendingClass) -> bool:
        """Return whether the obstacle of the last try still held at the last :meth:`clear`."""
        return pending_class in self._obstacles

    def clear(self) -> None:
        """Try classes again that lost their obstacle, if the revision has changed.

        An obstacle without any pending groups behind it is forgotten without a check.
        """
        if self._checked_revision == self._revision:
            return
        self._checked_revision = self._revision
        lives = self.is_pending
        for obstacle, classes in list(self._by_obstacle.items()):
            if any(map(lives, classes)) and obstacle():
                continue
            del self._by_obstacle[obstacle]
            for pending_class in classes:
                del self._obstacles[pending_class]
                if lives(pending_class):
                    self._failed[pending_class] = FIRST
                    self._again.appendleft((FIRST, pending_class))

    def reached(self, now: float) -> list[PendingClass]:
        """Return the classes with a time that has been reached."""
        due = []
        while self.times and self.times[0][0] <= now:
            time, _, pending_class = heapq.heappop(self.times)
            if self._until.get(pending_class) == time:
                del self._until[pending_class]
            elif pending_class not in self._missed or self.is_pausing(pending_class, now):
                continue
            self._missed.pop(pending_class, None)
            if self.is_pending(pending_class):
                due.append(pending_class)
        return due

    def again(self, now: float, maximum: int) -> list[PendingClass]:
        """Return classes that failed at an earlier revision and do not pause, at most ``maximum``."""
        queue, due = self._again, list[PendingClass]()
        while queue and len(due) < maximum and queue[0][0] != self._revision:
            revision, pending_class = queue.popleft()
            if self._failed.get(pending_class) == revision:
                del self._failed[pending_class]
                if not self.is_pending(pending_class):
                    continue
                if self.is_pausing(pending_class, now):
                    self._mark_missed(pending_class)
                else:
                    due.append(pending_class)
        return due

    @property
    def has_more(self) -> bool:
        """Return whether :meth:`again` has left out any."""
        return bool(self._again) and self._again[0][0] != self._revision

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self, action: str, describe: Callable[[Obstacle], tuple[str, ...]]) -> list[BackoffRecord]:
        """Return the failed classes with their obstacle and backoff, named by one of their groups."""
        failed = dict.fromkeys(
            [
                pending_class
                for revision, pending_class in self._again
                if self._failed.get(pending_class) == revision
            ]
        )
        stuck = [pending_class for classes in self._by_obstacle.values() for pending_class in classes]
        known = dict.fromkeys([*failed, *stuck, *self._backoffs])
        return [
            BackoffRecord(
                min(members),
                self._backoffs.get(pending_class),
                pending_class in self._missed,
                self._until.get(pending_class),
                self._failed[pending_class] == self._revision if pending_class in failed else None,
                pending_class.budget_blockers.get(action, ()),
                describe(self._obstacles[pending_class]) if pending_class in self._obstacles else (),
            )
            for pending_class in known
            if self.is_pending(pending_class)
            and (members := [key for key, group in pending_class.members.items() if group.group is not None])
        ]

    def reset(self) -> None:
        """Reset the revision before :meth:`restore`."""
        self._revision = self._checked_revision = 1

    def restore(self, pending_class: PendingClass, record: BackoffRecord, obstacle: Obstacle | None) -> None:
        """Restore what was known of a class."""
        if record.backoff is not None:
            self._backoffs[pending_class] = record.backoff
            if record.missed:
                self._mark_missed(pending_class)
        if record.failed is not None:
            self._failed[pending_class] = int(record.failed)
            self._again.append((int(record.failed), pending_class))
        if obstacle is not None:
            self._set_obstacle(pending_class, obstacle)
        if record.until is not None:
            self._until[pending_class] = record.until
            self._push(record.until, pending_class)

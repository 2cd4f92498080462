"""Cost of suspending a group: work since its last checkpoint, and the restart.

The cost follows from annotations of the group. ``windlass.dev/checkpointed-at`` is the
time of its last checkpoint, ``windlass.dev/checkpoint-every`` the interval between
checkpoints. Without both all work since the start is lost.
``windlass.dev/restart-cost`` is the time from a restart to the first new work.
"""

from __future__ import annotations

from functools import lru_cache
from math import floor, inf
from typing import NamedTuple

from windlass.kits import durations, timestamps
from windlass.spi.objects import AttainedService, Group
from windlass.spi.timeshare import RunSegment

CHECKPOINTED = "windlass.dev/checkpointed-at"
CHECKPOINT_EVERY = "windlass.dev/checkpoint-every"
RESTART_COST = "windlass.dev/restart-cost"
REMEMBERED = 4096
EXACT = 1e-6
"""Tolerance (seconds): times are sums of floating point numbers."""


class CheckpointHabit(NamedTuple):
    """Checkpoint behaviour that a group declares.

    ``every``: seconds between checkpoints; 0: one at each suspension; ``None``: not
    declared. ``restart``: seconds. ``saved``: last reported checkpoint (Unix seconds).
    """

    every: float | None
    restart: float
    saved: float

    @property
    def free(self) -> bool:
        """True if a suspension never loses anything."""
        return self.every == 0.0 and not self.restart


def habit_of(segment: RunSegment) -> CheckpointHabit:
    """Return the checkpoint behaviour of a segment's group; invalid values are ignored."""
    return declared_by(segment.group)


def declared_by(group: Group) -> CheckpointHabit:
    """Return the checkpoint behaviour that the group's annotations declare."""
    annotations = group.annotations
    return _habit(
        annotations.get(CHECKPOINT_EVERY, ""),
        annotations.get(RESTART_COST, ""),
        annotations.get(CHECKPOINTED, ""),
    )


@lru_cache(REMEMBERED)
def _habit(every: str, restart: str, saved: str) -> CheckpointHabit:
    return CheckpointHabit(seconds_declared(every), seconds_declared(restart) or 0.0, _timestamp(saved))


def seconds_declared(text: str) -> float | None:
    """Return the value of a duration annotation; ``None`` if it is missing or invalid."""
    try:
        return max(durations.parse_long(text), 0.0) if text else None
    except ValueError:
        return None


def _timestamp(text: str) -> float:
    try:
        return timestamps.parse_rfc3339(text) if text else -inf
    except ValueError:
        return -inf


def loss_seconds(segment: RunSegment, habit: CheckpointHabit, now: float) -> float:
    """Return the seconds that a suspension now would lose; 0 if the group does not run."""
    if segment.started is None:
        return 0.0
    if segment.resumed and now - segment.started < habit.restart:
        return now - segment.started  # the restart is still in progress
    return habit.restart + unsaved_seconds(segment, habit, now)


def next_saved(segment: RunSegment, habit: CheckpointHabit, now: float) -> float:
    """Return the time of the next declared checkpoint (Unix seconds); infinite if there is none."""
    every = habit.every
    if segment.started is None or not every:
        return inf
    interval_start = _interval_start(habit, segment.started, again=segment.resumed)
    return interval_start + (floor((max(now - interval_start, 0.0) + EXACT) / every) + 1) * every


def _interval_start(habit: CheckpointHabit, started: float, *, again: bool) -> float:
    """Return the start of the current checkpoint interval (Unix seconds).

    That is the last reported checkpoint, or the time at which work resumed after
    ``started``.
    """
    return habit.saved if habit.saved >= started else started + (habit.restart if again else 0.0)


def unsaved_seconds(segment: RunSegment, habit: CheckpointHabit, now: float) -> float:
    """Return the unsaved work (seconds) of a running group.

    A reported checkpoint counts, whatever interval the group declares.
    """
    return _unsaved(habit, segment.started or 0.0, now, again=segment.resumed)


def _unsaved(habit: CheckpointHabit, started: float, now: float, *, again: bool) -> float:
    run, every = max(now - _interval_start(habit, started, again=again), 0.0), habit.every
    if every == 0:
        return 0.0
    if every is None or habit.saved >= started:
        return run
    return max(run - floor((run + EXACT) / every) * every, 0.0)


def saved_seconds(habit: CheckpointHabit, started: float, until: float, *, again: bool) -> float:
    """Return the saved work (seconds) of a run from ``started`` to a suspension.

    :param again: the run began with a restart
    """
    worked = until - started - (habit.restart if again else 0.0)
    return max(worked - _unsaved(habit, started, until, again=again), 0.0)


def saved_before(past: AttainedService | None, habit: CheckpointHabit) -> float:
    """Return the work (seconds) that the suspensions of a group left.

    With a checkpoint interval and several suspensions, each one is assumed to lose half
    an interval.
    """
    if past is None or (habit.every is None and habit.saved == -inf):
        return 0.0
    stops = max(past.suspensions, 1)
    had = past.attained - (stops - 1) * habit.restart
    if habit.saved > -inf:
        had -= max(past.at - habit.saved, 0.0)
    elif habit.every:
        had = (
            floor((had + EXACT) / habit.every) * habit.every if stops == 1 else had - stops * habit.every / 2
        )
    return max(had, 0.0)


def work_seconds(group: Group, started: float, until: float) -> float:
    """Return the work (seconds) of a running group, including earlier saved work.

    It equals the run time without suspensions. Times are Unix seconds.
    """
    past, habit = group.past, declared_by(group)
    if past is None:
        return until - started
    return saved_before(past, habit) + max(until - max(started, past.at) - habit.restart, 0.0)

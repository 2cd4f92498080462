"""What a stop of a group loses: what it has done since it saved its work last, and what a restart takes.

By the annotations of the group. ``windlass.dev/checkpointed-at`` says when it saved its work last,
``windlass.dev/checkpoint-every`` how often it does; of a group that says neither, all since its start is lost.
``windlass.dev/restart-cost`` says what a start after a stop takes before work goes on.
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
"""Seconds: moments are sums of floating point numbers."""


class CheckpointHabit(NamedTuple):
    """How a group saves its work. ``every``: seconds between checkpoints, 0 where it does whenever it is stopped;
    ``None``: nobody says. ``restart``: seconds. ``saved``: when it did last, by its own word; Unix seconds."""

    every: float | None
    restart: float
    saved: float

    @property
    def free(self) -> bool:
        """True if a stop never loses anything."""
        return self.every == 0.0 and not self.restart


def habit_of(segment: RunSegment) -> CheckpointHabit:
    """What the group says of that; what cannot be read says nothing."""
    return declared_by(segment.group)


def declared_by(group: Group) -> CheckpointHabit:
    """See :func:`habit_of`."""
    annotations = group.annotations
    return _habit(
        annotations.get(CHECKPOINT_EVERY, ""),
        annotations.get(RESTART_COST, ""),
        annotations.get(CHECKPOINTED, ""),
    )


@lru_cache(REMEMBERED)
def _habit(every: str, restart: str, saved: str) -> CheckpointHabit:
    return CheckpointHabit(seconds_declared(every), seconds_declared(restart) or 0.0, _moment(saved))


def seconds_declared(text: str) -> float | None:
    """Of one of these annotations; ``None`` if nobody says anything, or what cannot be read."""
    try:
        return max(durations.parse_long(text), 0.0) if text else None
    except ValueError:
        return None


def _moment(text: str) -> float:
    try:
        return timestamps.parse_rfc3339(text) if text else -inf
    except ValueError:
        return -inf


def loss_seconds(segment: RunSegment, habit: CheckpointHabit, now: float) -> float:
    """How long it takes to be where the group is now if it is stopped now and started again; 0 if it does not run."""
    if segment.started is None:
        return 0.0
    if segment.resumed and now - segment.started < habit.restart:
        return now - segment.started  # it has not begun to work yet
    return habit.restart + unsaved_seconds(segment, habit, now)


def next_saved(segment: RunSegment, habit: CheckpointHabit, now: float) -> float:
    """When the group saves its work next, as far as it says; infinite if it does not."""
    every = habit.every
    if segment.started is None or not every:
        return inf
    begun = _begun(habit, segment.started, again=segment.resumed)
    return begun + (floor((max(now - begun, 0.0) + EXACT) / every) + 1) * every


def _begun(habit: CheckpointHabit, started: float, *, again: bool) -> float:
    """Since when who began ``started`` works on what he saves next, or when he saved his work last by his own word."""
    return habit.saved if habit.saved >= started else started + (habit.restart if again else 0.0)


def unsaved_seconds(segment: RunSegment, habit: CheckpointHabit, now: float) -> float:
    """Of the work that a group which runs has done since its start. Who says when it saved its work last is taken at
    that word, however often it means to."""
    return _unsaved(habit, segment.started or 0.0, now, again=segment.resumed)


def _unsaved(habit: CheckpointHabit, started: float, now: float, *, again: bool) -> float:
    run, every = max(now - _begun(habit, started, again=again), 0.0), habit.every
    if every == 0:
        return 0.0
    if every is None or habit.saved >= started:
        return run
    return max(run - floor((run + EXACT) / every) * every, 0.0)


def saved_seconds(habit: CheckpointHabit, started: float, until: float, *, again: bool) -> float:
    """Of the work that was done in a run, from ``started`` to a stop. ``again``: it began with a restart."""
    worked = until - started - (habit.restart if again else 0.0)
    return max(worked - _unsaved(habit, started, until, again=again), 0.0)


def saved_before(past: AttainedService | None, habit: CheckpointHabit) -> float:
    """Seconds of work that the stops of a group left it. Where it saves its work every so often, and was stopped more
    than once, half of what lies between two checkpoints counts as lost by each."""
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


def work_seconds(group: Group, begun: float, until: float) -> float:
    """How much work a group has done that runs since a moment, with what it had saved before: so long it would have
    run without a stop. Unix seconds."""
    past, habit = group.past, declared_by(group)
    if past is None:
        return until - begun
    return saved_before(past, habit) + max(until - max(begun, past.at) - habit.restart, 0.0)

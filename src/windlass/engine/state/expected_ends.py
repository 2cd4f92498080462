"""When what runs is expected to end, in order, at the cost of what has changed.

Whoever changes where tasks of a group are, their states, or what is known of how long they run, says so with
:meth:`ExpectedEnds.stir`; only that, and what should have ended by now, is looked at again.

A group that has outlived what its owner said is expected to end within :data:`GRACE_SECONDS` at first: work takes a
moment to begin and to end, and its end is heard of somewhat later. After that, or where its run time was learned, it is
taken to run on for as long as it was estimated, again and again doubled (as predicted run times are corrected in
backfilling schedulers: Tsafrir, Etsion, Feitelson, "Backfilling Using System-Generated Predictions", IEEE TPDS 18(6),
2007).

Who waits for room that he is promised counts as if he started now: whom it was freed for, and when he ends, is known as
soon as others are asked to go, and not only when they have gone.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from windlass.engine.groups.entries import (
    OCCUPYING,
    PENDING,
    STUCK,
    TERMINATING,
    GroupEntry,
    TaskEntry,
    alike,
)

GRACE_SECONDS = 30.0
"""As much as Kubernetes gives pods to end (``terminationGracePeriodSeconds``), and Slurm jobs (``KillWait``)."""
NEVER = float(1 << 60)
"""When ends of whom nobody knows when."""
End = tuple[float, str, list[TaskEntry]]
"""Moment, group, and its tasks that end then. No two have moment and group in common."""


def end_of(entry: TaskEntry, now: float) -> float | None:
    """When a task that holds resources, or waits for promised ones, is expected to end, in Unix seconds; ``None`` if
    nothing is known.

    Once it is known that a task has started, this changes with time only when the moment has come."""
    if entry.state is TERMINATING:
        return now
    if entry.state is STUCK:
        return None
    task = entry.task
    started = task.started if task.started is not None else now
    limit = task.run_limit
    hard = max(started + limit, now) if limit is not None else None
    group = entry.group.group if entry.group is not None else None
    estimate = group.run_estimate if group is not None else None
    if group is None or not estimate or estimate <= 0 or (group.learned and not alike(group.runs)):
        return hard
    end = started + estimate
    if end <= now < end + GRACE_SECONDS < end + estimate and not group.learned:
        end += GRACE_SECONDS
    while end <= now:
        estimate *= 2
        end = started + estimate
    return end if hard is None else min(end, hard)


def declared_end(entry: TaskEntry) -> float:
    """When a task was to end by what its owner or the earlier runs said, in Unix seconds, whether it has outlived that
    or not; :data:`NEVER` if nothing is known."""
    task, group = entry.task, entry.group.group if entry.group is not None else None
    estimate = group.run_estimate if group is not None else None
    if task.started is None or group is None:
        return NEVER
    unknown = not estimate or (group.learned and not alike(group.runs))
    end = NEVER if unknown or estimate is None else task.started + estimate
    return end if task.run_limit is None else min(end, task.started + task.run_limit)


def place_of(entry: TaskEntry) -> int:
    """The row on which a task makes room at its end: where it is, or where room is promised to it; -1 if it has none,
    or is leaving."""
    if entry.state is PENDING:
        return entry.promised
    return entry.row if entry.state in OCCUPYING and entry.state is not TERMINATING else -1


class ExpectedEnds:
    """The known ends of what runs, or is promised its room, and is not leaving, of groups of which anything is
    known."""

    def __init__(self) -> None:
        self._stirred: dict[str, GroupEntry] = {}
        self._of: dict[str, list[End]] = {}
        self._order: list[End] = []
        self._floating: dict[str, GroupEntry] = {}
        """Groups with tasks that have not been seen to start: they end later with every moment that passes."""
        self.now = 0.0
        """From when they were looked at last."""
        self.moved: set[int] = set()
        """Rows on which something ends otherwise than before; whoever reads that empties it."""
        self.left: tuple[float, float] | None = None
        """The first and the last moment at which those were to end that have left (:data:`NEVER` where nobody knew);
        whoever reads that empties it."""

    def stir(self, group: GroupEntry) -> None:
        """Something of the group has changed that ends depend on."""
        self._stirred[group.key] = group

    def leave(self, moment: float) -> None:
        """Somebody who was to end at a moment has left his node, or gives up what he was promised there."""
        first, last = self.left or (moment, moment)
        self.left = min(first, moment), max(last, moment)

    def forget(self, group: GroupEntry) -> None:
        """The group is gone for good."""
        if self._stirred.get(group.key) is group:
            del self._stirred[group.key]
        self._floating.pop(group.key, None)
        self._enter(group.key, [])

    def at(self, now: float) -> list[End]:
        """All of them as seen from ``now``, the earliest first. Not to be changed; it holds until the next call."""
        changed = self._stirred
        if now != self.now:
            for key, group in self._floating.items():
                changed.setdefault(key, group)
        for end in self._order:
            if end[0] > now and now >= self.now:
                break
            group = end[2][0].group
            if group is not None:
                changed.setdefault(end[1], group)
        self.now = now
        for group in changed.values():
            self._look_at(group, now)
        changed.clear()
        return self._order

    def _look_at(self, group: GroupEntry, now: float) -> None:
        found: dict[float, list[TaskEntry]] = {}
        floating = False
        for entry in group.tasks.values() if group.timed else ():
            if place_of(entry) >= 0:
                moment = end_of(entry, now)
                if moment is not None:
                    found.setdefault(moment, []).append(entry)
                    floating = floating or entry.task.started is None
        if floating:
            self._floating[group.key] = group
        else:
            self._floating.pop(group.key, None)
        self._enter(group.key, [(moment, group.key, entries) for moment, entries in found.items()])

    def _enter(self, key: str, ends: list[End]) -> None:
        """What a group's ends are now."""
        order, before = self._order, self._of.get(key, [])
        if before == ends:
            return
        for end in before:
            del order[bisect_left(order, end[:2])]
        for end in ends:
            insort(order, end)
        if ends:
            self._of[key] = ends
        else:
            del self._of[key]
        rows = [place_of(entry) for end in (*before, *ends) for entry in end[2]]
        self.moved.update([row for row in rows if row >= 0])

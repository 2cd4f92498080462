"""Expected ends of running tasks, in order, updated at the cost of what has changed.

:meth:`ExpectedEnds.mark_changed` has to be called when the nodes or states of tasks of
a group change, or what is known about its run time. Only such groups are read again,
and groups with an expected end that has passed.

A group that exceeds its stated run time is first expected to end within
:data:`GRACE_SECONDS`, since work takes time to start, to stop and to be reported. After
that, or if its run time was learned, the estimate is doubled again and again. This
correction is known from backfilling schedulers (Tsafrir, Etsion, Feitelson,
"Backfilling Using System-Generated Predictions", IEEE TPDS 18(6), 2007).

A nominated task counts as if it started now. So its expected end is known as soon as
tasks are evicted for it, and not only once they have ended.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from windlass.engine.groups.entries import OCCUPYING, PENDING, STUCK, TERMINATING, GroupEntry, TaskEntry
from windlass.engine.groups.run_times import runs_are_alike

GRACE_SECONDS = 30.0
"""Grace period in seconds, as in Kubernetes (``terminationGracePeriodSeconds``) and
Slurm (``KillWait``).
"""
NEVER = float(1 << 60)
"""End of tasks without a known end."""
End = tuple[float, str, list[TaskEntry]]
"""Time, group key, and the tasks that end then. The pair of time and group is unique."""


def end_of(entry: TaskEntry, now: float) -> float | None:
    """Return the expected end of a holding or nominated task in Unix seconds, or ``None``.

    Once the start of a task is known, the result changes with time only when the end
    has passed.
    """
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
    if group is None or not estimate or estimate <= 0 or (group.learned and not runs_are_alike(group.runs)):
        return hard
    end = started + estimate
    if end <= now < end + GRACE_SECONDS < end + estimate and not group.learned:
        end += GRACE_SECONDS
    while end <= now:
        estimate *= 2
        end = started + estimate
    return end if hard is None else min(end, hard)


def declared_end(entry: TaskEntry) -> float:
    """Return the end of a task by its stated or learned run time, even if it has passed.

    :data:`NEVER` if nothing is known.
    """
    task, group = entry.task, entry.group.group if entry.group is not None else None
    estimate = group.run_estimate if group is not None else None
    if task.started is None or group is None:
        return NEVER
    unknown = not estimate or (group.learned and not runs_are_alike(group.runs))
    end = NEVER if unknown or estimate is None else task.started + estimate
    return end if task.run_limit is None else min(end, task.started + task.run_limit)


def releasing_row(entry: TaskEntry) -> int:
    """Return the row on which the end of a task frees capacity; -1 if there is none.

    It is the row of the task or its nominated row. Terminating tasks have none.
    """
    if entry.state is PENDING:
        return entry.nominated_row
    return entry.row if entry.state in OCCUPYING and entry.state is not TERMINATING else -1


class ExpectedEnds:
    """Known ends of holding and nominated tasks that are not terminating."""

    def __init__(self) -> None:
        self._changed: dict[str, GroupEntry] = {}
        self._by_group: dict[str, list[End]] = {}
        self._order: list[End] = []
        self._floating: dict[str, GroupEntry] = {}
        """Groups with tasks of unknown start. Their ends move with the present time."""
        self.now = 0.0
        """Time of the last update."""
        self.moved: set[int] = set()
        """Rows with changed ends; cleared by the reader."""
        self.left: tuple[float, float] | None = None
        """First and last expected end of tasks that have left (:data:`NEVER` if unknown).

        Cleared by the reader.
        """

    def mark_changed(self, group: GroupEntry) -> None:
        """Mark a group, since its ends may have changed."""
        self._changed[group.key] = group

    def record_left(self, moment: float) -> None:
        """Record that a task left its node, or lost its nomination, that was to end at ``moment``."""
        first, last = self.left or (moment, moment)
        self.left = min(first, moment), max(last, moment)

    def forget(self, group: GroupEntry) -> None:
        """Remove a deleted group."""
        if self._changed.get(group.key) is group:
            del self._changed[group.key]
        self._floating.pop(group.key, None)
        self._replace(group.key, [])

    def at(self, now: float) -> list[End]:
        """Return all ends as of ``now``, earliest first.

        The list must not be changed and is valid until the next call.
        """
        changed = self._changed
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
            self._update(group, now)
        changed.clear()
        return self._order

    def _update(self, group: GroupEntry, now: float) -> None:
        tasks_by_end: dict[float, list[TaskEntry]] = {}
        floating = False
        for entry in group.tasks.values() if group.timed else ():
            if releasing_row(entry) >= 0:
                moment = end_of(entry, now)
                if moment is not None:
                    tasks_by_end.setdefault(moment, []).append(entry)
                    floating = floating or entry.task.started is None
        if floating:
            self._floating[group.key] = group
        else:
            self._floating.pop(group.key, None)
        self._replace(group.key, [(moment, group.key, entries) for moment, entries in tasks_by_end.items()])

    def _replace(self, key: str, ends: list[End]) -> None:
        """Replace the ends of a group."""
        order, before = self._order, self._by_group.get(key, [])
        if before == ends:
            return
        for end in before:
            del order[bisect_left(order, end[:2])]
        for end in ends:
            insort(order, end)
        if ends:
            self._by_group[key] = ends
        else:
            del self._by_group[key]
        rows = [releasing_row(entry) for end in (*before, *ends) for entry in end[2]]
        self.moved.update([row for row in rows if row >= 0])

"""Run times of groups: stated, learned, and limits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.engine.groups.entries import GroupEntry


def run_time(group: GroupEntry) -> float | None:
    """Return the estimated run time of the group in seconds, or ``None`` if unknown.

    It is the stated estimate, if there is one, else the longest limit of its tasks. A
    learned estimate counts if earlier runs are alike (:func:`runs_are_alike`) and it is
    below the limit.
    """
    spec = group.group
    if spec is None or not spec.run_estimate:
        return run_limit(group)
    if not spec.learned:
        return spec.run_estimate
    limit = run_limit(group)
    if not runs_are_alike(spec.runs):
        return limit
    return spec.run_estimate if limit is None else min(limit, spec.run_estimate)


def certain_run_time(group: GroupEntry) -> float | None:
    """Return the seconds after which the group has ended for certain, or ``None`` if unknown.

    Learned run times count up to the longest run, and not at all if tasks state a
    limit.
    """
    spec = group.group
    if spec is None or not spec.learned:
        return run_time(group)
    limit = run_limit(group)
    return limit or ((spec.run_bound or spec.run_estimate) if runs_are_alike(spec.runs) else None)


def latest_end(group: GroupEntry, now: float) -> float:
    """Return the latest end of the group if it starts now; infinite if it is unknown."""
    seconds = certain_run_time(group) if group.timed else None
    return float("inf") if seconds is None else now + seconds


@lru_cache(maxsize=4096)
def runs_are_alike(runs: tuple[float, ...]) -> bool:
    """Return whether earlier run times (seconds, ascending) predict the next one.

    At least half of them have to be between half and twice their median. Otherwise an
    estimate is wrong more often than right, and backfill by it leaves capacity idle or
    delays reserved groups. An empty tuple is an estimate from another source, and
    counts.
    """
    if not runs:
        return True
    middle = runs[(len(runs) - 1) // 2]
    return 2 * sum(middle <= 2 * seconds <= 4 * middle for seconds in runs) >= len(runs)


def run_limit(group: GroupEntry) -> float | None:
    """Return the longest run limit of its tasks in seconds, or ``None`` if a task has no limit."""
    longest = 0.0
    for entry in group.tasks.values():
        if entry.task.run_limit is None:
            return None
        longest = max(longest, entry.task.run_limit)
    return longest or None

"""Timeout of gangs between their first bind and their minimum. Pure; monotonic seconds.

A gang is bound pod by pod, so for a moment it holds less than its minimum. If that does
not end, the bound members would hold their resources for nothing: a bind was rejected,
the scheduler died in between, or a member was removed. After ``patience`` seconds
without progress they are evicted.

A gang that has once reached its minimum is not watched, unless that is in doubt: its
last member came to a node that another scheduler's pod had already filled, and is
evicted before the gang ran.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.model.groups.member_counts import Members


@dataclass(slots=True)
class _Start:
    scheduled: int
    deadline: float


class GangWatch:
    """Watches incomplete starts. ``patience``: timeout in seconds."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._starts: dict[str, _Start] = {}
        self._complete: dict[str, None] = {}
        self._doubts: dict[str, float] = {}
        """Group → time by which its evicted member is seen to terminate."""

    def doubt(self, group: str, now: float) -> None:
        """Watch a group although it had its minimum: a member it needs is being evicted."""
        self._doubts[group] = now + self.patience

    def observe(self, group: str, started: bool, minimum: int, members: Members, now: float) -> None:
        """Take in the members of a group as the API server shows them.

        ``started``: the gang has reached its minimum before.
        """
        holding, scheduled = members.holding, members.scheduled
        if self._is_doubted(group, now):
            started, holding, scheduled = False, holding - members.releasing, scheduled - members.releasing
        if started or not holding or scheduled >= minimum:
            self._starts.pop(group, None)
            if scheduled >= minimum and holding:
                self._complete[group] = None
            elif not holding:
                self._complete.pop(group, None)
            return
        start = self._starts.get(group)
        if start is None or scheduled > start.scheduled:
            self._starts[group] = _Start(scheduled, now + self.patience)
        else:
            start.scheduled = scheduled

    def _is_doubted(self, group: str, now: float) -> bool:
        """Return whether the group is incomplete, or could not be seen so yet."""
        until = self._doubts.get(group)
        if until is not None and now >= until and group not in self._starts:
            del self._doubts[group]
            until = None
        return until is not None

    def watches(self, group: str) -> bool:
        """Return whether the gang's start is incomplete."""
        return group in self._starts

    def was_complete(self, group: str) -> bool:
        """Return whether the gang has had its minimum, and has held resources ever since."""
        return group in self._complete

    def forget(self, group: str) -> None:
        self._starts.pop(group, None)
        self._complete.pop(group, None)
        self._doubts.pop(group, None)

    def take_overdue(self, now: float) -> list[str]:
        """Return the groups that are overdue, and start their timeout again."""
        overdue = [group for group, start in self._starts.items() if start.deadline <= now]
        for group in overdue:
            self._starts[group].deadline = now + self.patience
        return overdue

    def next_deadline(self) -> float | None:
        return min((start.deadline for start in self._starts.values()), default=None)

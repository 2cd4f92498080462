"""Gangs between their first bind and their minimum. Pure; time comes in as an argument (monotonic seconds).

A gang is bound pod by pod, so for a moment it holds less than its minimum. If that moment does not end
(a bind is refused, the scheduler died in between, a member was taken away) the bound members would
hold their resources for nothing. After ``patience`` seconds without progress they are to be evicted.
A gang that has once reached its minimum is not judged here, unless that is doubted: a member that came last stood
where another scheduler's pod had been first, and was evicted before the gang ran.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.model.groups.member_counts import Members


@dataclass(slots=True)
class _Start:
    scheduled: int
    deadline: float


class GangWatch:
    """Watches incomplete starts."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._starts: dict[str, _Start] = {}
        self._whole: dict[str, None] = {}
        self._doubts: dict[str, float] = {}
        """Group → the moment by which its evicted member is seen to leave."""

    def doubt(self, group: str, now: float) -> None:
        """A member without which the start is incomplete is being evicted."""
        self._doubts[group] = now + self.patience

    def observe(self, group: str, started: bool, minimum: int, members: Members, now: float) -> None:
        """``members`` by what the API server shows. ``started``: the gang has reached its minimum before."""
        holding, scheduled = members.holding, members.scheduled
        if self._doubted(group, now):
            started, holding, scheduled = False, holding - members.releasing, scheduled - members.releasing
        if started or not holding or scheduled >= minimum:
            self._starts.pop(group, None)
            if scheduled >= minimum and holding:
                self._whole[group] = None
            elif not holding:
                self._whole.pop(group, None)
            return
        start = self._starts.get(group)
        if start is None or scheduled > start.scheduled:
            self._starts[group] = _Start(scheduled, now + self.patience)
        else:
            start.scheduled = scheduled

    def _doubted(self, group: str, now: float) -> bool:
        """Whether its minimum is doubted still: it has been incomplete since, or could not be seen to be so yet."""
        until = self._doubts.get(group)
        if until is not None and now >= until and group not in self._starts:
            del self._doubts[group]
            until = None
        return until is not None

    def watches(self, group: str) -> bool:
        """Whether the gang's start is seen to be incomplete."""
        return group in self._starts

    def was_whole(self, group: str) -> bool:
        """Whether the gang has been seen with its minimum, and has held something ever since."""
        return group in self._whole

    def forget(self, group: str) -> None:
        self._starts.pop(group, None)
        self._whole.pop(group, None)
        self._doubts.pop(group, None)

    def take_overdue(self, now: float) -> list[str]:
        """Groups whose patience is at its end. Each is given once per incomplete start."""
        overdue = [group for group, start in self._starts.items() if start.deadline <= now]
        for group in overdue:
            self._starts[group].deadline = now + self.patience
        return overdue

    def next_deadline(self) -> float | None:
        return min((start.deadline for start in self._starts.values()), default=None)

"""Gangs between their first bind and their minimum. Pure; time comes in as an argument (monotonic seconds).

A gang is bound pod by pod, so for a moment it holds less than its minimum. If that moment does not end
(a bind is refused, the scheduler died in between, a member was taken away) the bound members would
hold their resources for nothing. After ``patience`` seconds without progress they are to be evicted.
A gang that has once reached its minimum is not judged here.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.model.members import Members


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

    def observe(self, group: str, started: bool, minimum: int, members: Members, now: float) -> None:
        """``members`` by what the API server shows. ``started``: the gang has reached its minimum before."""
        if started or not members.holding or members.scheduled >= minimum:
            self._starts.pop(group, None)
            if members.scheduled >= minimum and members.holding:
                self._whole[group] = None
            elif not members.holding:
                self._whole.pop(group, None)
            return
        start = self._starts.get(group)
        if start is None or members.scheduled > start.scheduled:
            self._starts[group] = _Start(members.scheduled, now + self.patience)
        else:
            start.scheduled = members.scheduled

    def watches(self, group: str) -> bool:
        """Whether the gang's start is seen to be incomplete."""
        return group in self._starts

    def was_whole(self, group: str) -> bool:
        """Whether the gang has been seen with its minimum, and has held something ever since."""
        return group in self._whole

    def forget(self, group: str) -> None:
        self._starts.pop(group, None)
        self._whole.pop(group, None)

    def take_overdue(self, now: float) -> list[str]:
        """Groups whose patience is at its end. Each is given once per incomplete start."""
        overdue = [group for group, start in self._starts.items() if start.deadline <= now]
        for group in overdue:
            self._starts[group].deadline = now + self.patience
        return overdue

    def next_deadline(self) -> float | None:
        return min((start.deadline for start in self._starts.values()), default=None)

"""Groups that hold anything, by queue and priority, for the search of victims.

The index is updated from the groups that a cycle has touched. Ten thousand groups that
only wait, or run with a high priority, cost nothing. Every change of what a group holds
makes the cycle touch it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.queues.tree import QueueEntry

_MAX_RECORDED = 256
_MAX_CHANGES = 8192
"""Maximum number of stored changes. For older ones a reader has to examine all groups."""
_Level = dict[str, GroupEntry]


class RunningGroups:
    """Index of the groups that hold capacity."""

    def __init__(self, groups: Mapping[str, GroupEntry]) -> None:
        self._groups = groups
        self._by_queue: dict[str, dict[int, _Level]] | None = None
        self.recorded: dict[str, GroupEntry] = {}
        """Groups that may have changed; :meth:`update` processes them on the next query."""
        self._positions: dict[str, tuple[str, int]] = {}
        """Group → its queue and priority in ``_by_queue``."""
        self._changes: list[GroupEntry] = []
        self._dropped_changes = 0
        """Number of changes before the stored ones."""

    def of(self, queue: QueueEntry) -> Mapping[str, GroupEntry]:
        """Return the groups of a leaf queue that hold something, as of the last :meth:`update`."""
        levels = (self._by_queue or {}).get(queue.name, {})
        if len(levels) == 1:
            return next(iter(levels.values()))
        return {key: group for priority in sorted(levels) for key, group in levels[priority].items()}

    def within(self, queue: QueueEntry, below: int | None = None) -> Iterator[GroupEntry]:
        """Yield the same, only of priorities lower than ``below`` if given."""
        levels = (self._by_queue or {}).get(queue.name, {})
        for priority in sorted(levels):
            if below is None or priority < below:
                yield from levels[priority].values()

    def count(self, queue: QueueEntry) -> int:
        """Return the number of groups of a leaf queue that hold something."""
        return sum(map(len, (self._by_queue or {}).get(queue.name, {}).values()))

    def any_of(self, queue: QueueEntry, below: int | None = None) -> bool:
        """Return whether :meth:`within` has any."""
        levels = (self._by_queue or {}).get(queue.name, ())
        return bool(levels) if below is None else any(priority < below for priority in levels)

    def runs_only_in(self, name: str) -> bool:
        """Return whether nothing runs in any other queue."""
        known = self._by_queue or {}
        return not known or (len(known) == 1 and name in known)

    def queues(self) -> list[str]:
        """Return the sorted names of the queues in which something runs."""
        return sorted(self._by_queue or ())

    def limit_recorded(self) -> None:
        """Process recorded groups if there are too many of them."""
        if len(self.recorded) > _MAX_RECORDED:
            self.update(())

    def update(self, touched: Iterable[GroupEntry]) -> None:
        """Process changes.

        ``touched``: groups that may hold other amounts, or be in another queue, than at
        the last call. The first call processes all groups.
        """
        if self._by_queue is None:
            self._by_queue = {}
            touched = self._groups.values()
        recorded, self.recorded = self.recorded, {}
        groups = (*recorded.values(), *touched)
        for group in groups:
            self._place(group, self._by_queue)
        self.mark_changed(groups)

    def mark_changed(self, groups: Iterable[GroupEntry]) -> None:
        """Record that these groups have changed, possibly only until the next :meth:`update`."""
        self._changes += groups
        if len(self._changes) > _MAX_CHANGES:
            self._dropped_changes += len(self._changes)
            self._changes.clear()

    @property
    def seen(self) -> int:
        """Return the number of changes so far."""
        return self._dropped_changes + len(self._changes)

    def since(self, seen: int) -> dict[str, GroupEntry] | None:
        """Return the groups that changed after ``seen`` changes, in their current state.

        ``None`` if unknown.
        """
        if seen < self._dropped_changes:
            return None
        return {group.key: group for group in self._changes[seen - self._dropped_changes :]}

    def _place(self, group: GroupEntry, by_queue: dict[str, dict[int, _Level]]) -> None:
        spec, queue = group.group, group.queue
        position = (
            (queue.name, spec.priority) if queue is not None and spec is not None and group.active else None
        )
        previous = self._positions.get(group.key)
        if previous is not None and (
            previous != position or by_queue[previous[0]][previous[1]][group.key] is not group
        ):
            name, priority = previous
            levels = by_queue[name]
            del levels[priority][group.key]
            if not levels[priority]:
                del levels[priority]
            if not levels:
                del by_queue[name]
            del self._positions[group.key]
            previous = None
        if position is not None and previous is None:
            name, priority = position
            self._positions[group.key] = position
            by_queue.setdefault(name, {}).setdefault(priority, {})[group.key] = group

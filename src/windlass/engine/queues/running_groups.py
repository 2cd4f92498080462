"""Which groups hold anything, by queue and priority: where victims are looked for.

Kept up to date from the groups that a cycle has touched, so that ten thousand groups that only wait, or run
and are too important, cost nothing. Whatever changes what a group holds makes the cycle touch it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.queues.tree import QueueEntry

_MOST_NOTED = 256
_LONGEST = 8192
"""So many changes are told of at most; who knows only of earlier ones has to look at all groups."""
_Level = dict[str, GroupEntry]


class RunningGroups:
    def __init__(self, groups: Mapping[str, GroupEntry]) -> None:
        self._groups = groups
        self._by_queue: dict[str, dict[int, _Level]] | None = None
        self._noted: dict[str, GroupEntry] = {}
        self._home: dict[str, tuple[str, int]] = {}
        """Group → the queue and priority under which it stands in ``_by_queue``."""
        self._changes: list[GroupEntry] = []
        self._forgotten = 0
        """How many changes there were before those."""

    def of(self, queue: QueueEntry) -> Mapping[str, GroupEntry]:
        """The groups of a leaf queue that hold something, as of the last :meth:`update`."""
        levels = (self._by_queue or {}).get(queue.name, {})
        if len(levels) == 1:
            return next(iter(levels.values()))
        return {key: group for priority in sorted(levels) for key, group in levels[priority].items()}

    def within(self, queue: QueueEntry, below: int | None = None) -> Iterator[GroupEntry]:
        """The same, only of priorities lower than ``below``, if that is said."""
        levels = (self._by_queue or {}).get(queue.name, {})
        for priority in sorted(levels):
            if below is None or priority < below:
                yield from levels[priority].values()

    def count(self, queue: QueueEntry) -> int:
        """How many groups of a leaf queue hold something."""
        return sum(map(len, (self._by_queue or {}).get(queue.name, {}).values()))

    def any_of(self, queue: QueueEntry, below: int | None = None) -> bool:
        """Whether :meth:`within` has any."""
        levels = (self._by_queue or {}).get(queue.name, ())
        return bool(levels) if below is None else any(priority < below for priority in levels)

    def only(self, name: str) -> bool:
        """Whether nothing runs in any queue but that."""
        known = self._by_queue or {}
        return not known or (len(known) == 1 and name in known)

    def queues(self) -> list[str]:
        """The names of the queues in which something runs, sorted."""
        return sorted(self._by_queue or ())

    def note(self, touched: Mapping[str, GroupEntry]) -> None:
        """As :meth:`update`, by key, but looked at only when someone asks."""
        self._noted.update(touched)
        if len(self._noted) > _MOST_NOTED:
            self.update(())

    def update(self, touched: Iterable[GroupEntry]) -> None:
        """Take in what has changed: ``touched`` are the groups that may hold another amount, or be in
        another queue, than at the last call. The first call looks at all groups."""
        if self._by_queue is None:
            self._by_queue = {}
            touched = self._groups.values()
        noted, self._noted = self._noted, {}
        groups = (*noted.values(), *touched)
        for group in groups:
            self._place(group, self._by_queue)
        self.tell(groups)

    def tell(self, groups: Iterable[GroupEntry]) -> None:
        """Something of the groups has changed, be it only until the next :meth:`update`."""
        self._changes += groups
        if len(self._changes) > _LONGEST:
            self._forgotten += len(self._changes)
            self._changes.clear()

    @property
    def seen(self) -> int:
        """How many changes there have been."""
        return self._forgotten + len(self._changes)

    def since(self, seen: int) -> dict[str, GroupEntry] | None:
        """The groups that have changed after so many changes, as they are now; ``None`` if that is not known."""
        if seen < self._forgotten:
            return None
        return {group.key: group for group in self._changes[seen - self._forgotten :]}

    def _place(self, group: GroupEntry, by_queue: dict[str, dict[int, _Level]]) -> None:
        spec, queue = group.group, group.queue
        wanted = (
            (queue.name, spec.priority) if queue is not None and spec is not None and group.active else None
        )
        home = self._home.get(group.key)
        if home is not None and (home != wanted or by_queue[home[0]][home[1]][group.key] is not group):
            name, priority = home
            levels = by_queue[name]
            del levels[priority][group.key]
            if not levels[priority]:
                del levels[priority]
            if not levels:
                del by_queue[name]
            del self._home[group.key]
            home = None
        if wanted is not None and home is None:
            name, priority = wanted
            self._home[group.key] = wanted
            by_queue.setdefault(name, {}).setdefault(priority, {})[group.key] = group

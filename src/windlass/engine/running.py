"""Which groups hold anything, by queue: where victims are looked for.

Kept up to date from the groups that a cycle has touched, so that ten thousand groups that only wait
cost nothing. Whatever changes what a group holds makes the cycle touch it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.engine.groups import GroupEntry
from windlass.engine.queues import QueueEntry

_NONE: Mapping[str, GroupEntry] = {}


class RunningGroups:
    def __init__(self, groups: Mapping[str, GroupEntry]) -> None:
        self._groups = groups
        self._by_queue: dict[str, dict[str, GroupEntry]] | None = None
        self._home: dict[str, str] = {}
        """Group → the queue under which it stands in ``_by_queue``."""

    def of(self, queue: QueueEntry) -> Mapping[str, GroupEntry]:
        """The groups of a leaf queue that hold something, as of the last :meth:`update`."""
        return (self._by_queue or {}).get(queue.name, _NONE)

    def queues(self) -> list[str]:
        """The names of the queues in which something runs, sorted."""
        return sorted(self._by_queue or ())

    def update(self, touched: Iterable[GroupEntry]) -> None:
        """Take in what has changed: ``touched`` are the groups that may hold another amount, or be in
        another queue, than at the last call. The first call looks at all groups."""
        if self._by_queue is None:
            self._by_queue = {}
            touched = self._groups.values()
        for group in touched:
            self._place(group, self._by_queue)

    def _place(self, group: GroupEntry, by_queue: dict[str, dict[str, GroupEntry]]) -> None:
        name = group.queue.name if group.queue is not None and group.active else ""
        home = self._home.get(group.key, "")
        if home and (home != name or by_queue[home][group.key] is not group):
            del by_queue[home][group.key]
            if not by_queue[home]:
                del by_queue[home]
            del self._home[group.key]
            home = ""
        if name and not home:
            self._home[group.key] = name
            by_queue.setdefault(name, {})[group.key] = group

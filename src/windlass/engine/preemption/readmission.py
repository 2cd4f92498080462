"""Readmission: whether relocated tasks may start again after they are recreated.

A recreated task is a new pending task of its group. Its place is reserved, but it has
to be created within the quotas of its namespace, and admitted by its queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace as altered

from windlass.engine.groups.entries import OCCUPYING, PENDING, GroupEntry, TaskEntry
from windlass.engine.groups.next_step import view_of
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.queueing.enqueue import closed_reason
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.spi.objects import NamespaceQuota


class Readmission:
    """Checks of the relocations in a statement."""

    def __init__(self, state: ClusterState, gang_allocator: GangAllocator, statement: Statement) -> None:
        self._state = state
        self._gang_allocator = gang_allocator
        self._statement = statement

    def rejected(self, relocated: Mapping[str, Sequence[TaskEntry]]) -> set[str]:
        """Return the groups with tasks that would not start again.

        ``relocated``: group → its tasks that are nominated to another place in the
        statement.
        """
        groups = self._state.groups
        return {key for key, entries in relocated.items() if not self._admits(groups[key], entries)}

    def could_return(self, group: GroupEntry, entries: Sequence[TaskEntry]) -> bool:
        """Return whether running tasks would start again if only they were relocated."""
        mark = self._statement.checkpoint()
        for entry in entries:
            self._statement.evict(entry, "")
        admitted = self._admits(group, entries)
        self._statement.rollback(mark)
        return admitted

    def _admits(self, group: GroupEntry, entries: Sequence[TaskEntry]) -> bool:
        """Return whether the group may start these tasks, which are evicted in the statement."""
        queue = group.queue
        if queue is None or group.spec.held or closed_reason(queue) is not None:
            return False
        if self._exceeds_namespace_quota(group, entries):
            return False
        mark = self._statement.checkpoint()
        for entry in entries:
            if entry.nominated_row >= 0:
                self._statement.withdraw_nomination(entry)
        view = altered(view_of(group, entries, extra=False), future=True)
        rejections = self._gang_allocator.rejections_of(group, view)
        self._statement.rollback(mark)
        return not rejections

    def _exceeds_namespace_quota(self, group: GroupEntry, entries: Sequence[TaskEntry]) -> bool:
        """Return whether a namespace uses more than a quota permits of what the tasks request.

        The recreated tasks request as much as before, so the usage stays the same.
        """
        quotas = self._quotas(_namespace(group.key))
        if not quotas:
            return False
        used = self._used(_namespace(group.key))
        requested = {name for entry in entries for name, units in entry.cls.items if units > 0}
        return any(
            used.get(name, 0) > quota.hard[name] for quota in quotas for name in requested & quota.hard.keys()
        )

    def _quotas(self, namespace: str) -> list[NamespaceQuota]:
        known = self._state.namespace_quotas
        return [quota for key, quota in known.items() if _namespace(key) == namespace]

    def _used(self, namespace: str) -> dict[str, int]:
        """Return the requests of all unfinished tasks of a namespace."""
        sums: dict[str, int] = {}
        for key, entry in self._state.tasks.items():
            if _namespace(key) == namespace and (entry.state in OCCUPYING or entry.state is PENDING):
                for name, units in entry.cls.items:
                    sums[name] = sums.get(name, 0) + units
        return sums


def _namespace(key: str) -> str:
    return key.partition("/")[0]

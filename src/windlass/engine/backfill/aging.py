"""Aging: groups that waited too long for capacity, and the nodes to empty for them.

A gang that needs much capacity at once can wait forever while small groups fill every
gap. This happens if no run times are known, so that no reservation is possible. Once a
group has found no capacity for ``aging_seconds`` (counted from its first try by this
engine), nodes are chosen for it: as few as hold it, those with most capacity first.
What becomes free there is reserved for the group until it starts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from windlass.engine.backfill.reserved_devices import shares_by_row
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.groups.entries import OCCUPYING, GroupEntry, TaskEntry, tasks_on
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.queueing.never_fits import NeverFits
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.spi.objects import TaskState

_MIN_PRUNE_SIZE = 4096


Holding = tuple[dict[int, NDArray[np.int64]], dict[int, TaskShares]]
"""(Row → resources, row → device shares)."""


class Aging:
    """Groups that found no capacity, and the choice of nodes for those that waited too long."""

    def __init__(self, state: ClusterState, gang_allocator: GangAllocator, never_fits: NeverFits) -> None:
        self._never_fits = never_fits
        self._state = state
        self._gang_allocator = gang_allocator
        self._seconds = state.config.aging_seconds
        self.since: dict[str, float] = {}
        """Group → time at which it first found no capacity, Unix seconds; the oldest first."""
        self._prune_at = _MIN_PRUNE_SIZE

    def record_failure(self, group: GroupEntry, now: float) -> None:
        """Record that the group found no capacity."""
        self.since.setdefault(group.key, now)
        if len(self.since) > self._prune_at:
            self._prune_at = max(_MIN_PRUNE_SIZE, 2 * len(self.waiting()))

    def forget(self, key: str) -> None:
        """Forget a group that found capacity or is gone.

        Its waiting time starts at its next failed try.
        """
        self.since.pop(key, None)

    def waiting(self) -> list[GroupEntry]:
        """Return the groups that found no capacity and still wait. The others are forgotten."""
        waiting = {key: group for key in self.since if (group := self._waiting_group(key)) is not None}
        if len(waiting) < len(self.since):
            self.since = {key: since for key, since in self.since.items() if key in waiting}
        return [group for group in waiting.values() if not self._never_fits.never_runs(group)]

    def due(self, now: float) -> list[GroupEntry]:
        """Return the groups that have waited too long, the longest first."""
        if self._seconds <= 0:
            return []
        due = []
        for key, since in self.since.items():
            if since + self._seconds > now:
                break
            group = self._waiting_group(key)
            if group is not None and not self._never_fits.never_runs(group):
                due.append(group)
        return due

    def _waiting_group(self, key: str) -> GroupEntry | None:
        group = self._state.groups.get(key)
        return group if group is not None and group.pending_class is not None and group.pending else None

    def next_due(self, now: float) -> float | None:
        """Return the time at which the next group will have waited too long."""
        if self._seconds <= 0:
            return None
        times = (since + self._seconds for since in self.since.values())
        return next((time for time in times if time > now), None)

    def nodes_to_empty(self, statement: Statement, group: GroupEntry) -> Holding | None:
        """Return the nodes to empty with what the group will hold there; ``None`` if none do.

        Nodes are taken in the order of their capacity, as few as hold the group once
        everything there has ended. Their number is bisected, because more nodes never
        hold less.
        """
        rows = self._candidates(group)
        low, high = 0, len(rows)
        if not high or self._try_on(statement, group, rows) is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._try_on(statement, group, rows[:middle]) is None:
                low = middle
            else:
                high = middle
        return self._try_on(statement, group, rows[:high])

    def _candidates(self, group: GroupEntry) -> list[int]:
        """Return the rows that could take a task of the group, those with most capacity first."""
        table = self._state.table
        if group.step is None:
            return []
        fits = np.zeros(table.height, dtype=np.bool_)
        capacity = np.zeros(table.height)
        for batch in group.step.batches:
            batch.cls.refresh()
            fits |= batch.cls.static[: table.height]
            capacity += batch.cls.count[: table.height]
        live = np.flatnonzero(fits & table.live[: table.height]).tolist()
        return sorted(live, key=lambda row: (-capacity[row], len(table.tasks[row]), table.names[row]))

    def _try_on(self, statement: Statement, group: GroupEntry, rows: list[int]) -> Holding | None:
        """Return what the group would hold by row if everything else on ``rows`` were evicted."""
        step = group.step
        if step is None:
            return None
        mark = statement.checkpoint()
        for row in rows:
            for entry in list(tasks_on(self._state.table, row).values()):
                runs = entry.state in OCCUPYING and entry.state is not TaskState.RELEASING
                if runs and entry.group is not group:
                    statement.evict(entry, "aging")
        before = statement.checkpoint()
        done = self._gang_allocator.try_group(statement, group, step, future=True).done
        placements = statement.placements(before) if done else []
        shares = shares_by_row(statement.device_placements(before)) if done else {}
        statement.rollback(mark)
        return (resources_by_row(placements), shares) if done else None


def resources_by_row(placements: Iterable[tuple[TaskEntry, int]]) -> dict[int, NDArray[np.int64]]:
    """Return the sum of the tasks' resources by the row of their placement."""
    resources: dict[int, NDArray[np.int64]] = {}
    for entry, row in placements:
        resources[row] = resources.get(row, 0) + entry.cls.vector
    return resources

"""Who has waited too long for room, and which nodes are to be emptied for it.

A gang that needs much at once can wait for ever while small work keeps slipping into every gap: no run
times, no reservation. Once a group has found no room for ``aging_seconds`` (since this engine first
tried it), nodes are chosen for it, as few as will hold it and those with most room first; what becomes free
there is kept for it, until it starts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from windlass.engine.backfill.reserved_devices import shares_by_row
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.groups.entries import OCCUPYING, GroupEntry, TaskEntry
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.queueing.never_fits import NeverFits
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.spi.objects import TaskState

_PRUNE_AT_LEAST = 4096


Holding = tuple[dict[int, NDArray[np.int64]], dict[int, TaskShares]]
"""Row → amounts, row → parts of cards."""


class Aging:
    def __init__(self, state: ClusterState, gang_allocator: GangAllocator, never_fits: NeverFits) -> None:
        self._never_fits = never_fits
        self._state = state
        self._gang_allocator = gang_allocator
        self._seconds = state.config.aging_seconds
        self.since: dict[str, float] = {}
        """Group → when it first found no room, Unix seconds; the oldest first."""
        self._prune_at = _PRUNE_AT_LEAST

    def note(self, group: GroupEntry, now: float) -> None:
        """The group found no room."""
        self.since.setdefault(group.key, now)
        if len(self.since) > self._prune_at:
            self._prune_at = max(_PRUNE_AT_LEAST, 2 * len(self.waiting()))

    def forget(self, key: str) -> None:
        """The group has found room, or is gone: whether it waits for too long counts from its next try in vain."""
        self.since.pop(key, None)

    def waiting(self) -> list[GroupEntry]:
        """All that have found no room and still wait; the others are forgotten."""
        found = {key: group for key in self.since if (group := self._waits(key)) is not None}
        if len(found) < len(self.since):
            self.since = {key: since for key, since in self.since.items() if key in found}
        return [group for group in found.values() if not self._never_fits.beyond(group)]

    def due(self, now: float) -> list[GroupEntry]:
        """The groups that have waited for too long, longest first."""
        if self._seconds <= 0:
            return []
        found = []
        for key, since in self.since.items():
            if since + self._seconds > now:
                break
            group = self._waits(key)
            if group is not None and not self._never_fits.beyond(group):
                found.append(group)
        return found

    def _waits(self, key: str) -> GroupEntry | None:
        group = self._state.groups.get(key)
        return group if group is not None and group.bucket is not None and group.pending else None

    def next_due(self, now: float) -> float | None:
        """When the next group will have waited for too long."""
        if self._seconds <= 0:
            return None
        moments = (since + self._seconds for since in self.since.values())
        return next((moment for moment in moments if moment > now), None)

    def rows(self, statement: Statement, group: GroupEntry) -> Holding | None:
        """The nodes to empty, and what the group will hold there; ``None`` if none would do.

        Nodes are taken from the one with most room on, as few as hold the group once all that runs there
        has ended (bisected: more nodes never hold less).
        """
        rows = self._candidates(group)
        low, high = 0, len(rows)
        if not high or self._placed(statement, group, rows) is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._placed(statement, group, rows[:middle]) is None:
                low = middle
            else:
                high = middle
        return self._placed(statement, group, rows[:high])

    def _candidates(self, group: GroupEntry) -> list[int]:
        """Rows that could take a task of the group, those with most room first."""
        table = self._state.table
        if group.step is None:
            return []
        fits = np.zeros(table.height, dtype=np.bool_)
        room = np.zeros(table.height)
        for batch in group.step.batches:
            batch.cls.refresh()
            fits |= batch.cls.static[: table.height]
            room += batch.cls.count[: table.height]
        live = np.flatnonzero(fits & table.live[: table.height]).tolist()
        return sorted(live, key=lambda row: (-room[row], len(table.tasks[row]), table.names[row]))

    def _placed(self, statement: Statement, group: GroupEntry, rows: list[int]) -> Holding | None:
        """What the group would hold by row if all others that run on ``rows`` were leaving."""
        step = group.step
        if step is None:
            return None
        mark = statement.checkpoint()
        for row in rows:
            for entry in list(self._state.table.tasks[row].values()):
                leaves = entry.state in OCCUPYING and entry.state is not TaskState.RELEASING
                if leaves and entry.group is not group:
                    statement.evict(entry, "aging")
        before = statement.checkpoint()
        done = self._gang_allocator.try_step(statement, group, step, future=True).done
        placements = statement.placements(before) if done else []
        parts = shares_by_row(statement.device_placements(before)) if done else {}
        statement.rollback(mark)
        return (by_row(placements), parts) if done else None


def by_row(placements: Iterable[tuple[TaskEntry, int]]) -> dict[int, NDArray[np.int64]]:
    """What tasks hold together by the row on which they are placed, or would be."""
    found: dict[int, NDArray[np.int64]] = {}
    for entry, row in placements:
        found[row] = found.get(row, 0) + entry.cls.vector
    return found

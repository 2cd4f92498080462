"""Capacity that is held for moved tasks until their successors exist.

A moved task is stopped, and its controller creates a successor, possibly under another
name. In the meantime its nominated capacity is held for a task of the same class and
group. It is given up if no successor appears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.engine.devices.share_table import NOMINATED_SIDE, TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.spi.numa import NumaHolding

if TYPE_CHECKING:
    from windlass.engine.state.placement_ledger import PlacementLedger


@dataclass(slots=True, eq=False)
class RelocationHold:
    """Held capacity. ``until``: Unix seconds, ``None`` before the next cycle."""

    group: GroupEntry
    cls: TaskClass
    row: int
    until: float | None = None
    shares: TaskShares = ()
    """Held device shares."""
    zones: NumaHolding | None = None
    """Held NUMA zones."""

    @property
    def holder(self) -> str:
        """Name of its entry in the table of device shares."""
        return f"hold {id(self)}"


class RelocationHolds:
    """All holds. In the ledger a hold counts like the nomination that it was."""

    def __init__(self, ledger: PlacementLedger) -> None:
        self._ledger = ledger
        self.by_group: dict[str, list[RelocationHold]] = {}
        """Holds by group key."""

    def __iter__(self) -> Iterator[RelocationHold]:
        return (hold for holds in self.by_group.values() for hold in holds)

    def of(self, key: str) -> Sequence[RelocationHold]:
        """Return the holds of a group."""
        return self.by_group.get(key, ())

    def add(self, entry: TaskEntry) -> None:
        """Hold the nominated capacity of a moved task that has ended."""
        group = entry.group
        if group is None or group.queue is None:
            self._ledger.withdraw_nomination(entry)
            return
        row, entry.nominated_row = entry.nominated_row, -1
        self._ledger.link_nomination(entry, row, -1)
        hold = RelocationHold(
            group, entry.cls, row, shares=entry.nominated_shares, zones=entry.nominated_zones
        )
        entry.nominated_shares, entry.nominated_zones = (), None
        self.by_group.setdefault(group.key, []).append(hold)
        self._move_shares(hold, entry.key, hold.holder)

    def _move_shares(self, hold: RelocationHold, before: str, after: str) -> None:
        """Move nominated device shares to another holder."""
        if hold.cls.needs.devices:
            share_table = self._ledger.table.shares
            share_table.put(hold.row, before, hold.shares, NOMINATED_SIDE, -1)
            share_table.put(hold.row, after, hold.shares, NOMINATED_SIDE, 1)

    def transfer_to(self, entry: TaskEntry) -> None:
        """Nominate held capacity of the same class to a new pending task."""
        group = entry.group
        holds = self.by_group.get(group.key, []) if group is not None else []
        for hold in holds:
            if group is not None and hold.cls is entry.cls:
                self._forget(hold)
                entry.nominated_row, entry.nominated_shares, entry.nominated_zones = (
                    hold.row,
                    hold.shares,
                    hold.zones,
                )
                self._move_shares(hold, hold.holder, entry.key)
                self._ledger.link_nomination(entry, hold.row, 1)
                return

    def restore(self, hold: RelocationHold) -> None:
        """Restore a hold from a dump."""
        self.by_group.setdefault(hold.group.key, []).append(hold)
        if hold.cls.needs.devices:
            self._ledger.table.shares.put(hold.row, hold.holder, hold.shares, NOMINATED_SIDE, 1)
        hold.zones = self._ledger.numa_usage.nominate(hold.cls, hold.row, hold.zones)
        self._ledger.count_nomination(hold.group, hold.cls, hold.row, 1)

    def drop_group(self, key: str) -> None:
        """Give up the holds of a group that was deleted or has changed its queue."""
        for hold in self.by_group.get(key, [])[:]:
            self._drop(hold)

    def expire(self, now: float, seconds: float) -> None:
        """Give up holds older than ``seconds``, and holds of capacity that no longer exists."""
        ledger = self._ledger
        if not self.by_group and not ledger.terminating:
            return
        for hold in list(self):
            keeps = ledger.can_keep(hold.cls, hold.row, hold.holder, hold.shares)
            if not keeps or (hold.until is not None and hold.until <= now):
                self._drop(hold)
            elif hold.until is None:
                hold.until = now + seconds
        for entry in [entry for entry in ledger.terminating.values() if entry.nominated_row >= 0]:
            if not ledger.can_keep(entry.cls, entry.nominated_row, entry.key, entry.nominated_shares):
                ledger.withdraw_nomination(entry)

    def next_due(self) -> float | None:
        if not self.by_group:
            return None
        return min((hold.until for hold in self if hold.until is not None), default=None)

    def _drop(self, hold: RelocationHold) -> None:
        self._forget(hold)
        ledger = self._ledger
        if hold.cls.needs.devices:
            ledger.table.shares.put(hold.row, hold.holder, hold.shares, NOMINATED_SIDE, -1)
        ledger.numa_usage.remove_nomination(hold.row, hold.zones)
        ledger.count_nomination(hold.group, hold.cls, hold.row, -1)
        ledger.wake_after_withdrawal(hold.group, hold.cls, hold.row)

    def _forget(self, hold: RelocationHold) -> None:
        holds = self.by_group[hold.group.key]
        holds.remove(hold)
        if not holds:
            del self.by_group[hold.group.key]

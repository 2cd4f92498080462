"""Places that are kept for moved tasks until they come back.

A task that is moved is stopped, and its controller makes another one in its stead: under the same name or
not. The room that was promised to the first is kept for its group, for a task of the same class, over the
time in between, and is given up if none comes.
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
    """``until``: Unix seconds; ``None`` before the engine has looked at it."""

    group: GroupEntry
    cls: TaskClass
    row: int
    until: float | None = None
    cuts: TaskShares = ()
    """What is kept of cards."""
    zones: NumaHolding | None = None
    """What is kept of NUMA zones."""

    @property
    def who(self) -> str:
        """Its name among those who are promised parts of cards."""
        return f"hold {id(self)}"


class RelocationHolds:
    """In the books a hold stands as the promise that it was: on its node, for its class, in its queue."""

    def __init__(self, ledger: PlacementLedger) -> None:
        self._ledger = ledger
        self.by_group: dict[str, list[RelocationHold]] = {}
        """Those of each group that has any."""

    def __iter__(self) -> Iterator[RelocationHold]:
        return (hold for holds in self.by_group.values() for hold in holds)

    def of(self, key: str) -> Sequence[RelocationHold]:
        """Those of a group."""
        return self.by_group.get(key, ())

    def keep(self, entry: TaskEntry) -> None:
        """A task that was to move has left: keep what was promised to it."""
        group = entry.group
        if group is None or group.queue is None:
            self._ledger.withdraw(entry)
            return
        row, entry.promised = entry.promised, -1
        self._ledger.expect(entry, row, -1)
        hold = RelocationHold(group, entry.cls, row, cuts=entry.kept, zones=entry.kept_zones)
        entry.kept, entry.kept_zones = (), None
        self.by_group.setdefault(group.key, []).append(hold)
        self._pass_on(hold, entry.key, hold.who)

    def _pass_on(self, hold: RelocationHold, before: str, after: str) -> None:
        """What is kept of cards is another's from now on."""
        if hold.cls.needs.devices:
            cards = self._ledger.table.shares
            cards.put(hold.row, before, hold.cuts, NOMINATED_SIDE, -1)
            cards.put(hold.row, after, hold.cuts, NOMINATED_SIDE, 1)

    def hand_over(self, entry: TaskEntry) -> None:
        """A pending task has come to a group: a place that is kept for its like is promised to it."""
        group = entry.group
        holds = self.by_group.get(group.key, []) if group is not None else []
        for hold in holds:
            if group is not None and hold.cls is entry.cls:
                self._forget(hold)
                entry.promised, entry.kept, entry.kept_zones = hold.row, hold.cuts, hold.zones
                self._pass_on(hold, hold.who, entry.key)
                self._ledger.expect(entry, hold.row, 1)
                return

    def restore(self, hold: RelocationHold) -> None:
        """Enter a hold anew, from a dump."""
        self.by_group.setdefault(hold.group.key, []).append(hold)
        if hold.cls.needs.devices:
            self._ledger.table.shares.put(hold.row, hold.who, hold.cuts, NOMINATED_SIDE, 1)
        hold.zones = self._ledger.numa_usage.promise(hold.cls, hold.row, hold.zones)
        self._ledger.count_promise(hold.group, hold.cls, hold.row, 1)

    def drop_group(self, key: str) -> None:
        """The group is gone, or counts for another queue now."""
        for hold in self.by_group.get(key, [])[:]:
            self._drop(hold)

    def expire(self, now: float, seconds: float) -> None:
        """Give up what has been kept for ``seconds``, and places that are not there any more."""
        ledger = self._ledger
        if not self.by_group and not ledger.leaving:
            return
        for hold in list(self):
            keeps = ledger.keeps(hold.cls, hold.row, hold.who, hold.cuts)
            if not keeps or (hold.until is not None and hold.until <= now):
                self._drop(hold)
            elif hold.until is None:
                hold.until = now + seconds
        for entry in [entry for entry in ledger.leaving.values() if entry.promised >= 0]:
            if not ledger.keeps(entry.cls, entry.promised, entry.key, entry.kept):
                ledger.withdraw(entry)

    def next_due(self) -> float | None:
        if not self.by_group:
            return None
        return min((hold.until for hold in self if hold.until is not None), default=None)

    def _drop(self, hold: RelocationHold) -> None:
        self._forget(hold)
        ledger = self._ledger
        if hold.cls.needs.devices:
            ledger.table.shares.put(hold.row, hold.who, hold.cuts, NOMINATED_SIDE, -1)
        ledger.numa_usage.unpromise(hold.row, hold.zones)
        ledger.count_promise(hold.group, hold.cls, hold.row, -1)
        ledger.give_up(hold.group, hold.cls, hold.row)

    def _forget(self, hold: RelocationHold) -> None:
        holds = self.by_group[hold.group.key]
        holds.remove(hold)
        if not holds:
            del self.by_group[hold.group.key]

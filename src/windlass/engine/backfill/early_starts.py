"""Groups with an earliest start: capacity is reserved for them from that time on.

A controller that knows when a group will be needed states the time
(``Group.earliest_start``). No task of the group is placed before. Until then other
groups may use the capacity if they end in time, as with any reservation. The pods may
carry scheduling gates meanwhile: if the gates are still there at the stated time, the
capacity stays reserved until they are removed.

The reservation ends at ``Group.reserve_until``, by default :data:`RESERVE_SECONDS` after
the stated time. After that the group waits like any other.

These reservations are checked in every cycle, in order of rank, and kept while their
capacity will be there. Groups of lower rank, whether they borrow the capacity or wait
themselves, are placed and planned next to them. Ordinary reservations of groups of
higher rank come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

import numpy as np

from windlass.engine.backfill.forecast import Forecast, Forecaster, ReservedCounts, tasks_by_row
from windlass.engine.backfill.reservation import UNKNOWN, Reservation, Resources
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import PENDING, GroupEntry, NextTasks, tasks_on
from windlass.engine.groups.next_step import next_step
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.expected_ends import end_of
from windlass.engine.state.statement import Statement

RESERVE_SECONDS = 600.0
"""Time for which capacity stays reserved after the earliest start, if no end is stated (seconds)."""
MAX_GROUPS = 16
"""Maximum number of groups with such a reservation."""
_rank = attrgetter("rank")
Record = tuple[str, float, float, dict[str, dict[int, int]], dict[str, TaskShares]]
"""Group, earliest start, start, node → number of a class → number of tasks, node → device shares."""


def reserve_until(group: GroupEntry) -> float:
    """Return the end of the reservation of a group with an earliest start, in Unix seconds."""
    spec = group.spec
    if spec.reserve_until is not None:
        return spec.reserve_until
    return (spec.earliest_start or 0.0) + RESERVE_SECONDS


class EarlyStarts:
    """Reservations of groups with an earliest start."""

    def __init__(self, state: ClusterState, gang_allocator: GangAllocator) -> None:
        self._state = state
        self._windows: list[tuple[GroupEntry, ReservedCounts]] = []
        self._forecaster = Forecaster(state, gang_allocator, lambda: self._windows)
        self.by_group: dict[str, Reservation] = {}
        self._earliest: dict[str, float] = {}
        """Group → the earliest start that its reservation was made for."""
        self._now = 0.0
        self._borrowers: dict[str, list[str]] = {}
        self._changed: dict[str, GroupEntry] = {}
        """Groups with another reservation or other borrowers than in the last plan."""
        self.ended: set[str] = set()
        """Groups with a reservation that has ended, for the groups that wait behind it."""

    def windows(self) -> list[tuple[GroupEntry, ReservedCounts]]:
        """Return what the groups will hold, for plans of other groups."""
        return [(r.group, self._window(r)) for r in self.by_group.values()]

    def _window(self, reservation: Reservation) -> ReservedCounts:
        return ReservedCounts(max(reservation.start, self._now), reservation.tasks)

    def next_end(self, now: float) -> float | None:
        """Return the next time at which a reservation ends unused."""
        ends = [reserve_until(self._state.groups[key]) for key in self.by_group]
        return min((end for end in ends if end > now), default=None)

    def drop(self, key: str) -> None:
        """Remove the reservation of a group that starts. What it leaves free may be used at once."""
        r = self.by_group.pop(key, None)
        if r is not None:
            self.ended.add(key)
            self._state.table.improved |= r.rows.keys() & set(self._state.table.rows.values())

    # ------------------------------------------------------------------ plans

    def plan(self, statement: Statement, now: float, others: Iterable[Reservation]) -> None:
        """Make the reservations. ``others``: ordinary ones, which precede groups of lower rank."""
        before, self.by_group, self._now = self.by_group, {}, now
        ordinary = [r for r in others if r.group.pending_class is not None]
        reserved = {r.group.key for r in ordinary}
        self._windows = [(r.group, self._window(r)) for r in ordinary if r.tasks and r.start < UNKNOWN]
        booked = [group for group in self._state.early.values() if _is_booked(group, now)]
        groups = sorted((group for group in booked if group.key not in reserved), key=_rank)
        for group in groups[:MAX_GROUPS]:
            with group.with_gated():
                r = self._planned(statement, group, before.get(group.key), now)
            if r is not None:
                self.by_group[group.key] = r
                self._windows.append((group, self._window(r)))
        self._earliest = {key: r.group.spec.earliest_start or 0.0 for key, r in self.by_group.items()}
        self._mark_released_rows(before)
        self._note_changes(before, now)

    def _note_changes(self, before: Mapping[str, Reservation], now: float) -> None:
        """Note the groups that have to be explained again."""
        known, self._borrowers = self._borrowers, {}
        self._changed = {}
        for key, r in self.by_group.items():
            self._borrowers[key] = self.borrowers(r, now)
            if self._borrowers[key] != known.get(key) or not r.reserves_same(before.get(key)):
                self._changed[key] = r.group
        self.ended |= before.keys() - self.by_group.keys()
        for key, r in before.items():
            if key not in self.by_group and self._state.groups.get(key) is r.group:
                self._changed[key] = r.group

    def take_changed(self) -> dict[str, GroupEntry]:
        """Return the groups that have to be explained again since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def _planned(
        self, statement: Statement, group: GroupEntry, before: Reservation | None, now: float
    ) -> Reservation | None:
        """Return the reservation of a group: the one that it had if possible, else a new one.

        It holds all pending tasks, or only the minimum if that starts sooner.
        """
        step = next_step(group)
        if not isinstance(step, NextTasks) or step.extra:
            return None
        whole, kept = _whole(group, step), self._kept(statement, group, step, before, now)
        if kept is not None and _size(kept) >= whole.members:
            return kept
        earliest = max(group.spec.earliest_start or 0.0, now)
        best = self._forecaster.plan_from(statement, group, whole, earliest, now)
        if kept is not None:
            return self._made(group, best) if best is not None and best.start <= kept.start else kept
        if whole is not step and (best is None or best.start > earliest):
            least = self._forecaster.plan_from(statement, group, step, earliest, now)
            if best is None or (least is not None and least.start < best.start):
                best = least
        return None if best is None else self._made(group, best)

    def _kept(
        self, statement: Statement, group: GroupEntry, step: NextTasks, before: Reservation | None, now: float
    ) -> Reservation | None:
        """Return the reservation before if its capacity will be there, for the same earliest start."""
        if before is None or self._earliest.get(group.key) != group.spec.earliest_start:
            return None
        rows, names = self._state.table.rows, self._state.table.nodes
        exists = all(rows.get(name) == row and names[row] is not None for row, name in before.nodes.items())
        if not exists or _size(before) < step.members or any(cls.needs.devices for cls in before.tasks):
            return None
        if not before.nodes_accept():
            return None
        holds = self._forecaster.holds(statement, group, step, self._window(before), now)
        return before if holds else None

    def _made(self, group: GroupEntry, forecast: Forecast) -> Reservation:
        return self._reservation(group, forecast.start, tasks_by_row(forecast), forecast.device_shares)

    def _reservation(
        self,
        group: GroupEntry,
        start: float,
        tasks: dict[TaskClass, dict[int, int]],
        shares: dict[int, TaskShares],
    ) -> Reservation:
        rows: dict[int, Resources] = {}
        for cls, by_row in tasks.items():
            for row, n in by_row.items():
                rows[row] = rows.get(row, 0) + cls.vector * n
        names = self._state.table.names
        units = {row: list(_units(resources)) for row, resources in rows.items()}
        nodes = {row: names[row] for row in rows}
        return Reservation(group, start, rows, nodes, (), shares, units, tasks=tasks, is_early=True)

    def _mark_released_rows(self, before: Mapping[str, Reservation]) -> None:
        """Mark the rows with capacity that was reserved ``before`` and is not any more."""
        freed = {
            row for key, r in before.items() if not r.reserves_same(self.by_group.get(key)) for row in r.rows
        }
        if freed:
            self._state.table.improved |= freed & set(self._state.table.rows.values())

    # ------------------------------------------------------------------ explanations

    def borrowers(self, reservation: Reservation, now: float) -> list[str]:
        """Return the groups that hold reserved capacity and end before it is needed."""
        table, found = self._state.table, set[str]()
        for row, units in reservation.column_units.items():
            allocatable, used, releasing, nominated = table.planes[row].tolist()
            short = [
                column
                for column, need in units
                if used[column] - releasing[column] + nominated[column] + need > allocatable[column]
            ]
            for entry in tasks_on(table, row).values() if short else ():
                end = end_of(entry, now)
                if entry.group is None or end is None or end > reservation.start:
                    continue
                if any(table.released_by(entry)[column] > 0 for column in short):
                    found.add(entry.group.key)
        return sorted(found)

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self) -> list[Record]:
        """Return the reservations; nodes that are gone are included."""
        records: list[Record] = []
        for key, r in self.by_group.items():
            tasks: dict[str, dict[int, int]] = {}
            for cls, by_row in r.tasks.items():
                for row, n in by_row.items():
                    tasks.setdefault(r.nodes[row], {})[cls.number] = n
            shares = {r.nodes[row]: held for row, held in r.device_shares.items()}
            records.append((key, self._earliest[key], r.start, tasks, shares))
        return records

    def restore(self, records: Iterable[Record], classes: Mapping[int, TaskClass]) -> None:
        """Restore the result of :meth:`as_records`."""
        table = self._state.table
        for key, earliest, start, by_node, shares in records:
            self._earliest[key] = earliest
            tasks: dict[TaskClass, dict[int, int]] = {}
            for node, numbers in by_node.items():
                for number, n in numbers.items():
                    tasks.setdefault(classes[number], {})[table.row(node)] = n
            held = {table.row(node): found for node, found in shares.items()}
            self.by_group[key] = self._reservation(self._state.groups[key], start, tasks, held)
        for row in {row for r in self.by_group.values() for row in r.rows}:
            table.release_row(row)  # of nodes that are gone


def _is_booked(group: GroupEntry, now: float) -> bool:
    """Return whether capacity is to be reserved for a group with an earliest start."""
    spec = group.group
    if spec is None or spec.earliest_start is None or spec.held or now >= reserve_until(group):
        return False
    return group.queue is not None and not group.nominations and group.missing > 0


def is_gated(group: GroupEntry) -> bool:
    """Return whether a scheduling gate of a pod is closed."""
    return any(entry.state is PENDING and entry.task.gated for entry in group.tasks.values())


def _whole(group: GroupEntry, step: NextTasks) -> NextTasks:
    """Return the step with all pending tasks, if the group has no parts of its own."""
    members = group.waiting_count()
    if step.roles or step.root is not None or step.options or members <= step.members:
        return step
    return NextTasks(step.batches, members, {})


def _size(reservation: Reservation) -> int:
    """Return the number of tasks that a reservation holds."""
    return sum(n for by_row in reservation.tasks.values() for n in by_row.values())


def _units(resources: Resources) -> Iterable[tuple[int, int]]:
    return ((int(column), int(resources[column])) for column in np.flatnonzero(resources))

"""Capacity of every node at the last planned start, kept from one plan to the next.

Groups that are placed by resources alone
(:meth:`~windlass.engine.placement.gang_allocator.GangAllocator.is_by_resources`) need no new
plan from the beginning. A planned start stays valid while nothing changes on its nodes.
A group behind all planned ones is placed on what is free at the last of these starts,
or after the next expected end, and so on. Therefore the capacity of all nodes at that
time, the *horizon*, is stored. It is updated by what has changed:

* nodes in the change log of the table
* nodes on which a task ends at another time than expected
* nodes on which something is reserved in another way
* every start and end between the old and the new horizon

Reservations are checked again on these nodes only.

The results equal those of :mod:`windlass.engine.backfill.forecast` (a property test
checks this). That module is used where more than resources decides. Nodes are ranked as
for a real placement, by :mod:`windlass.engine.feasibility.evaluate`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import nextafter
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from windlass.engine.backfill.forecast import MAX_EVENTS, Forecast
from windlass.engine.backfill.peak_demand import Event, Units, peak
from windlass.engine.backfill.reservation import Reservation
from windlass.engine.feasibility.node_fit import NodeFit
from windlass.engine.groups.entries import GroupEntry, TaskBatch, TaskEntry, nominated_on, tasks_on
from windlass.engine.groups.run_times import run_time
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.expected_ends import End, end_of, releasing_row

_FOREVER = float("inf")
_ColumnUnits = Sequence[tuple[int, int]]
"""Columns and units."""
_Planes = list[list[int]]
"""Plane of the table → column → units."""
_Release = tuple[float, _ColumnUnits, int]
"""Time, what becomes free, and the plane in which it is booked: used or nominated."""
_Ranked = tuple[int, int, int]
"""(Sort key, row, number of tasks it holds)."""
_time_of = itemgetter(0)


@dataclass(slots=True)
class _Window:
    """Capacity that a group will hold: ``rows`` from ``start`` until ``end``.

    ``reservation``: ``None`` until there is one.
    """

    group: GroupEntry
    start: float
    end: float
    rows: Mapping[int, _ColumnUnits]
    reservation: Reservation | None = None
    plane: int = NOMINATED
    """Plane in which it is booked; used for a new group that finds all of it free."""


class PlannedCapacity:
    """Plan of reserved starts and the capacity of all nodes at its end."""

    def __init__(self, state: ClusterState, gang_allocator: GangAllocator) -> None:
        self._table = state.table
        self._ledger = state.ledger
        self._gang_allocator = gang_allocator
        self._now = self._time = 0.0
        self._windows: list[_Window] = []
        """Windows of the first groups in order, so that starts never decrease.

        All start before the horizon.
        """
        self._windows_by_row: dict[int, list[_Window]] = {}
        """Row → its windows, in order."""
        self._free: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        """Free capacity at the horizon by row and column."""
        self._releases: dict[int, list[_Release]] = {}
        """Row → releases with their times."""
        self._shape: tuple[int, ...] = ()
        """Changes with the nodes and with static plugin results."""
        self._log_mark = 0
        """Mark up to which the change log has been read."""
        self._ends: Sequence[End] = ()

    # ------------------------------------------------------------------ plans

    def forget(self) -> None:
        """Forget the plan, since reservations are planned without it."""
        self._shape = ()

    def plan(
        self, groups: Sequence[GroupEntry], reservations: Sequence[Reservation], now: float
    ) -> tuple[list[str], dict[str, Forecast]] | None:
        """Return :meth:`Forecaster.plan_with_reserved` for ``groups``, the first with reservations.

        ``None`` if not only resources decide.
        """
        if self._uses_devices() or not self._all_by_resources(reservations):
            self._shape = ()  # what is skipped now is read again
            return None
        first = self._update_plan(reservations, now)
        forecasts: dict[str, Forecast] = {}
        for group in groups[first:]:
            step = group.step
            if step is None or not self._gang_allocator.is_by_resources(group, step):
                return None
            batch = step.batches[0]
            if not self._wait_for_capacity(batch, step.members):
                break
            forecast = self._place(group, batch, step.members)
            if forecast is None:
                self._shape = ()
                return None
            forecasts[group.key] = forecast
        return [group.key for group in groups[:first]], forecasts

    def move_forward(self, reservations: Sequence[Reservation], now: float) -> dict[str, Forecast] | None:
        """Return :meth:`Forecaster.move_forward` for the reservations.

        ``None`` if not only resources decide.
        """
        if self._uses_devices() or not self._all_by_resources(reservations):
            self._shape = ()
            return None
        valid = self._update_plan(reservations, now)
        forecasts: dict[str, Forecast] = {}
        moved, blocked = self._pass(now, forecasts)
        while moved and blocked:
            moved, blocked = self._pass(now, forecasts)
        if valid < len(reservations):
            self._shape = ()  # it is unknown whether the nodes of the others accept their tasks
        return None if moved is None else forecasts

    def adopt(self, reservations: Iterable[Reservation]) -> None:
        """Take over reservations made from the result of :meth:`plan`, for the next plan."""
        by_key = {r.group.key: r for r in reservations}
        for window in self._windows:
            r = by_key.get(window.group.key)
            if r is not None and window.reservation is None and window.start == r.start:
                window.reservation, window.rows, window.plane = r, r.column_units, NOMINATED

    def is_available(self, due: Iterable[Reservation]) -> bool:
        """Return whether all of these have their capacity now, in this order, by resources alone."""
        if self._uses_devices():
            return False
        left: dict[int, list[int]] = {}
        for r in due:
            if not r.is_predictable or not _is_plain(r) or not r.nodes_accept():
                return False
            for row, units_by_column in r.column_units.items():
                free = left.get(row)
                if free is None:
                    free = left[row] = _free(self._table.planes[row].tolist())
                for column, units in units_by_column:
                    free[column] -= units
                    if free[column] < 0:
                        return False
        return True

    def _uses_devices(self) -> bool:
        """Return whether single devices are in use, so that amounts of whole ones do not add up."""
        return len(self._table.shares.cells) > 0

    def _all_by_resources(self, reservations: Iterable[Reservation]) -> bool:
        """Return whether only resources decide on these reservations. Those in the plan are known."""
        known = (
            {id(window.reservation) for window in self._windows}
            if self._shape == self._current_shape()
            else ()
        )
        return all(id(r) in known or _is_plain(r) for r in reservations)

    # ------------------------------------------------------------------ updates

    def _update_plan(self, reservations: Iterable[Reservation], now: float) -> int:
        """Move the horizon to the last start of reservations that have their capacity by then.

        Return how many these are, from the first one on.
        """
        dirty = self._changed_rows(now)
        if dirty is None:
            dirty = self._reset()
            reservations = list(takewhile(Reservation.nodes_accept, reservations))
        dirty |= self._sync_windows(reservations, now)
        windows = self._windows
        good = len(windows)
        for row in dirty:
            self._releases[row] = self._releases_on(row)
            broken = self._first_short_window(row)
            if broken is not None:
                good = min(good, windows.index(broken))
        if good < len(windows):
            for window in windows[good:]:
                dirty.update(window.rows)
            del windows[good:]
            self._index_windows()
        self._move_to(windows[-1].start if windows else now, dirty)
        return good

    def _current_shape(self) -> tuple[int, ...]:
        table = self._table
        return (table.epoch, table.static_log.mark, table.height, table.width)

    def _changed_rows(self, now: float) -> set[int] | None:
        """Return the rows on which tasks came, went or end at another time; ``None`` for all."""
        resource_log, ends, shape = (
            self._table.resource_log,
            self._ledger.expected_ends,
            self._current_shape(),
        )
        self._ends = ends.at(now)
        changed = None
        if shape == self._shape and now >= self._now:
            changed = {*resource_log.since(self._log_mark), *ends.moved}
        self._shape, self._now, self._log_mark = shape, now, resource_log.mark
        ends.moved.clear()
        return changed

    def _reset(self) -> set[int]:
        """Forget everything known of the rows. Return all of them."""
        table = self._table
        self._free = np.zeros((table.height, table.width), dtype=np.int64)
        self._releases = {}
        return set(range(table.height))

    def _sync_windows(self, reservations: Iterable[Reservation], now: float) -> set[int]:
        """Take over the reservations. Return the rows on which they changed."""
        before = {
            id(window.reservation): window for window in self._windows if window.reservation is not None
        }
        rows = {row for window in self._windows if window.reservation is None for row in window.rows}
        after: list[_Window] = []
        last = now
        for r in reservations:
            last = max(r.start, last)
            end = last + (run_time(r.group) or _FOREVER)
            window = before.get(id(r))
            if window is not None and window.start == last and window.end == end and window.reservation is r:
                del before[id(r)]
                after.append(window)
            else:
                rows.update(r.column_units)
                after.append(_Window(r.group, last, end, r.column_units, r))
        for window in before.values():
            rows.update(window.rows)
        self._windows = after
        self._index_windows()
        return rows

    def _index_windows(self) -> None:
        self._windows_by_row = windows = {}
        for window in self._windows:
            for row in window.rows:
                windows.setdefault(row, []).append(window)

    def _releases_on(self, row: int) -> list[_Release]:
        table = self._table
        releases = self._known_releases(tasks_on(table, row).values(), row, USED)
        if row in table.nominated_tasks:
            releases += self._known_releases(nominated_on(table, row).values(), row, NOMINATED)
        return releases

    def _known_releases(self, entries: Iterable[TaskEntry], row: int, plane: int) -> list[_Release]:
        """Return the expected releases of tasks on the row. ``plane``: where they are booked."""
        releases: list[_Release] = []
        for entry in entries:
            group = entry.group
            if group is not None and group.timed and releasing_row(entry) == row:
                end = end_of(entry, self._now)
                if end is not None:
                    releases.append((end, self._released(entry), plane))
        return releases

    def _released(self, entry: TaskEntry) -> _ColumnUnits:
        """Return what becomes free at the end of a task."""
        units_by_column, table = entry.cls.fit.evaluator.plain_request, self._table
        if entry.row not in table.unhealthy_rows:
            return units_by_column
        leaves = table.released_by(entry)
        return [(column, leaves.item(column)) for column, _ in units_by_column]

    def _first_short_window(self, row: int) -> _Window | None:
        """Return the first window on this row that lacks capacity there at its start."""
        windows = self._windows_by_row.get(row)
        if windows is None:
            return None
        free, releases = _free(self._table.planes[row].tolist()), self._releases[row]
        for nth, window in enumerate(windows):
            left = free.copy()
            for end, units_by_column, _ in releases:
                if end <= window.start:
                    for column, units in units_by_column:
                        left[column] += units
            for other in windows[:nth]:
                if other.end > window.start:
                    for column, units in other.rows[row]:
                        left[column] -= units
            for column, units in window.rows[row]:
                if left[column] < units:
                    return window
        return None

    def _move_to(self, time: float, unknown: set[int]) -> None:
        """Move the horizon. ``unknown``: rows without any stored state."""
        before, self._time = self._time, time
        early, late, sign = (before, time, 1) if time > before else (time, before, -1)
        ends, free = self._ends, self._free
        for window in self._windows:
            starts_between = early < window.start <= late
            if starts_between != (early < window.end <= late):
                for row, units_by_column in window.rows.items():
                    for column, units in units_by_column if row not in unknown else ():
                        free[row, column] += -sign * units if starts_between else sign * units
        for position in range(
            bisect_right(ends, early, key=_time_of), bisect_right(ends, late, key=_time_of)
        ):
            for entry in ends[position][2]:
                row = releasing_row(entry)
                if row not in unknown:
                    free[row] += sign * self._table.released_by(entry)
        for row in unknown:
            free[row] = _free(self._planes_at_horizon(row))

    def _planes_at_horizon(self, row: int) -> _Planes:
        """Return the planes of a row at the horizon."""
        planes: _Planes = self._table.planes[row].tolist()
        time, releasing = self._time, planes[RELEASING]
        for end, units_by_column, plane in self._releases[row]:
            if end <= time:
                for column, units in units_by_column:
                    if plane == USED:
                        releasing[column] += units
                    else:
                        planes[plane][column] -= units
        for window in self._windows_by_row.get(row, ()):
            if window.start <= time < window.end:
                held_units = planes[window.plane]
                for column, units in window.rows[row]:
                    held_units[column] += units
        return planes

    # ------------------------------------------------------------------ the next group

    def _capacity(self, batch: TaskBatch) -> tuple[NDArray[np.int64], int]:
        """Return how many tasks each node holds at the horizon, and the sum of the positive ones.

        A number is negative where more is held than there is.
        """
        cls, free = batch.cls, self._free
        cls.refresh()
        units_by_column = cls.fit.evaluator.plain_request
        capacity = free[:, units_by_column[0][0]] // units_by_column[0][1]
        for column, units in units_by_column[1:]:
            np.minimum(capacity, free[:, column] // units, out=capacity)
        capacity[~cls.fit.static[: len(capacity)]] = 0
        return capacity, int(capacity[capacity > 0].sum())

    def _wait_for_capacity(self, batch: TaskBatch, members: int) -> bool:
        """Move the horizon to the time at which ``members`` tasks fit.

        Return false if there is none.
        """
        capacity, total = self._capacity(batch)
        if total >= members:
            return True
        free, ends = self._free, self._ends
        units_by_column, static = batch.cls.fit.evaluator.plain_request, batch.cls.fit.static
        position = bisect_right(ends, self._time, key=_time_of)
        last = min(len(ends), position + MAX_EVENTS)
        own = sorted(
            (window.end, nth)
            for nth, window in enumerate(self._windows)
            if self._time < window.end < _FOREVER
        )
        while total < members:
            time = min(ends[position][0] if position < last else _FOREVER, own[0][0] if own else _FOREVER)
            if time == _FOREVER:
                return False
            self._time = time
            rows = set()
            while position < last and ends[position][0] == time:
                for entry in ends[position][2]:
                    row = releasing_row(entry)
                    free[row] += self._table.released_by(entry)
                    rows.add(row)
                position += 1
            while own and own[0][0] == time:
                for row, held_units in self._windows[own.pop(0)[1]].rows.items():
                    for column, units in held_units:
                        free[row, column] += units
                    rows.add(row)
            for row in rows:
                if static[row]:
                    count = min([free.item(row, column) // units for column, units in units_by_column])
                    total += max(count, 0) - max(capacity.item(row), 0)
                    capacity[row] = count
        return True

    def _place(self, group: GroupEntry, batch: TaskBatch, members: int) -> Forecast | None:
        """Place the group at the horizon, where it fits. It holds its capacity from then on.

        ``None`` if nodes take fewer than were counted; the plan then has to be made
        from the beginning.
        """
        window = self._fit_window(group, batch, members, {})
        if window is None:
            return None
        self._windows.append(window[0])
        for row in window[0].rows:
            self._windows_by_row.setdefault(row, []).append(window[0])
        return self._start_window(batch, *window)

    def _fit_window(
        self, group: GroupEntry, batch: TaskBatch, members: int, booked: Mapping[int, Units]
    ) -> tuple[_Window, list[int]] | None:
        """Return where the group goes at the horizon, and the row of each of its tasks.

        As in a real placement, free capacity is used before capacity that is being
        released. ``booked``: row → additional units that must stay free there.
        """
        fit, time = batch.cls.fit, self._time
        open_rows = (self._free >= fit.evaluator.minimum).all(axis=1) & fit.static[: len(self._free)]
        planes = {row: self._planes_at_horizon(row) for row in open_rows.nonzero()[0].tolist()}
        for row in planes.keys() & booked.keys():
            for column, units in booked[row].items():
                planes[row][NOMINATED][column] += units
        rows = _rows_for(_ranked_now(fit, planes), members)
        pipelined = len(rows) < members
        if pipelined:
            rows += _rows_for(_ranked_later(fit, planes, Counter(rows)), members - len(rows))
        if len(rows) < members:
            return None
        held_units = {
            row: [(column, units * n) for column, units in fit.evaluator.plain_request]
            for row, n in Counter(rows).items()
        }
        end = time + (run_time(group) or _FOREVER)
        return _Window(group, time, end, held_units, plane=NOMINATED if pipelined else USED), rows

    def _start_window(self, batch: TaskBatch, window: _Window, rows: Sequence[int]) -> Forecast:
        """Book at the horizon what has started there."""
        for row, units_by_column in window.rows.items():
            for column, units in units_by_column:
                self._free[row, column] -= units
        return Forecast(window.start, (), tuple(zip(batch.entries, rows, strict=False)))

    # ------------------------------------------------------------------ moving forward

    def _pass(self, now: float, found: dict[str, Forecast]) -> tuple[bool | None, bool]:
        """Move forward every group that can be, none before the group ahead of it.

        Return whether any moved (``None`` if not only resources decide). The second
        value tells whether any was blocked by groups behind it. The horizon ends at the
        last start.
        """
        earliest, moved, blocked = now, False, False
        for nth in range(len(self._windows)):
            window = self._windows[nth]
            step = window.group.step
            if earliest < window.start:
                if step is None or not self._gang_allocator.is_by_resources(window.group, step):
                    return None, blocked
                batch, members = step.batches[0], step.members
                if self._fits_before(window, earliest, batch, members):
                    better = self._start_here(nth, batch, members)
                    if better is None:
                        better = self._replan_from(nth)
                        blocked = blocked or better is None
                    if better is None:
                        better = self._next_start(nth, batch, members)
                    if better:
                        moved = True
                        found |= better
            earliest = self._windows[nth].start
        if self._windows:
            self._move_to(self._windows[-1].start, set())
        return moved, blocked

    def _fits_before(self, window: _Window, earliest: float, batch: TaskBatch, members: int) -> bool:
        """Return whether the group fits at some time from ``earliest`` on before its start.

        The horizon is moved to the first such time. No group starts in between, so the
        capacity never shrinks later.
        """
        self._move_to(nextafter(window.start, earliest), set())
        if self._capacity(batch)[1] < members:
            return False
        self._move_to(earliest, set())
        return self._wait_for_capacity(batch, members)

    def _start_here(self, nth: int, batch: TaskBatch, members: int) -> dict[str, Forecast] | None:
        """Start the group at the horizon instead, if this delays no group behind it."""
        group = self._windows[nth].group
        fit = self._fit_window(group, batch, members, self._need_behind(nth))
        if fit is None:
            return None
        window, rows = fit
        window.plane = NOMINATED
        self._windows[nth] = window
        self._index_windows()
        return {group.key: self._start_window(batch, window, rows)}

    def _replan_from(self, nth: int) -> dict[str, Forecast] | None:
        """Plan this group and all behind it again from the horizon, if none of them is delayed.

        Otherwise change nothing.
        """
        before, time, free = self._windows, self._time, self._free.copy()
        self._windows = before[:nth]
        self._index_windows()
        forecasts: dict[str, Forecast] = {}
        for window in before[nth:]:
            group, step = window.group, window.group.step
            plain = step is not None and self._gang_allocator.is_by_resources(group, step)
            if step is None or not plain or not self._wait_for_capacity(step.batches[0], step.members):
                break
            forecast = (
                self._place(group, step.batches[0], step.members) if self._time <= window.start else None
            )
            if forecast is None:
                break
            self._windows[-1].plane = NOMINATED
            forecasts[group.key] = forecast
        else:
            return forecasts
        self._windows, self._time, self._free = before, time, free
        self._index_windows()
        return None

    def _next_start(self, nth: int, batch: TaskBatch, members: int) -> dict[str, Forecast] | None:
        """Start the group at the first time after the horizon at which it delays no group behind it."""
        window = self._windows[nth]
        while True:
            times = [window.end for window in self._windows if window.end > self._time]
            position = bisect_right(self._ends, self._time, key=_time_of)
            times += [self._ends[position][0]] if position < len(self._ends) else []
            if min(times) >= window.start:
                return None
            self._move_to(min(times), set())
            better = self._start_here(nth, batch, members)
            if better is not None:
                return better

    def _need_behind(self, nth: int) -> dict[int, Units]:
        """Return what this group must leave free by row if it starts at the horizon.

        It is the peak need of the groups behind it that start before it ends, beyond
        what is released by then.
        """
        time, until = self._time, self._time + (run_time(self._windows[nth].group) or _FOREVER)
        by_row: dict[int, list[_Window]] = {}
        for window in self._windows[nth + 1 :]:
            for row in window.rows if window.start < until else ():
                by_row.setdefault(row, []).append(window)
        needed: dict[int, Units] = {}
        for row, behind in by_row.items():
            last = max(window.start for window in behind)
            present = [
                window for window in self._windows_by_row[row] if window.start <= time < window.end <= last
            ]
            events: list[Event] = [(window.end, -1, window.rows[row]) for window in present]
            events += [
                (end, -1, units_by_column)
                for end, units_by_column, _ in self._releases[row]
                if time < end <= last
            ]
            for other_window in behind:
                events += [
                    (other_window.start, 1, other_window.rows[row]),
                    (other_window.end, -1, other_window.rows[row]),
                ]
            needed[row] = peak(events)
        return needed


def _ranked_now(fit: NodeFit, planes: Mapping[int, _Planes]) -> list[_Ranked]:
    """Return the rows that have free capacity without any release."""
    ranked = []
    rarest, least = fit.evaluator.plain_request[0]
    for row, (allocatable, used, releasing, promised) in planes.items():
        if allocatable[rarest] - used[rarest] - max(promised[rarest] - releasing[rarest], 0) < least:
            continue
        net_nominated = [
            max(nominated - releasing, 0) for nominated, releasing in zip(promised, releasing, strict=True)
        ]
        free = [
            allocatable_units - held_units - more
            for allocatable_units, held_units, more in zip(allocatable, used, net_nominated, strict=True)
        ]
        count, key = fit.ranked(row, (0, free, allocatable, used, releasing))
        ranked.append((key, row, count))
    return ranked


def _ranked_later(fit: NodeFit, planes: Mapping[int, _Planes], taken: Mapping[int, int]) -> list[_Ranked]:
    """Return the rows with capacity that is being released.

    ``taken``: row → tasks placed there already.
    """
    ranked = []
    for row, (allocatable, used, releasing, promised) in planes.items():
        if releasing[0] > 0:
            held_units = [
                allocatable_units - releasing + nominated
                for allocatable_units, releasing, nominated in zip(used, releasing, promised, strict=True)
            ]
            for column, units in fit.evaluator.plain_request:
                held_units[column] += units * taken.get(row, 0)
            count, key = fit.ranked_later(row, allocatable, held_units)
            ranked.append((key, row, count))
    return ranked


def _rows_for(ranked: list[_Ranked], wanted: int) -> list[int]:
    """Return the rows of ``wanted`` tasks, filling the best rows first."""
    rows: list[int] = []
    for _, row, count in sorted(ranked, reverse=True):
        if len(rows) == wanted:
            break
        rows += [row] * min(count, wanted - len(rows))
    return rows


def _free(planes: _Planes) -> list[int]:
    """Return what is left of a row by column after all releases and nominations."""
    return [
        allocatable_units - held_units + releasing - nominated
        for allocatable_units, held_units, releasing, nominated in zip(
            planes[ALLOCATABLE], planes[USED], planes[RELEASING], planes[NOMINATED], strict=True
        )
    ]


def _is_plain(r: Reservation) -> bool:
    """Return whether only resources decide on the reservation."""
    return all(cls.fit.evaluator.plain_future for cls in r.tasks)

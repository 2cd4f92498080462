"""Capacity of every node at the last planned start, kept from one plan to the next.

Groups that are placed by resources alone
(:meth:`~windlass.engine.placement.gang_allocator.GangAllocator.by_amounts`) need no new
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

from windlass.engine.backfill.forecast import MOST_EVENTS, Forecast
from windlass.engine.backfill.peak_demand import Event, Units, peak
from windlass.engine.backfill.reservation import Reservation
from windlass.engine.feasibility.node_fit import NodeFit
from windlass.engine.groups.entries import GroupEntry, TaskEntry, run_time
from windlass.engine.groups.next_step import TaskBatch
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.expected_ends import End, end_of, place_of

_FOREVER = float("inf")
_Asked = Sequence[tuple[int, int]]
"""Columns and units."""
_Planes = list[list[int]]
"""Plane of the table → column → units."""
_Ending = tuple[float, _Asked, int]
"""Time, what becomes free, and the plane in which it is booked: used or nominated."""
_Ranked = tuple[int, int, int]
"""(Sort key, row, number of tasks it holds)."""
_moment = itemgetter(0)


@dataclass(slots=True)
class _Window:
    """Capacity that a group will hold: ``rows`` from ``start`` until ``end``.

    ``reservation``: ``None`` until there is one.
    """

    group: GroupEntry
    start: float
    end: float
    rows: Mapping[int, _Asked]
    of: Reservation | None = None
    plane: int = NOMINATED
    """Plane in which it is booked; used for a new group that finds all of it free."""


class PlannedCapacity:
    """Plan of reserved starts and the capacity of all nodes at its end."""

    def __init__(self, state: ClusterState, gang_allocator: GangAllocator) -> None:
        self._table = state.table
        self._ledger = state.ledger
        self._gang_allocator = gang_allocator
        self._now = self._moment = 0.0
        self._windows: list[_Window] = []
        """Windows of the first groups in order, so that starts never decrease.

        All start before the horizon.
        """
        self._here: dict[int, list[_Window]] = {}
        """Row → its windows, in order."""
        self._free: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        """Free capacity at the horizon by row and column."""
        self._ending: dict[int, list[_Ending]] = {}
        """Row → releases with their times."""
        self._shape: tuple[int, ...] = ()
        """Changes with the nodes and with static plugin results."""
        self._mark = 0
        """Mark up to which the change log has been read."""
        self._ends: Sequence[End] = ()

    # ------------------------------------------------------------------ plans

    def beside(
        self, groups: Sequence[GroupEntry], kept: Sequence[Reservation], now: float
    ) -> tuple[list[str], dict[str, Forecast]] | None:
        """Return :meth:`Forecaster.plan_with_reserved` for ``groups``, the first with reservations.

        ``None`` if not only resources decide.
        """
        if self._by_cards() or not self._all_plain(kept):
            self._shape = ()  # what is skipped now is read again
            return None
        first = self._bring_up(kept, now)
        found: dict[str, Forecast] = {}
        for group in groups[first:]:
            step = group.step
            if step is None or not self._gang_allocator.by_amounts(group, step):
                return None
            batch = step.batches[0]
            if not self._wait(batch, step.members):
                break
            forecast = self._place(group, batch, step.members)
            if forecast is None:
                self._shape = ()
                return None
            found[group.key] = forecast
        return [group.key for group in groups[:first]], found

    def forward(self, kept: Sequence[Reservation], now: float) -> dict[str, Forecast] | None:
        """Return :meth:`Forecaster.move_forward` for the reservations.

        ``None`` if not only resources decide.
        """
        if self._by_cards() or not self._all_plain(kept):
            self._shape = ()
            return None
        stand = self._bring_up(kept, now)
        found: dict[str, Forecast] = {}
        moved, hindered = self._pass(now, found)
        while moved and hindered:
            moved, hindered = self._pass(now, found)
        if stand < len(kept):
            self._shape = ()  # it is unknown whether the nodes of the others accept their tasks
        return None if moved is None else found

    def took(self, made: Iterable[Reservation]) -> None:
        """Take over reservations made from the result of :meth:`plan`, for the next plan."""
        by_key = {r.group.key: r for r in made}
        for window in self._windows:
            r = by_key.get(window.group.key)
            if r is not None and window.of is None and window.start == r.start:
                window.of, window.rows, window.plane = r, r.asked, NOMINATED

    def there(self, due: Iterable[Reservation]) -> bool:
        """Return whether all of these have their capacity now, in this order, by resources alone."""
        if self._by_cards():
            return False
        left: dict[int, list[int]] = {}
        for r in due:
            if not r.tellable or not _plain(r) or not r.open():
                return False
            for row, asked in r.asked.items():
                free = left.get(row)
                if free is None:
                    free = left[row] = _free(self._table.planes[row].tolist())
                for column, units in asked:
                    free[column] -= units
                    if free[column] < 0:
                        return False
        return True

    def _by_cards(self) -> bool:
        """Return whether single devices are in use, so that amounts of whole ones do not add up."""
        return len(self._table.shares.cells) > 0

    def _all_plain(self, kept: Iterable[Reservation]) -> bool:
        """Return whether only resources decide on these reservations. Those in the plan are known."""
        known = {id(window.of) for window in self._windows} if self._shape == self._shape_now() else ()
        return all(id(r) in known or _plain(r) for r in kept)

    # ------------------------------------------------------------------ updates

    def _bring_up(self, kept: Iterable[Reservation], now: float) -> int:
        """Move the horizon to the last start of reservations that have their capacity by then.

        Return how many these are, from the first one on.
        """
        dirty = self._changed(now)
        if dirty is None:
            dirty = self._begin_anew()
            kept = list(takewhile(Reservation.open, kept))
        dirty |= self._rewindow(kept, now)
        windows = self._windows
        good = len(windows)
        for row in dirty:
            self._ending[row] = self._ends_on(row)
            broken = self._broken(row)
            if broken is not None:
                good = min(good, windows.index(broken))
        if good < len(windows):
            for window in windows[good:]:
                dirty.update(window.rows)
            del windows[good:]
            self._note_rows()
        self._come_to(windows[-1].start if windows else now, dirty)
        return good

    def _shape_now(self) -> tuple[int, ...]:
        table = self._table
        return (table.epoch, table.statics.mark, table.height, table.width)

    def _changed(self, now: float) -> set[int] | None:
        """Return the rows on which tasks came, went or end at another time; ``None`` for all."""
        amounts, ends, shape = self._table.amounts, self._ledger.ends, self._shape_now()
        self._ends = ends.at(now)
        found = None
        if shape == self._shape and now >= self._now:
            found = {*amounts.since(self._mark), *ends.moved}
        self._shape, self._now, self._mark = shape, now, amounts.mark
        ends.moved.clear()
        return found

    def _begin_anew(self) -> set[int]:
        """Forget everything known of the rows. Return all of them."""
        table = self._table
        self._free = np.zeros((table.height, table.width), dtype=np.int64)
        self._ending = {}
        return set(range(table.height))

    def _rewindow(self, kept: Iterable[Reservation], now: float) -> set[int]:
        """Take over the reservations. Return the rows on which they changed."""
        before = {id(window.of): window for window in self._windows if window.of is not None}
        rows = {row for window in self._windows if window.of is None for row in window.rows}
        after: list[_Window] = []
        last = now
        for r in kept:
            last = max(r.start, last)
            end = last + (run_time(r.group) or _FOREVER)
            window = before.get(id(r))
            if window is not None and window.start == last and window.end == end and window.of is r:
                del before[id(r)]
                after.append(window)
            else:
                rows.update(r.asked)
                after.append(_Window(r.group, last, end, r.asked, r))
        for window in before.values():
            rows.update(window.rows)
        self._windows = after
        self._note_rows()
        return rows

    def _note_rows(self) -> None:
        self._here = here = {}
        for window in self._windows:
            for row in window.rows:
                here.setdefault(row, []).append(window)

    def _ends_on(self, row: int) -> list[_Ending]:
        table = self._table
        found = self._known(table.tasks[row].values(), row, USED)
        if row in table.expected:
            found += self._known(table.expected[row].values(), row, NOMINATED)
        return found

    def _known(self, entries: Iterable[TaskEntry], row: int, plane: int) -> list[_Ending]:
        """Return the expected releases of tasks on the row. ``plane``: where they are booked."""
        found: list[_Ending] = []
        for entry in entries:
            group = entry.group
            if group is not None and group.timed and place_of(entry) == row:
                end = end_of(entry, self._now)
                if end is not None:
                    found.append((end, self._given_back(entry), plane))
        return found

    def _given_back(self, entry: TaskEntry) -> _Asked:
        """Return what becomes free at the end of a task."""
        asked, table = entry.cls.fit.evaluator.plain_asked, self._table
        if entry.row not in table.ailing:
            return asked
        leaves = table.leaves(entry)
        return [(column, leaves.item(column)) for column, _ in asked]

    def _broken(self, row: int) -> _Window | None:
        """Return the first window on this row that lacks capacity there at its start."""
        here = self._here.get(row)
        if here is None:
            return None
        free, ending = _free(self._table.planes[row].tolist()), self._ending[row]
        for nth, window in enumerate(here):
            left = free.copy()
            for end, asked, _ in ending:
                if end <= window.start:
                    for column, units in asked:
                        left[column] += units
            for other in here[:nth]:
                if other.end > window.start:
                    for column, units in other.rows[row]:
                        left[column] -= units
            for column, units in window.rows[row]:
                if left[column] < units:
                    return window
        return None

    def _come_to(self, moment: float, unknown: set[int]) -> None:
        """Move the horizon. ``unknown``: rows without any stored state."""
        before, self._moment = self._moment, moment
        early, late, sign = (before, moment, 1) if moment > before else (moment, before, -1)
        ends, free = self._ends, self._free
        for window in self._windows:
            begins = early < window.start <= late
            if begins != (early < window.end <= late):
                for row, asked in window.rows.items():
                    for column, units in asked if row not in unknown else ():
                        free[row, column] += -sign * units if begins else sign * units
        for at in range(bisect_right(ends, early, key=_moment), bisect_right(ends, late, key=_moment)):
            for entry in ends[at][2]:
                row = place_of(entry)
                if row not in unknown:
                    free[row] += sign * self._table.leaves(entry)
        for row in unknown:
            free[row] = _free(self._then(row))

    def _then(self, row: int) -> _Planes:
        """Return the planes of a row at the horizon."""
        planes: _Planes = self._table.planes[row].tolist()
        moment, releasing = self._moment, planes[RELEASING]
        for end, asked, plane in self._ending[row]:
            if end <= moment:
                for column, units in asked:
                    if plane == USED:
                        releasing[column] += units
                    else:
                        planes[plane][column] -= units
        for window in self._here.get(row, ()):
            if window.start <= moment < window.end:
                held = planes[window.plane]
                for column, units in window.rows[row]:
                    held[column] += units
        return planes

    # ------------------------------------------------------------------ the next group

    def _room(self, batch: TaskBatch) -> tuple[NDArray[np.int64], int]:
        """Return how many tasks each node holds at the horizon, and the sum of the positive ones.

        A number is negative where more is held than there is.
        """
        cls, free = batch.cls, self._free
        cls.refresh()
        asked = cls.fit.evaluator.plain_asked
        room = free[:, asked[0][0]] // asked[0][1]
        for column, units in asked[1:]:
            np.minimum(room, free[:, column] // units, out=room)
        room[~cls.fit.static[: len(room)]] = 0
        return room, int(room[room > 0].sum())

    def _wait(self, batch: TaskBatch, members: int) -> bool:
        """Move the horizon to the time at which ``members`` tasks fit.

        Return false if there is none.
        """
        room, total = self._room(batch)
        if total >= members:
            return True
        free, ends = self._free, self._ends
        asked, static = batch.cls.fit.evaluator.plain_asked, batch.cls.fit.static
        at = bisect_right(ends, self._moment, key=_moment)
        last = min(len(ends), at + MOST_EVENTS)
        own = sorted(
            (one.end, nth) for nth, one in enumerate(self._windows) if self._moment < one.end < _FOREVER
        )
        while total < members:
            moment = min(ends[at][0] if at < last else _FOREVER, own[0][0] if own else _FOREVER)
            if moment == _FOREVER:
                return False
            self._moment = moment
            rows = set()
            while at < last and ends[at][0] == moment:
                for entry in ends[at][2]:
                    row = place_of(entry)
                    free[row] += self._table.leaves(entry)
                    rows.add(row)
                at += 1
            while own and own[0][0] == moment:
                for row, held in self._windows[own.pop(0)[1]].rows.items():
                    for column, units in held:
                        free[row, column] += units
                    rows.add(row)
            for row in rows:
                if static[row]:
                    count = min([free.item(row, column) // units for column, units in asked])
                    total += max(count, 0) - max(room.item(row), 0)
                    room[row] = count
        return True

    def _place(self, group: GroupEntry, batch: TaskBatch, members: int) -> Forecast | None:
        """Place the group at the horizon, where it fits. It holds its capacity from then on.

        ``None`` if nodes take fewer than were counted; the plan then has to be made
        from the beginning.
        """
        window = self._fill_in(group, batch, members, {})
        if window is None:
            return None
        self._windows.append(window[0])
        for row in window[0].rows:
            self._here.setdefault(row, []).append(window[0])
        return self._begun(batch, *window)

    def _fill_in(
        self, group: GroupEntry, batch: TaskBatch, members: int, booked: Mapping[int, Units]
    ) -> tuple[_Window, list[int]] | None:
        """Return where the group goes at the horizon, and the row of each of its tasks.

        As in a real placement, free capacity is used before capacity that is being
        released. ``booked``: row → additional units that must stay free there.
        """
        fit, moment = batch.cls.fit, self._moment
        open_ = (self._free >= fit.evaluator.least).all(axis=1) & fit.static[: len(self._free)]
        planes = {row: self._then(row) for row in open_.nonzero()[0].tolist()}
        for row in planes.keys() & booked.keys():
            for column, units in booked[row].items():
                planes[row][NOMINATED][column] += units
        rows = _fill(_ranked_now(fit, planes), members)
        pipelined = len(rows) < members
        if pipelined:
            rows += _fill(_ranked_later(fit, planes, Counter(rows)), members - len(rows))
        if len(rows) < members:
            return None
        held = {
            row: [(column, units * n) for column, units in fit.evaluator.plain_asked]
            for row, n in Counter(rows).items()
        }
        end = moment + (run_time(group) or _FOREVER)
        return _Window(group, moment, end, held, plane=NOMINATED if pipelined else USED), rows

    def _begun(self, batch: TaskBatch, window: _Window, rows: Sequence[int]) -> Forecast:
        """Book at the horizon what has started there."""
        for row, asked in window.rows.items():
            for column, units in asked:
                self._free[row, column] -= units
        return Forecast(window.start, (), tuple(zip(batch.entries, rows, strict=False)))

    # ------------------------------------------------------------------ moving forward

    def _pass(self, now: float, found: dict[str, Forecast]) -> tuple[bool | None, bool]:
        """Move forward every group that can be, none before the group ahead of it.

        Return whether any moved (``None`` if not only resources decide). The second
        value tells whether any was blocked by groups behind it. The horizon ends at the
        last start.
        """
        begin, moved, hindered = now, False, False
        for nth in range(len(self._windows)):
            window = self._windows[nth]
            step = window.group.step
            if begin < window.start:
                if step is None or not self._gang_allocator.by_amounts(window.group, step):
                    return None, hindered
                batch, members = step.batches[0], step.members
                if self._fits_before(window, begin, batch, members):
                    better = self._placed_before(nth, batch, members)
                    if better is None:
                        better = self._anew(nth)
                        hindered = hindered or better is None
                    if better is None:
                        better = self._sooner(nth, batch, members)
                    if better:
                        moved = True
                        found |= better
            begin = self._windows[nth].start
        if self._windows:
            self._come_to(self._windows[-1].start, set())
        return moved, hindered

    def _fits_before(self, window: _Window, begin: float, batch: TaskBatch, members: int) -> bool:
        """Return whether the group fits at some time from ``begin`` on before its start.

        The horizon is moved to the first such time. No group starts in between, so the
        capacity never shrinks later.
        """
        self._come_to(nextafter(window.start, begin), set())
        if self._room(batch)[1] < members:
            return False
        self._come_to(begin, set())
        return self._wait(batch, members)

    def _placed_before(self, nth: int, batch: TaskBatch, members: int) -> dict[str, Forecast] | None:
        """Start the group at the horizon instead, if this delays no group behind it."""
        group = self._windows[nth].group
        made = self._fill_in(group, batch, members, self._booked(nth))
        if made is None:
            return None
        window, rows = made
        window.plane = NOMINATED
        self._windows[nth] = window
        self._note_rows()
        return {group.key: self._begun(batch, window, rows)}

    def _anew(self, nth: int) -> dict[str, Forecast] | None:
        """Plan this group and all behind it again from the horizon, if none of them is delayed.

        Otherwise change nothing.
        """
        before, moment, free = self._windows, self._moment, self._free.copy()
        self._windows = before[:nth]
        self._note_rows()
        found: dict[str, Forecast] = {}
        for window in before[nth:]:
            group, step = window.group, window.group.step
            plain = step is not None and self._gang_allocator.by_amounts(group, step)
            if step is None or not plain or not self._wait(step.batches[0], step.members):
                break
            forecast = (
                self._place(group, step.batches[0], step.members) if self._moment <= window.start else None
            )
            if forecast is None:
                break
            self._windows[-1].plane = NOMINATED
            found[group.key] = forecast
        else:
            return found
        self._windows, self._moment, self._free = before, moment, free
        self._note_rows()
        return None

    def _sooner(self, nth: int, batch: TaskBatch, members: int) -> dict[str, Forecast] | None:
        """Start the group at the first time after the horizon at which it delays no group behind it."""
        window = self._windows[nth]
        while True:
            moments = [one.end for one in self._windows if one.end > self._moment]
            at = bisect_right(self._ends, self._moment, key=_moment)
            moments += [self._ends[at][0]] if at < len(self._ends) else []
            if min(moments) >= window.start:
                return None
            self._come_to(min(moments), set())
            better = self._placed_before(nth, batch, members)
            if better is not None:
                return better

    def _booked(self, nth: int) -> dict[int, Units]:
        """Return what this group must leave free by row if it starts at the horizon.

        It is the peak need of the groups behind it that start before it ends, beyond
        what is released by then.
        """
        moment, until = self._moment, self._moment + (run_time(self._windows[nth].group) or _FOREVER)
        by_row: dict[int, list[_Window]] = {}
        for window in self._windows[nth + 1 :]:
            for row in window.rows if window.start < until else ():
                by_row.setdefault(row, []).append(window)
        found: dict[int, Units] = {}
        for row, behind in by_row.items():
            last = max(window.start for window in behind)
            there = [one for one in self._here[row] if one.start <= moment < one.end <= last]
            events: list[Event] = [(one.end, -1, one.rows[row]) for one in there]
            events += [(end, -1, asked) for end, asked, _ in self._ending[row] if moment < end <= last]
            for one in behind:
                events += [(one.start, 1, one.rows[row]), (one.end, -1, one.rows[row])]
            found[row] = peak(events)
        return found


def _ranked_now(fit: NodeFit, planes: Mapping[int, _Planes]) -> list[_Ranked]:
    """Return the rows that have free capacity without any release."""
    found = []
    rarest, least = fit.evaluator.plain_asked[0]
    for row, (allocatable, used, releasing, promised) in planes.items():
        if allocatable[rarest] - used[rarest] - max(promised[rarest] - releasing[rarest], 0) < least:
            continue
        kept = [max(comes - goes, 0) for comes, goes in zip(promised, releasing, strict=True)]
        free = [has - held - more for has, held, more in zip(allocatable, used, kept, strict=True)]
        count, key = fit.ranked(row, (0, free, allocatable, used, releasing))
        found.append((key, row, count))
    return found


def _ranked_later(fit: NodeFit, planes: Mapping[int, _Planes], taken: Mapping[int, int]) -> list[_Ranked]:
    """Return the rows with capacity that is being released.

    ``taken``: row → tasks placed there already.
    """
    found = []
    for row, (allocatable, used, releasing, promised) in planes.items():
        if releasing[0] > 0:
            held = [has - goes + comes for has, goes, comes in zip(used, releasing, promised, strict=True)]
            for column, units in fit.evaluator.plain_asked:
                held[column] += units * taken.get(row, 0)
            count, key = fit.ranked_later(row, allocatable, held)
            found.append((key, row, count))
    return found


def _fill(ranked: list[_Ranked], wanted: int) -> list[int]:
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
        has - held + goes - comes
        for has, held, goes, comes in zip(
            planes[ALLOCATABLE], planes[USED], planes[RELEASING], planes[NOMINATED], strict=True
        )
    ]


def _plain(r: Reservation) -> bool:
    """Return whether only resources decide on the reservation."""
    return all(cls.fit.evaluator.plain_later for cls in r.tasks)

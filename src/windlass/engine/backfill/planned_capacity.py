"""The room of every node at the last moment to which a plan of starts has come, kept from one plan to the next.

For those who are placed by amounts alone (:meth:`~windlass.engine.placement.gang_allocator.GangAllocator.by_amounts`) a
plan need not be made from its beginning: whoever has been promised a start has it as long as nothing changes on his
nodes, and whoever comes behind all of them is placed on what is free at the last of those starts, or once the next one
that runs has ended, and so on. So the room of all nodes at that moment is noted, the *horizon*. It is brought up to
date by what has changed: the nodes in the table's log, those of which somebody ends otherwise than was reckoned with,
those of which something is promised otherwise, and whatever ends or starts between the old horizon and the new.
Promises are looked at again on those nodes only.

The answers are those of :mod:`windlass.engine.backfill.forecast` (a property test holds it), which is asked wherever
something else than amounts decides. Nodes are ranked as for real, by :mod:`windlass.engine.feasibility.evaluate`.
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
from windlass.engine.nodes.table import ALLOCATABLE, PROMISED, RELEASING, USED
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.expected_ends import End, end_of, place_of

_FOREVER = float("inf")
_Asked = Sequence[tuple[int, int]]
"""Columns and units."""
_Planes = list[list[int]]
"""By plane of the table, units by column."""
_Ending = tuple[float, _Asked, int]
"""Moment, what becomes free, and the plane of the table in which it is booked: used or promised."""
_Ranked = tuple[int, int, int]
"""Key, row, and how many it takes."""
_moment = itemgetter(0)


@dataclass(slots=True)
class _Window:
    """Room that somebody will hold: ``rows`` from ``start`` until ``end``. ``of``: his reservation; ``None`` until
    there is one."""

    group: GroupEntry
    start: float
    end: float
    rows: Mapping[int, _Asked]
    of: Reservation | None = None
    plane: int = PROMISED
    """As what it is booked: who is new, and found all of it free, is taken to be there."""


class PlannedCapacity:
    def __init__(self, state: ClusterState, gang_allocator: GangAllocator) -> None:
        self._table = state.table
        self._ledger = state.ledger
        self._gang_allocator = gang_allocator
        self._now = self._moment = 0.0
        self._windows: list[_Window] = []
        """Of those who come first, in their order, so that none starts before the one before him. At the horizon all
        have begun."""
        self._here: dict[int, list[_Window]] = {}
        """By row, those of them that hold something there, in their order."""
        self._free: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        """By row and column, what is left at the horizon."""
        self._ending: dict[int, list[_Ending]] = {}
        """By row, when what becomes free."""
        self._shape: tuple[int, ...] = ()
        """Changes with the nodes, and with what policies say of them."""
        self._mark = 0
        """Up to here the log of amounts has been read."""
        self._ends: Sequence[End] = ()

    # ------------------------------------------------------------------ questions

    def beside(
        self, groups: Sequence[GroupEntry], kept: Sequence[Reservation], now: float
    ) -> tuple[list[str], dict[str, Forecast]] | None:
        """:meth:`Forecaster.beside` for ``groups``, the first of whom have what is ``kept`` for them; ``None`` if
        amounts do not tell."""
        if self._by_cards() or not self._all_plain(kept):
            self._shape = ()  # what is skipped now is read anew
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
        """:meth:`Forecaster.forward` for what is ``kept``; ``None`` if amounts do not tell."""
        if self._by_cards() or not self._all_plain(kept):
            self._shape = ()
            return None
        stand = self._bring_up(kept, now)
        found: dict[str, Forecast] = {}
        moved, hindered = self._pass(now, found)
        while moved and hindered:
            moved, hindered = self._pass(now, found)
        if stand < len(kept):
            self._shape = ()  # of the others it is not known whether their nodes take them
        return None if moved is None else found

    def took(self, made: Iterable[Reservation]) -> None:
        """These are the reservations of some whose starts :meth:`beside` has just told: what it noted of them holds
        for the next plan."""
        by_key = {r.group.key: r for r in made}
        for window in self._windows:
            r = by_key.get(window.group.key)
            if r is not None and window.of is None and window.start == r.start:
                window.of, window.rows, window.plane = r, r.asked, PROMISED

    def there(self, due: Iterable[Reservation]) -> bool:
        """Whether all of these have what is kept for them now, in this order, as far as amounts tell."""
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
        """Whether somebody has, or asked for, single cards: then amounts of whole ones do not add up."""
        return len(self._table.cards.cells) > 0

    def _all_plain(self, kept: Iterable[Reservation]) -> bool:
        """Whether nothing but amounts decides whether these stand. Of those in the plan that is known."""
        known = {id(window.of) for window in self._windows} if self._shape == self._shape_now() else ()
        return all(id(r) in known or _plain(r) for r in kept)

    # ------------------------------------------------------------------ what has changed

    def _bring_up(self, kept: Iterable[Reservation], now: float) -> int:
        """Bring the horizon to the last start among those who have their room when they start; how many that are,
        from the first on."""
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
        """The rows on which somebody came or went, or ends otherwise; ``None`` for all."""
        amounts, ends, shape = self._table.amounts, self._ledger.ends, self._shape_now()
        self._ends = ends.at(now)
        found = None
        if shape == self._shape and now >= self._now:
            found = {*amounts.since(self._mark), *ends.moved}
        self._shape, self._now, self._mark = shape, now, amounts.mark
        ends.moved.clear()
        return found

    def _begin_anew(self) -> set[int]:
        """Nothing is known of any row."""
        table = self._table
        self._free = np.zeros((table.height, table.width), dtype=np.int64)
        self._ending = {}
        return set(range(table.height))

    def _rewindow(self, kept: Iterable[Reservation], now: float) -> set[int]:
        """Take over what is kept; the rows on which that is something else."""
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
            found += self._known(table.expected[row].values(), row, PROMISED)
        return found

    def _known(self, entries: Iterable[TaskEntry], row: int, plane: int) -> list[_Ending]:
        """When those end who make room on the row then; ``plane``: as what theirs is booked."""
        found: list[_Ending] = []
        for entry in entries:
            group = entry.group
            if group is not None and group.timed and place_of(entry) == row:
                end = end_of(entry, self._now)
                if end is not None:
                    found.append((end, self._given_back(entry), plane))
        return found

    def _given_back(self, entry: TaskEntry) -> _Asked:
        """What becomes free at the end of a task."""
        asked, table = entry.cls.fit.evaluator.plain_asked, self._table
        if entry.row not in table.ailing:
            return asked
        leaves = table.leaves(entry)
        return [(column, leaves.item(column)) for column, _ in asked]

    def _broken(self, row: int) -> _Window | None:
        """The first of the windows on this row that does not have its room there when it begins."""
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
        """Move the horizon; ``unknown``: the rows of which nothing is noted."""
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
        """A row of the table as it will be at the horizon."""
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

    # ------------------------------------------------------------------ the next one

    def _room(self, batch: TaskBatch) -> tuple[NDArray[np.int64], int]:
        """How many each node holds at the horizon (less than none where others hold more than there is), and all."""
        cls, free = batch.cls, self._free
        cls.refresh()
        asked = cls.fit.evaluator.plain_asked
        room = free[:, asked[0][0]] // asked[0][1]
        for column, units in asked[1:]:
            np.minimum(room, free[:, column] // units, out=room)
        room[~cls.fit.static[: len(room)]] = 0
        return room, int(room[room > 0].sum())

    def _wait(self, batch: TaskBatch, members: int) -> bool:
        """Move the horizon on to when there is room for so many; false if there never is."""
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
        """Where the group goes at the horizon, where there is room for it; it holds that from then on. ``None`` if
        nodes take fewer than were counted: then the plan is to be made from its beginning."""
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
        """Where the group goes at the horizon, and the row of each of its tasks. As where it is done for real, room
        that nobody needs to leave goes first. ``booked``: row → what is to be left alone there beside."""
        fit, moment = batch.cls.fit, self._moment
        open_ = (self._free >= fit.evaluator.least).all(axis=1) & fit.static[: len(self._free)]
        planes = {row: self._then(row) for row in open_.nonzero()[0].tolist()}
        for row in planes.keys() & booked.keys():
            for column, units in booked[row].items():
                planes[row][PROMISED][column] += units
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
        return _Window(group, moment, end, held, plane=PROMISED if pipelined else USED), rows

    def _begun(self, batch: TaskBatch, window: _Window, rows: Sequence[int]) -> Forecast:
        """Note at the horizon what has begun there."""
        for row, asked in window.rows.items():
            for column, units in asked:
                self._free[row, column] -= units
        return Forecast(window.start, (), tuple(zip(batch.entries, rows, strict=False)))

    # ------------------------------------------------------------------ moving forward

    def _pass(self, now: float, found: dict[str, Forecast]) -> tuple[bool | None, bool]:
        """Move forward whoever can be, each no further than the one before him, and come to the last of them. Whether
        any could (``None`` if amounts do not tell), and whether any could have but for those behind him."""
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
        """Whether there is room for the group at some moment from ``begin`` on before it was to begin; the horizon is
        moved to the first. As nobody begins in between, there is no less room later."""
        self._come_to(nextafter(window.start, begin), set())
        if self._room(batch)[1] < members:
            return False
        self._come_to(begin, set())
        return self._wait(batch, members)

    def _placed_before(self, nth: int, batch: TaskBatch, members: int) -> dict[str, Forecast] | None:
        """Have the group begin at the horizon instead, if that is in the way of nobody behind it."""
        group = self._windows[nth].group
        made = self._fill_in(group, batch, members, self._booked(nth))
        if made is None:
            return None
        window, rows = made
        window.plane = PROMISED
        self._windows[nth] = window
        self._note_rows()
        return {group.key: self._begun(batch, window, rows)}

    def _anew(self, nth: int) -> dict[str, Forecast] | None:
        """Plan this group from the horizon on, and all behind it, if none of them begins later for that; else all is as
        it was."""
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
            self._windows[-1].plane = PROMISED
            found[group.key] = forecast
        else:
            return found
        self._windows, self._moment, self._free = before, moment, free
        self._note_rows()
        return None

    def _sooner(self, nth: int, batch: TaskBatch, members: int) -> dict[str, Forecast] | None:
        """Have the group begin at the first moment after the horizon at which that is in the way of nobody behind
        it."""
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
        """What this one has to leave alone if it begins at the horizon, for those behind it that begin before it ends:
        by row, the most that they need beyond what has left by then."""
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
    """The rows with room that nobody needs to leave."""
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
    """The rows with room that somebody leaves; ``taken``: row → how many have gone there already."""
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
    """The rows of so many, from the best on, which takes as many as it holds."""
    rows: list[int] = []
    for _, row, count in sorted(ranked, reverse=True):
        if len(rows) == wanted:
            break
        rows += [row] * min(count, wanted - len(rows))
    return rows


def _free(planes: _Planes) -> list[int]:
    """By column what is left of a row once what terminates is gone and promises are kept."""
    return [
        has - held + goes - comes
        for has, held, goes, comes in zip(
            planes[ALLOCATABLE], planes[USED], planes[RELEASING], planes[PROMISED], strict=True
        )
    ]


def _plain(r: Reservation) -> bool:
    """Whether nothing but amounts decides that it stands."""
    return all(cls.fit.evaluator.plain_later for cls in r.tasks)

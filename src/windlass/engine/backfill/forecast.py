"""Forecast of the starts of pending groups from the run times of others.

Pending groups are placed in their order on what is free, then on what is free after the
next running group has ended, and so on. The placement code is the real one, and nothing
of it stays. Work without a known end never ends here. A forecast is therefore correct
if all estimates are, if no new group comes first and if no group behind passes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from math import nextafter

import numpy as np

from windlass.engine.backfill.peak_demand import Event, Units, peak
from windlass.engine.backfill.reserved_devices import shares_by_row
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import OCCUPYING, GroupEntry, NextTasks, TaskEntry
from windlass.engine.groups.run_times import run_time
from windlass.engine.nodes.table import NOMINATED
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.expected_ends import End, releasing_row
from windlass.engine.state.statement import Statement
from windlass.spi.objects import TaskState

MAX_EVENTS = 4096
"""Maximum number of ends that one forecast considers; beyond them nothing is predicted."""
_Own = tuple[float, int, str, list[TaskEntry]]
"""Time, a unique number, group, and its tasks."""
_State = tuple[int, float, int, int, list[_Own], int]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast start and placement of one group.

    ``start``: Unix seconds.
    ``after``: groups that end before the start, in the order of their ends.
    ``placements``: planned row of each of its tasks.
    """

    start: float
    after: tuple[str, ...]
    placements: tuple[tuple[TaskEntry, int], ...]
    device_shares: dict[int, TaskShares] = field(default_factory=dict)
    """Row → device shares that the tasks will hold there."""


@dataclass(frozen=True, slots=True)
class ReservedCounts:
    """Capacity reserved for a group, without device shares.

    ``tasks``: class → row → number of tasks.
    """

    start: float
    tasks: Mapping[TaskClass, Mapping[int, int]]

    def units_on(self, row: int) -> list[tuple[int, int]]:
        """Return the columns and units that it holds of a row."""
        sums = [(cls.vector, rows[row]) for cls, rows in self.tasks.items() if row in rows]
        return [
            (column, int(units) * n)
            for vector, n in sums
            for column, units in enumerate(vector.tolist())
            if units
        ]


_Behind = list[tuple[GroupEntry, ReservedCounts]]
_FOREVER = float("inf")


def no_windows() -> _Behind:
    return []


class Forecaster:
    """Makes forecasts with the real placement code. The statement stays unchanged.

    ``windows``: returns capacity that groups with an earliest start will hold. Groups of
    lower rank are planned next to it.
    """

    def __init__(
        self,
        state: ClusterState,
        gang_allocator: GangAllocator,
        windows: Callable[[], _Behind] = no_windows,
    ) -> None:
        self._state = state
        self._gang_allocator = gang_allocator
        self._windows = windows

    def plan(self, statement: Statement, groups: Sequence[GroupEntry], now: float) -> dict[str, Forecast]:
        """Return the starts of pending ``groups`` in the given order, up to the first unknown one."""
        return self.plan_with_reserved(statement, groups, now, {})[1]

    def plan_with_reserved(
        self,
        statement: Statement,
        groups: Sequence[GroupEntry],
        now: float,
        reserved: Mapping[str, ReservedCounts],
    ) -> tuple[list[str], dict[str, Forecast]]:
        """Return the first groups that can keep their reservations, and a plan for the others."""
        forecasts: dict[str, Forecast] = {}
        with self._tentative_plan(statement, now) as planning:
            first = self._hold_reserved(planning, groups, reserved)
            for group in groups[len(first) :]:
                forecast = self._first_start(planning, group)
                if forecast is None:
                    break
                forecasts[group.key] = forecast
        return [group.key for group in first], forecasts

    def plan_from(
        self, statement: Statement, group: GroupEntry, step: NextTasks, earliest: float, now: float
    ) -> Forecast | None:
        """Return the first start of these tasks from a time on; ``None`` if it is unknown."""
        with self._tentative_plan(statement, now) as planning:
            planning.advance_to(earliest)
            return self._first_start(planning, group, step)

    def holds(
        self, statement: Statement, group: GroupEntry, step: NextTasks, reserved: ReservedCounts, now: float
    ) -> bool:
        """Return whether these tasks of a group have their reserved capacity at its start."""
        with self._tentative_plan(statement, now) as planning:
            return self._hold(planning, group, reserved, step)

    @contextmanager
    def _tentative_plan(self, statement: Statement, now: float) -> Iterator[_Planning]:
        """Make a plan inside the context, and undo all of it at the end."""
        mark, queues = statement.checkpoint(), self._state.queues
        demanding, was_changed = dict(queues.demanding), queues.was_changed
        planning = _Planning(
            statement, self._state, now, self._state.ledger.expected_ends.at(now), self._windows()
        )
        try:
            yield planning
        finally:  # also if a plugin raises: a tentative plan decides nothing
            statement.rollback(mark)
            planning.undo()
            # Tentative releases do not change the share of any queue, and are no change
            # for preemptors.
            queues.demanding, queues.was_changed = demanding, was_changed

    def _hold_reserved(
        self, planning: _Planning, groups: Sequence[GroupEntry], reserved: Mapping[str, ReservedCounts]
    ) -> list[GroupEntry]:
        """Return the first groups that have their reserved capacity. They hold it in the plan."""

        def is_held(group: GroupEntry) -> bool:
            known = reserved.get(group.key)
            return known is not None and self._hold(planning, group, known)

        return list(takewhile(is_held, groups))

    # ------------------------------------------------------------------ moving forward

    def move_forward(
        self,
        statement: Statement,
        groups: Sequence[GroupEntry],
        now: float,
        reserved: Mapping[str, ReservedCounts],
    ) -> dict[str, Forecast]:
        """Return the better starts of groups with reserved capacity, as far as it is valid.

        One group after the other moves to its earliest start. None starts before the
        group ahead of it, nor where it would delay a group behind it.
        """
        reserved, forecasts = dict(reserved), dict[str, Forecast]()
        with self._tentative_plan(statement, now) as planning:
            state = planning.state()
            groups = self._hold_reserved(planning, groups, reserved)
            moved = blocked = True
            while moved and blocked:
                planning.restore(state)
                better, blocked = self._pass(planning, groups, reserved)
                moved = bool(better)
                forecasts |= better
                reserved |= {
                    key: ReservedCounts(item.start, tasks_by_row(item)) for key, item in better.items()
                }
        return forecasts

    def _pass(
        self, planning: _Planning, groups: Sequence[GroupEntry], reserved: Mapping[str, ReservedCounts]
    ) -> tuple[dict[str, Forecast], bool]:
        """Move forward every group that can be.

        Return the forecasts, and whether groups behind blocked any.
        """
        forecasts: dict[str, Forecast] = {}
        blocked = False
        reserved = dict(reserved)
        for nth, group in enumerate(groups):
            known, step = reserved[group.key], group.step
            behind = [(item, reserved[item.key]) for item in groups[nth + 1 :]]
            if step is not None and self._fits_before(planning, group, step, known.start):
                better = self._start_here(planning, group, step, behind)
                if better is None:
                    better = self._replan_from(planning, [(group, known), *behind])
                    blocked = blocked or better is None
                if better is None:
                    better = self._next_start(planning, group, step, known, behind)
                if better is not None:
                    forecasts |= better
                    reserved |= {
                        key: ReservedCounts(item.start, tasks_by_row(item)) for key, item in better.items()
                    }
            if not self._hold(planning, group, reserved[group.key]):
                break
        return forecasts, blocked

    def _fits_before(self, planning: _Planning, group: GroupEntry, step: NextTasks, start: float) -> bool:
        """Return whether the group fits at some time before ``start``.

        The plan moves to the first one. No group starts until then, so the capacity
        never shrinks.
        """
        if planning.now >= start:
            return False
        state = planning.state()
        planning.advance_to(nextafter(start, planning.now))
        fits = self._fits(planning, group, step)
        planning.restore(state)
        first = self._first_start(planning, group) if fits else None
        planning.restore(state)
        if first is not None and first.start > planning.now:
            planning.advance_to(first.start)
        return first is not None

    def _start_here(
        self, planning: _Planning, group: GroupEntry, step: NextTasks, behind: _Behind
    ) -> dict[str, Forecast] | None:
        """Return the placement of the group if it starts now and delays no group behind it.

        The plan stays unchanged.
        """
        state, mark = planning.state(), planning.statement.checkpoint()
        with self._reserved_behind(planning, group, behind):
            done = self._attempt(planning, group, step)
        forecast = _forecast(planning, mark) if done else None
        planning.restore(state)
        if forecast is None:
            return None
        started = (group, ReservedCounts(forecast.start, tasks_by_row(forecast)))
        stand = all(self._hold(planning, *item) for item in [started, *behind])
        planning.restore(state)
        return {group.key: forecast} if stand else None

    def _replan_from(self, planning: _Planning, reserved: _Behind) -> dict[str, Forecast] | None:
        """Return the starts of all of these from now on, if none is delayed.

        The plan stays unchanged.
        """
        state = planning.state()
        forecasts: dict[str, Forecast] = {}
        for group, known in reserved:
            before = planning.state()
            forecast = self._first_start(planning, group)
            planning.restore(before)
            if forecast is None or forecast.start > known.start:
                break
            forecasts[group.key] = forecast
            self._hold(planning, group, ReservedCounts(forecast.start, tasks_by_row(forecast)))
        planning.restore(state)
        return forecasts if len(forecasts) == len(reserved) else None

    def _next_start(
        self, planning: _Planning, group: GroupEntry, step: NextTasks, known: ReservedCounts, behind: _Behind
    ) -> dict[str, Forecast] | None:
        """Return the placement at the first later time before the start that delays no group behind.

        The plan moves to that time. If there is none, it stays unchanged.
        """
        state = planning.state()
        while planning.advance(1) and planning.now < known.start:
            better = self._start_here(planning, group, step, behind)
            if better is not None:
                return better
        planning.restore(state)
        return None

    @contextmanager
    def _reserved_behind(self, planning: _Planning, group: GroupEntry, behind: _Behind) -> Iterator[None]:
        """Book what the groups behind need as nominated, beyond releases, inside the context.

        These are the groups that start before this group would end.
        """
        if not behind:
            yield
            return
        until = planning.now + (run_time(group) or _FOREVER)
        booked = planning.needed([item for item in behind if item[1].start < until])
        table = self._state.table
        for sign in (1, -1):
            for row, units in booked.items():
                for column, extra in units.items():
                    table.planes[row, NOMINATED, column] += sign * extra
                table.touch(row)
            if sign > 0:
                yield

    # ------------------------------------------------------------------ current capacity

    def available_now(
        self,
        statement: Statement,
        groups: Sequence[GroupEntry],
        now: float,
        reserved: Mapping[str, ReservedCounts],
    ) -> tuple[list[str], dict[str, Forecast]]:
        """Return which due groups have their reserved capacity now, and placements for the others.

        ``reserved``: a group without an entry is placed by trial.
        """
        mark = statement.checkpoint()
        planning = _Planning(statement, self._state, now, (), self._windows())
        first: list[str] = []
        forecasts: dict[str, Forecast] = {}
        for group in groups:
            known, start_mark = reserved.get(group.key), statement.checkpoint()
            if known is not None:
                if self._hold(planning, group, known):
                    first.append(group.key)
            elif group.step is not None and self._attempt(planning, group, group.step):
                forecasts[group.key] = _forecast(planning, start_mark)
        statement.rollback(mark)
        return first, forecasts

    def _attempt(self, planning: _Planning, group: GroupEntry, step: NextTasks) -> bool:
        """Place the tasks next to the windows of groups before this one, if they fit."""
        with self._reserved_behind(planning, group, planning.windows_before(group)):
            return self._gang_allocator.try_group(planning.statement, group, step, future=True).done

    def _hold(
        self,
        planning: _Planning,
        group: GroupEntry,
        reserved: ReservedCounts,
        step: NextTasks | None = None,
    ) -> bool:
        """Let the group hold its reserved capacity at its start. If it does not fit, change nothing."""
        state, step = planning.state(), step or group.step
        if step is None:
            return False
        planning.advance_to(reserved.start)
        placements: list[tuple[TaskEntry, int]] = []
        windows = planning.windows_before(group)
        for cls, by_row in reserved.tasks.items():
            waiting = [entry for batch in step.batches if batch.cls is cls for entry in batch.entries]
            rows = np.fromiter(by_row, dtype=np.int64, count=len(by_row))
            with self._reserved_behind(planning, group, windows):
                counts = cls.future_count(rows)
            short = any(capacity < n for capacity, n in zip(counts, by_row.values(), strict=True))
            if short or len(waiting) < sum(by_row.values()):
                planning.restore(state)
                return False
            remaining = iter(waiting)
            for row, n in by_row.items():
                for entry in islice(remaining, n):
                    planning.statement.pipeline(entry, row)
                    placements.append((entry, row))
        planning.add_placed(group, placements)
        return True

    def _first_start(
        self, planning: _Planning, group: GroupEntry, step: NextTasks | None = None
    ) -> Forecast | None:
        """Advance the plan until the group fits: by doubled strides, then by bisection.

        ``step``: its next tasks, by default as the group states. Windows of other groups
        may hide a short time at which it fits.
        """
        step, statement = step or group.step, planning.statement
        if step is None:
            return None
        state, stride = planning.state(), 0
        before = statement.checkpoint()
        while not self._attempt(planning, group, step):
            state = planning.state()
            stride = 2 * stride or 1
            if not planning.advance(stride):
                return None
            before = statement.checkpoint()
        if stride > 1:
            self._bisect(planning, group, step, state, stride)
            before = statement.checkpoint()
            self._attempt(planning, group, step)
        forecast = _forecast(planning, before)
        planning.add_placed(group, forecast.placements)
        return forecast

    def _bisect(
        self, planning: _Planning, group: GroupEntry, step: NextTasks, state: _State, stride: int
    ) -> None:
        """Advance the plan since ``state`` as little as the group needs.

        It does not fit at ``state``, but after ``stride`` ends.
        """
        low = passed = 0
        high = stride
        while high - low > 1:
            passed = (low + high) // 2
            planning.restore(state)
            planning.advance(passed)
            low, high = (low, passed) if self._fits(planning, group, step) else (passed, high)
        if passed != high:
            planning.restore(state)
            planning.advance(high)

    def _fits(self, planning: _Planning, group: GroupEntry, step: NextTasks) -> bool:
        mark = planning.statement.checkpoint()
        done = self._attempt(planning, group, step)
        planning.statement.rollback(mark)
        return done


def tasks_by_row(forecast: Forecast) -> dict[TaskClass, dict[int, int]]:
    """Return class → row → number of its tasks."""
    rows_by_class: dict[TaskClass, dict[int, int]] = {}
    for entry, row in forecast.placements:
        rows = rows_by_class.setdefault(entry.cls, {})
        rows[row] = rows.get(row, 0) + 1
    return rows_by_class


def _end_of_window(group: GroupEntry, reserved: ReservedCounts) -> float:
    return reserved.start + (run_time(group) or _FOREVER)


def _forecast(planning: _Planning, mark: int) -> Forecast:
    """Return the forecast of a group that has been placed since ``mark``."""
    placements = tuple(planning.statement.placements(mark))
    shares = shares_by_row(planning.statement.device_placements(mark))
    return Forecast(planning.now, tuple(dict.fromkeys(planning.ended)), placements, shares)


class _Planning:
    """Time that a plan has reached, and what has ended by then.

    These are the first ``_passed`` of ``_ends``, and what has left ``_own``: the ends
    of groups placed in this plan. Running tasks are marked as releasing directly
    (``_released``), without an eviction.
    """

    def __init__(
        self,
        statement: Statement,
        state: ClusterState,
        now: float,
        ends: Sequence[End],
        windows: _Behind,
    ) -> None:
        self.statement = statement
        self.now = now
        self.ended: list[str] = []
        self._ledger = state.ledger
        self._has_admissions = bool(state.plugins.admissions)
        """True if the usage that queues give back matters."""
        self._released: list[TaskEntry] = []
        self._ends = ends
        self._last = min(len(ends), MAX_EVENTS)
        self._passed = 0
        self._own: list[_Own] = []
        self._placed: set[str] = set()
        """Tasks placed in this plan: they end as ``_own`` states, whatever was nominated to them."""
        self._numbers = count()
        self._windows = windows
        for group, reserved in windows:
            if (end := _end_of_window(group, reserved)) < _FOREVER:
                heapq.heappush(self._own, (end, next(self._numbers), group.key, []))

    def windows_before(self, group: GroupEntry) -> _Behind:
        """Return the windows of groups of higher rank that have not ended."""
        return [
            (other, reserved)
            for other, reserved in self._windows
            if other is not group and other.rank < group.rank and _end_of_window(other, reserved) > self.now
        ]

    def advance_to(self, start: float) -> None:
        """Advance the plan to a time, if it has not reached it."""
        ends, own = self._ends, self._own
        while self._passed < self._last and ends[self._passed][0] <= start:
            _, key, entries = ends[self._passed]
            self._passed += 1
            self._end(key, entries)
        while own and own[0][0] <= start:
            _, _, key, entries = heapq.heappop(own)
            self._end_own(key, entries)
        self.now = max(self.now, start)

    def advance(self, n: int) -> bool:
        """Advance the plan by the next ``n`` ends; return false if there is none left."""
        if n and self._next_end() is None:
            return False
        for _ in range(n):
            time = self._next_end()
            if time is None:
                break
            self.now = time
            while self._passed < self._last and self._ends[self._passed][0] == time:
                _, key, entries = self._ends[self._passed]
                self._passed += 1
                self._end(key, entries)
            while self._own and self._own[0][0] == time:
                _, _, key, entries = heapq.heappop(self._own)
                self._end_own(key, entries)
        return True

    def _next_end(self) -> float | None:
        """Return the time of the next end."""
        first = self._ends[self._passed][0] if self._passed < self._last else None
        if self._own and (first is None or self._own[0][0] < first):
            return self._own[0][0]
        return first

    def state(self) -> _State:
        return (
            self.statement.checkpoint(),
            self.now,
            len(self.ended),
            self._passed,
            list(self._own),
            len(self._released),
        )

    def restore(self, state: _State) -> None:
        mark, self.now, ended, self._passed, own, remaining = state
        self._own = list(own)
        self.statement.rollback(mark)
        del self.ended[ended:]
        self.undo(remaining)

    def needed(self, behind: _Behind) -> dict[int, Units]:
        """Return the peak need of these groups by row, beyond what is released of the present tasks."""
        starts: dict[int, list[tuple[GroupEntry, ReservedCounts]]] = {}
        for group, reserved in behind:
            for row in dict.fromkeys(row for rows in reserved.tasks.values() for row in rows):
                starts.setdefault(row, []).append((group, reserved))
        if not starts:
            return {}
        releases = self._ends_after(starts, max(reserved.start for _, reserved in behind))
        needed: dict[int, Units] = {}
        for row, local in starts.items():
            last = max(reserved.start for _, reserved in local)
            events = [item for item in releases.get(row, ()) if item[0] <= last]
            for group, reserved in local:
                column_units, seconds = reserved.units_on(row), run_time(group)
                events += [(reserved.start, 1, column_units)]
                events += [(reserved.start + seconds, -1, column_units)] if seconds else []
            needed[row] = peak(events)
        return needed

    def _ends_after(self, rows: Container[int], last: float) -> dict[int, list[Event]]:
        """Return what ends by row after the present time, up to ``last``."""
        present = [
            (end, entry) for end, _, entries in self._ends[self._passed : self._last] for entry in entries
        ]
        present = [(end, entry) for end, entry in present if entry.key not in self._placed]
        present += [(end, entry) for end, _, _, entries in self._own for entry in entries]
        releases: dict[int, list[Event]] = {}
        released_by = self._ledger.table.released_by
        for end, entry in present:
            row = releasing_row(entry)
            if end <= last and row in rows:
                releases.setdefault(row, []).append((end, -1, list(enumerate(released_by(entry).tolist()))))
        return releases

    def undo(self, remaining: int = 0) -> None:
        """Undo the release of all but the first ``remaining`` released tasks."""
        for entry in self._released[remaining:]:
            self._release(entry, -1)
            del self._ledger.terminating[entry.key]
        del self._released[remaining:]

    def add_placed(self, group: GroupEntry, placements: Iterable[tuple[TaskEntry, int]]) -> None:
        """Add a placed group. It ends in its turn if its run time is known."""
        estimate = run_time(group)
        entries = [entry for entry, _ in placements]
        self._placed.update([entry.key for entry in entries])
        if estimate and entries:
            heapq.heappush(self._own, (self.now + estimate, next(self._numbers), group.key, entries))

    def _end(self, key: str, entries: Iterable[TaskEntry]) -> None:
        """End tasks that run or wait for nominated capacity."""
        entries = [entry for entry in entries if entry.key not in self._placed]
        if not entries:
            return
        self.ended.append(key)
        for entry in entries:
            if entry.nominated_row >= 0 and entry.row < 0:
                self.statement.withdraw_nomination(entry)
            elif entry.state in OCCUPYING and entry.state is not TaskState.RELEASING:
                self._release(entry, 1)
                self._ledger.terminating[entry.key] = entry
                self._released.append(entry)

    def _end_own(self, key: str, entries: Iterable[TaskEntry]) -> None:
        """End tasks that were placed in this plan."""
        self.ended.append(key)
        for entry in entries:
            if entry.nominated_row >= 0:
                self.statement.withdraw_nomination(entry)
            elif entry.state in OCCUPYING:
                self.statement.evict(entry, "forecast")

    def _release(self, entry: TaskEntry, sign: int) -> None:
        ledger = self._ledger
        ledger.table.mark_releasing(entry, sign)
        ledger.table.touch(entry.row)
        ledger.holdings.mark_releasing(entry, sign)
        ledger.count_ending(entry, sign)
        if self._has_admissions:
            ledger.counters.release(entry, sign)

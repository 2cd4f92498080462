"""When a group that waits could start, by what is known of how long others run.

The groups that wait are placed in their order on what is free, then on what is free once the next group
that runs has ended, and so on, with the code that places groups for real; nothing of it stays. What has
no known end never ends here. So a forecast is what happens if everybody keeps to his estimate, nobody
new comes first, and nobody behind is let pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from math import nextafter

import numpy as np

from windlass.engine.backfill.peak_demand import Event, Units, peak
from windlass.engine.backfill.reserved_devices import shares_by_row
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import OCCUPYING, GroupEntry, TaskEntry, run_time
from windlass.engine.groups.next_step import NextTasks
from windlass.engine.nodes.table import PROMISED
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.expected_ends import End, place_of
from windlass.engine.state.statement import Statement
from windlass.spi.objects import TaskState

MOST_EVENTS = 4096
"""Ends looked at for one forecast; beyond them nothing is said."""
_Own = tuple[float, int, str, list[TaskEntry]]
"""Moment, a number that no other has, group, and its tasks."""
_State = tuple[int, float, int, int, list[_Own], int]


@dataclass(frozen=True, slots=True)
class Forecast:
    """``start``: Unix seconds. ``after``: the groups whose end it waits for, in the order of their ends.

    ``placements``: where its tasks would go.
    """

    start: float
    after: tuple[str, ...]
    placements: tuple[tuple[TaskEntry, int], ...]
    parts: dict[int, TaskShares] = field(default_factory=dict)
    """Row → what they would have of cards there."""


@dataclass(frozen=True, slots=True)
class ReservedCounts:
    """What is kept for a group without parts of cards. ``tasks``: class → row → for how many of them."""

    start: float
    tasks: Mapping[TaskClass, Mapping[int, int]]

    def on(self, row: int) -> list[tuple[int, int]]:
        """Columns and units that it holds of a row."""
        sums = [(cls.vector, rows[row]) for cls, rows in self.tasks.items() if row in rows]
        return [
            (at, int(units) * n) for vector, n in sums for at, units in enumerate(vector.tolist()) if units
        ]


_Behind = list[tuple[GroupEntry, ReservedCounts]]
_FOREVER = float("inf")


class Forecaster:
    """``allocation``: the code that places. A forecast leaves the statement as it was."""

    def __init__(self, state: ClusterState, gang_allocator: GangAllocator) -> None:
        self._state = state
        self._gang_allocator = gang_allocator

    def plan(self, statement: Statement, groups: Sequence[GroupEntry], now: float) -> dict[str, Forecast]:
        """The starts of ``groups``, which wait, in the order given; up to the first of which nothing is known."""
        return self.beside(statement, groups, now, {})[1]

    def beside(
        self,
        statement: Statement,
        groups: Sequence[GroupEntry],
        now: float,
        reserved: Mapping[str, ReservedCounts],
    ) -> tuple[list[str], dict[str, Forecast]]:
        """The keys of those that come first and have what is ``kept`` for them as it is, as long as each can; and
        :meth:`plan` for the others beside them."""
        found: dict[str, Forecast] = {}
        with self._thought(statement, now) as planning:
            first = self._standing(planning, groups, reserved)
            for group in groups[len(first) :]:
                forecast = self._next(planning, group)
                if forecast is None:
                    break
                found[group.key] = forecast
        return [group.key for group in first], found

    @contextmanager
    def _thought(self, statement: Statement, now: float) -> Iterator[_Planning]:
        """Inside, a plan is made of which nothing stays."""
        mark, queues = statement.checkpoint(), self._state.queues
        demanding, stirred = dict(queues.demanding), queues.stirred
        planning = _Planning(statement, self._state, now, self._state.ledger.ends.at(now))
        try:
            yield planning
        finally:  # whatever a policy raises: what was thought is not decided
            statement.rollback(mark)
            planning.undo()
            # What was given back in thought makes nobody's share another one, and is no news to those who claim room.
            queues.demanding, queues.stirred = demanding, stirred

    def _standing(
        self, planning: _Planning, groups: Sequence[GroupEntry], reserved: Mapping[str, ReservedCounts]
    ) -> list[GroupEntry]:
        """The first of these that have what is kept for them; they hold it in the plan."""

        def stands(group: GroupEntry) -> bool:
            known = reserved.get(group.key)
            return known is not None and self._keep(planning, group, known)

        return list(takewhile(stands, groups))

    # ------------------------------------------------------------------ moving forward

    def forward(
        self,
        statement: Statement,
        groups: Sequence[GroupEntry],
        now: float,
        reserved: Mapping[str, ReservedCounts],
    ) -> dict[str, Forecast]:
        """The better starts of those who have what is ``kept`` for them, as far as it stands: one after the other is
        put where it can begin first, but none before the one before it, nor where that would delay anybody behind it.
        """
        reserved, found = dict(reserved), dict[str, Forecast]()
        with self._thought(statement, now) as planning:
            state = planning.state()
            groups = self._standing(planning, groups, reserved)
            moved = hindered = True
            while moved and hindered:
                planning.restore(state)
                better, hindered = self._pass(planning, groups, reserved)
                moved = bool(better)
                found |= better
                reserved |= {key: ReservedCounts(one.start, tasks_by_row(one)) for key, one in better.items()}
        return found

    def _pass(
        self, planning: _Planning, groups: Sequence[GroupEntry], reserved: Mapping[str, ReservedCounts]
    ) -> tuple[dict[str, Forecast], bool]:
        """Move forward whoever can be; and whether any could have but for those behind him."""
        found: dict[str, Forecast] = {}
        hindered = False
        reserved = dict(reserved)
        for nth, group in enumerate(groups):
            known, step = reserved[group.key], group.step
            behind = [(one, reserved[one.key]) for one in groups[nth + 1 :]]
            if step is not None and self._fits_before(planning, group, known.start):
                better = self._placed_before(planning, group, step, behind)
                if better is None:
                    better = self._anew(planning, [(group, known), *behind])
                    hindered = hindered or better is None
                if better is None:
                    better = self._sooner(planning, group, step, known, behind)
                if better is not None:
                    found |= better
                    reserved |= {
                        key: ReservedCounts(one.start, tasks_by_row(one)) for key, one in better.items()
                    }
            if not self._keep(planning, group, reserved[group.key]):
                break
        return found, hindered

    def _fits_before(self, planning: _Planning, group: GroupEntry, start: float) -> bool:
        """Whether there is room for a group at some moment before ``start``, up to which nobody begins, so that there
        is no less room later; then the plan comes to the first."""
        if planning.now >= start:
            return False
        state = planning.state()
        planning.let_go_until(nextafter(start, planning.now))
        fits = self._fits(planning, group)
        planning.restore(state)
        first = self._next(planning, group) if fits else None
        planning.restore(state)
        if first is not None and first.start > planning.now:
            planning.let_go_until(first.start)
        return first is not None

    def _placed_before(
        self, planning: _Planning, group: GroupEntry, step: NextTasks, behind: _Behind
    ) -> dict[str, Forecast] | None:
        """Where the group goes if it begins now, if that is in the way of nobody behind it. The plan is as it was."""
        state, mark = planning.state(), planning.statement.checkpoint()
        with self._left_alone(planning, group, behind):
            done = self._attempt(planning.statement, group, step)
        forecast = _forecast(planning, mark) if done else None
        planning.restore(state)
        if forecast is None:
            return None
        begun = (group, ReservedCounts(forecast.start, tasks_by_row(forecast)))
        stand = all(self._keep(planning, *one) for one in [begun, *behind])
        planning.restore(state)
        return {group.key: forecast} if stand else None

    def _anew(self, planning: _Planning, kept: _Behind) -> dict[str, Forecast] | None:
        """The starts of all of these from now on, if none begins later than it was to. The plan is as it was."""
        state = planning.state()
        found: dict[str, Forecast] = {}
        for group, known in kept:
            before = planning.state()
            forecast = self._next(planning, group)
            planning.restore(before)
            if forecast is None or forecast.start > known.start:
                break
            found[group.key] = forecast
            self._keep(planning, group, ReservedCounts(forecast.start, tasks_by_row(forecast)))
        planning.restore(state)
        return found if len(found) == len(kept) else None

    def _sooner(
        self, planning: _Planning, group: GroupEntry, step: NextTasks, known: ReservedCounts, behind: _Behind
    ) -> dict[str, Forecast] | None:
        """Where the group goes at the first moment after this one, before its start, at which that is in the way of
        nobody behind it; the plan comes to that. Else the plan is as it was."""
        state = planning.state()
        while planning.let_go(1) and planning.now < known.start:
            better = self._placed_before(planning, group, step, behind)
            if better is not None:
                return better
        planning.restore(state)
        return None

    @contextmanager
    def _left_alone(self, planning: _Planning, group: GroupEntry, behind: _Behind) -> Iterator[None]:
        """Inside, what those behind need who begin before the group would end is booked as promised, beyond what
        has left by then."""
        until = planning.now + (run_time(group) or _FOREVER)
        booked = planning.needed([one for one in behind if one[1].start < until])
        table = self._state.table
        for sign in (1, -1):
            for row, units in booked.items():
                for column, more in units.items():
                    table.planes[row, PROMISED, column] += sign * more
                table.touch(row)
            if sign > 0:
                yield

    # ------------------------------------------------------------------ what is there now

    def at_once(
        self,
        statement: Statement,
        groups: Sequence[GroupEntry],
        now: float,
        reserved: Mapping[str, ReservedCounts],
    ) -> tuple[list[str], dict[str, Forecast]]:
        """Of groups whose time has come: the keys of those that have what is ``kept`` for them now; and where others
        of which that cannot be told would be now, beside them."""
        mark = statement.checkpoint()
        planning = _Planning(statement, self._state, now, ())
        first: list[str] = []
        found: dict[str, Forecast] = {}
        for group in groups:
            known, begin = reserved.get(group.key), statement.checkpoint()
            if known is not None:
                if self._keep(planning, group, known):
                    first.append(group.key)
            elif group.step is not None and self._attempt(statement, group, group.step):
                found[group.key] = _forecast(planning, begin)
        statement.rollback(mark)
        return first, found

    def _attempt(self, statement: Statement, group: GroupEntry, step: NextTasks) -> bool:
        return self._gang_allocator.try_step(statement, group, step, future=True).done

    def _keep(self, planning: _Planning, group: GroupEntry, reserved: ReservedCounts) -> bool:
        """Give a group the room that is kept for it, when it is, if there is room then. Else the plan is as it was."""
        state, step = planning.state(), group.step
        if step is None:
            return False
        planning.let_go_until(reserved.start)
        placements: list[tuple[TaskEntry, int]] = []
        for cls, by_row in reserved.tasks.items():
            waiting = [entry for batch in step.batches if batch.cls is cls for entry in batch.entries]
            rows = np.fromiter(by_row, dtype=np.int64, count=len(by_row))
            short = any(room < n for room, n in zip(cls.future_count(rows), by_row.values(), strict=True))
            if short or len(waiting) < sum(by_row.values()):
                planning.restore(state)
                return False
            left = iter(waiting)
            for row, n in by_row.items():
                for entry in islice(left, n):
                    planning.statement.pipeline(entry, row)
                    placements.append((entry, row))
        planning.note(group, placements)
        return True

    def _next(self, planning: _Planning, group: GroupEntry) -> Forecast | None:
        """Let time pass until the group fits: by doubled strides, then by bisection of the last."""
        step, statement = group.step, planning.statement
        if step is None:
            return None
        state, stride = planning.state(), 0
        before = statement.checkpoint()
        while not self._gang_allocator.try_step(statement, group, step, future=True).done:
            state = planning.state()
            stride = 2 * stride or 1
            if not planning.let_go(stride):
                return None
            before = statement.checkpoint()
        if stride > 1:
            self._nearest(planning, group, state, stride)
            before = statement.checkpoint()
            self._gang_allocator.try_step(statement, group, step, future=True)
        found = _forecast(planning, before)
        planning.note(group, found.placements)
        return found

    def _nearest(self, planning: _Planning, group: GroupEntry, state: _State, stride: int) -> None:
        """Let as few moments pass since ``state`` as the group needs: it does not fit there, but after ``stride``."""
        low = passed = 0
        high = stride
        while high - low > 1:
            passed = (low + high) // 2
            planning.restore(state)
            planning.let_go(passed)
            low, high = (low, passed) if self._fits(planning, group) else (passed, high)
        if passed != high:
            planning.restore(state)
            planning.let_go(high)

    def _fits(self, planning: _Planning, group: GroupEntry) -> bool:
        mark = planning.statement.checkpoint()
        step = group.step
        done = (
            step is not None
            and self._gang_allocator.try_step(planning.statement, group, step, future=True).done
        )
        planning.statement.rollback(mark)
        return done


def tasks_by_row(forecast: Forecast) -> dict[TaskClass, dict[int, int]]:
    """Class → row → how many of its tasks will be there."""
    found: dict[TaskClass, dict[int, int]] = {}
    for entry, row in forecast.placements:
        rows = found.setdefault(entry.cls, {})
        rows[row] = rows.get(row, 0) + 1
    return found


def _forecast(planning: _Planning, mark: int) -> Forecast:
    """Of a group that has been placed since ``mark``."""
    placements = tuple(planning.statement.placements(mark))
    parts = shares_by_row(planning.statement.device_placements(mark))
    return Forecast(planning.now, tuple(dict.fromkeys(planning.gone)), placements, parts)


class _Planning:
    """The moment up to which a plan has come, and what has ended by then: the first ``_past`` of ``_ends``, and
    what has left ``_own``, the ends of those who got their places in this plan.

    What runs now is entered as leaving without the ceremony of an eviction, as nobody is asked to go: ``_left`` of it.
    """

    def __init__(self, statement: Statement, state: ClusterState, now: float, ends: Sequence[End]) -> None:
        self.statement = statement
        self.now = now
        self.gone: list[str] = []
        self._ledger = state.ledger
        self._admitted = bool(state.plugins.admissions)
        """Whether it matters what queues give back."""
        self._left: list[TaskEntry] = []
        self._ends = ends
        self._last = min(len(ends), MOST_EVENTS)
        self._past = 0
        self._own: list[_Own] = []
        self._placed: set[str] = set()
        """The tasks that got their places in this plan: they end as ``_own`` says, whatever was promised to them."""
        self._numbers = count()

    def let_go_until(self, start: float) -> None:
        """Let time pass up to a moment, if the plan has not come to it yet."""
        ends, own = self._ends, self._own
        while self._past < self._last and ends[self._past][0] <= start:
            _, key, entries = ends[self._past]
            self._past += 1
            self._end(key, entries)
        while own and own[0][0] <= start:
            _, _, key, entries = heapq.heappop(own)
            self._end_own(key, entries)
        self.now = max(self.now, start)

    def let_go(self, n: int) -> bool:
        """Let the next ``n`` moments pass at which something ends; false if there is none left at all."""
        if n and self._next() is None:
            return False
        for _ in range(n):
            moment = self._next()
            if moment is None:
                break
            self.now = moment
            while self._past < self._last and self._ends[self._past][0] == moment:
                _, key, entries = self._ends[self._past]
                self._past += 1
                self._end(key, entries)
            while self._own and self._own[0][0] == moment:
                _, _, key, entries = heapq.heappop(self._own)
                self._end_own(key, entries)
        return True

    def _next(self) -> float | None:
        """When something ends next."""
        first = self._ends[self._past][0] if self._past < self._last else None
        if self._own and (first is None or self._own[0][0] < first):
            return self._own[0][0]
        return first

    def state(self) -> _State:
        return (
            self.statement.checkpoint(),
            self.now,
            len(self.gone),
            self._past,
            list(self._own),
            len(self._left),
        )

    def restore(self, state: _State) -> None:
        mark, self.now, gone, self._past, own, left = state
        self._own = list(own)
        self.statement.rollback(mark)
        del self.gone[gone:]
        self.undo(left)

    def needed(self, behind: _Behind) -> dict[int, Units]:
        """By row, the most that these need there beyond what has left by then of what is there now."""
        starts: dict[int, list[tuple[GroupEntry, ReservedCounts]]] = {}
        for group, reserved in behind:
            for row in dict.fromkeys(row for rows in reserved.tasks.values() for row in rows):
                starts.setdefault(row, []).append((group, reserved))
        if not starts:
            return {}
        leaving = self._leaving(starts, max(kept.start for _, kept in behind))
        found: dict[int, Units] = {}
        for row, here in starts.items():
            last = max(kept.start for _, kept in here)
            events = [one for one in leaving.get(row, ()) if one[0] <= last]
            for group, reserved in here:
                asked, seconds = reserved.on(row), run_time(group)
                events += [(reserved.start, 1, asked)]
                events += [(reserved.start + seconds, -1, asked)] if seconds else []
            found[row] = peak(events)
        return found

    def _leaving(self, rows: Container[int], last: float) -> dict[int, list[Event]]:
        """By row, what ends there after this moment, up to the last."""
        there = [(end, entry) for end, _, entries in self._ends[self._past : self._last] for entry in entries]
        there = [(end, entry) for end, entry in there if entry.key not in self._placed]
        there += [(end, entry) for end, _, _, entries in self._own for entry in entries]
        found: dict[int, list[Event]] = {}
        leaves = self._ledger.table.leaves
        for end, entry in there:
            row = place_of(entry)
            if end <= last and row in rows:
                found.setdefault(row, []).append((end, -1, list(enumerate(leaves(entry).tolist()))))
        return found

    def undo(self, left: int = 0) -> None:
        """Enter as staying all but so many of those that were entered as leaving."""
        for entry in self._left[left:]:
            self._leave(entry, -1)
            del self._ledger.leaving[entry.key]
        del self._left[left:]

    def note(self, group: GroupEntry, placements: Iterable[tuple[TaskEntry, int]]) -> None:
        """A group has got its place; it ends in its turn if it is known how long it runs."""
        estimate = run_time(group)
        entries = [entry for entry, _ in placements]
        self._placed.update([entry.key for entry in entries])
        if estimate and entries:
            heapq.heappush(self._own, (self.now + estimate, next(self._numbers), group.key, entries))

    def _end(self, key: str, entries: Iterable[TaskEntry]) -> None:
        """What runs, or waits for promised room, ends."""
        entries = [entry for entry in entries if entry.key not in self._placed]
        if not entries:
            return
        self.gone.append(key)
        for entry in entries:
            if entry.promised >= 0 and entry.row < 0:
                self.statement.withdraw_nomination(entry)
            elif entry.state in OCCUPYING and entry.state is not TaskState.RELEASING:
                self._leave(entry, 1)
                self._ledger.leaving[entry.key] = entry
                self._left.append(entry)

    def _end_own(self, key: str, entries: Iterable[TaskEntry]) -> None:
        """What has got its place in this plan ends."""
        self.gone.append(key)
        for entry in entries:
            if entry.promised >= 0:
                self.statement.withdraw_nomination(entry)
            elif entry.state in OCCUPYING:
                self.statement.evict(entry, "forecast")

    def _leave(self, entry: TaskEntry, sign: int) -> None:
        ledger = self._ledger
        ledger.table.release(entry, sign)
        ledger.table.touch(entry.row)
        ledger.holdings.ends(entry, sign)
        ledger.count_ending(entry, sign)
        if self._admitted:
            ledger.counters.release(entry, sign)

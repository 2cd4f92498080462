"""Backfill: room kept for those whose start is known, and who may pass them.

The first group in rank (priority, then age) that finds no room gets a *reservation*, if it can be told
from the run times of others when it will start (:mod:`windlass.engine.forecast`): on the nodes that it
will take, the part of its room that nothing leaves by then is kept. A group that comes after it may use
kept room only if it ends before the reservation starts, by its own estimate. With ``easy`` one group has a
reservation (EASY backfilling: Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995), with
``conservative`` up to :data:`DEPTH`. Without run times there is no reservation, and everybody passes, until
a group has waited for so long that nodes are emptied for it (:mod:`windlass.engine.aging`).

Kept room is booked as promised while ``allocate`` runs, less what will have left by then. For a group that may not
pass, actions that evict leave alone all of it. With ``easy`` the room stays kept when its time has come, until the
group has had its turn: a queue that comes before its own would take it otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from windlass.engine.aging import Aging, by_row
from windlass.engine.allocate import Allocation, Attempt
from windlass.engine.cards import KEPT, Cut, Cuts
from windlass.engine.classes import TaskClass
from windlass.engine.devices import WHOLE
from windlass.engine.ends import end_of
from windlass.engine.forecast import Forecast, Forecaster, Kept
from windlass.engine.groups import GroupEntry, TaskEntry, passing_time
from windlass.engine.keptcards import CardKeeper, parts_by_row
from windlass.engine.statement import Statement
from windlass.engine.steps import Step
from windlass.engine.table import PROMISED
from windlass.engine.world import World
from windlass.spi.objects import TaskState

DEPTH = 16
DEPTHS = {"strict": 0, "none": 0, "easy": 1, "conservative": DEPTH}
_PLANS_PER_CYCLE = DEPTH + 4
_TURNS = 2
"""So many cycles have a turn for a group whose time has come: who is woken in one is tried in the next."""
UNKNOWN = float(1 << 60)
"""The start of a reservation of which nobody knows when it will be."""
Amounts = NDArray[np.int64]
_rank = attrgetter("rank")
_start = attrgetter("start")


@dataclass(slots=True)
class Reservation:
    """``rows``: row → what the group will hold there. ``kept``: row → what is booked for it at present, as pairs of
    column and units."""

    group: GroupEntry
    start: float
    rows: dict[int, Amounts]
    nodes: dict[int, str]
    """Row → the name of the node there, by which a row that now is another node's is recognised."""
    parts: dict[int, Cuts] = field(default_factory=dict)
    """Row → what the group will hold of cards there."""
    asked: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """``rows`` as pairs of column and units, of what it will hold any of."""
    kept: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    kept_parts: dict[int, Cuts] = field(default_factory=dict)
    turns: int = 0
    """Cycles since its time has come."""

    def same(self, other: Reservation | None) -> bool:
        """Whether the other keeps the same, from the same moment on, so that nobody else may come for it."""
        return (
            other is not None
            and (self.start, self.nodes, self.parts) == (other.start, other.nodes, other.parts)
            and all(np.array_equal(amounts, other.rows[row]) for row, amounts in self.rows.items())
        )


class Reservations:
    def __init__(self, world: World, allocation: Allocation) -> None:
        self._world = world
        self._allocation = allocation
        self._forecaster = Forecaster(world, allocation)
        self.aging = Aging(world, allocation)
        self._depth = DEPTHS[world.config.backfill]
        self._turns = _TURNS if self._depth == 1 else -1
        """For so many cycles room is kept for a group whose time has come; several of them at once might be in one
        another's way."""
        self._plans = 0
        self.slots: dict[str, Reservation] = {}

    # ------------------------------------------------------------------ round the action

    def open(self, statement: Statement, now: float, *, served: bool = True) -> None:
        """Bring the reservations in line with the world, and book what they keep, unless nobody is ``served``."""
        self._plans = 0
        if not self.slots and not self.aging.since:
            return
        alive = [r.group for r in self.slots.values() if _waits(self._world, r.group)]
        late = [r for r in self.slots.values() if r.start <= now or not self._stands(r)]
        vacant = len(alive) != len(self.slots)
        aged = [group for group in self.aging.due(now) if group.key not in self.slots]
        others = self.aging.waiting() if vacant else aged
        for r in late:
            r.turns += served
        if late or aged or vacant:
            if not (aged or vacant) and self._came_true(statement, late, now):
                return
            ranked = [*alive, *(group for group in others if group not in alive)]
            self._plan(statement, heapq.nsmallest(self._depth, ranked, key=_rank), now)
        if served:
            self._book(self.slots.values(), now)

    def _came_true(self, statement: Statement, late: Sequence[Reservation], now: float) -> bool:
        """Whether those whose time has come have their room now, beside what is kept for the others: then these
        stand as they are, and booked, since nobody starts later than was planned, and those keep what they have now
        until they have had their turn."""
        if not all(map(self._stands, late)):
            return False
        kept = [r for r in self.slots.values() if r not in late]
        self._book(kept, now)
        begin = statement.checkpoint()
        due: list[Reservation] = []
        for r in sorted(late, key=lambda r: r.group.rank):
            step, mark = r.group.step, statement.checkpoint()
            if step is None or not self._allocation.attempt(statement, r.group, step, future=True).done:
                break
            rows, parts = by_row(statement.placements(mark)), parts_by_row(statement.seats(mark))
            due.append(self._reservation(r.group.key, r.start, rows, parts, r.turns))
        statement.rollback(begin)
        if len(due) < len(late):
            self._unbook(kept)
            return False
        for r in late:
            del self.slots[r.group.key]
            if r.turns == 1 or r.turns > self._turns:
                self._world.table.improved |= r.rows.keys()
        due = [r for r in due if r.turns <= self._turns]
        self.slots.update((r.group.key, r) for r in due)
        self._book(due, now)
        return True

    def close(self) -> None:
        """Give the booking back."""
        self._unbook(self.slots.values())

    # ------------------------------------------------------------------ within it

    def advance(self, statement: Statement, group: GroupEntry, step: Step, now: float) -> tuple[Attempt, str]:
        """``Allocation.advance`` past the reservations that the group may pass.

        With a failed attempt comes the group for which the room is kept that it could have had, or "".
        """
        passed = [r for r in self.slots.values() if self._may_pass(group, r, now)]
        with self._lifted(passed):
            attempt = self._allocation.advance(statement, group, step)
        if attempt.done and not attempt.pipelined and group.key in self.slots:
            reservation = self.slots.pop(group.key)
            self._unbook([reservation])
            return attempt, ""
        if attempt.done or len(passed) == len(self.slots) or len(statement):
            return attempt, ""
        with self._lifted(self.slots.values()):
            mark = statement.checkpoint()
            could = self._allocation.attempt(statement, group, step).done
            statement.rollback(mark)
        return attempt, self._first_kept(passed) if could else ""

    @contextmanager
    def kept_from(self, group: GroupEntry, now: float) -> Iterator[None]:
        """Outside the action: whatever is looked for meanwhile leaves alone what is kept from the group. What will
        have ended by then covers nothing of that: it may be whom the group has evicted. He would take the room that
        the group may not have, be evicted again, and so on without end."""
        kept = [r for r in self.slots.values() if not self._may_pass(group, r, now) and self._stands(r)]
        if not kept:
            yield
            return
        self._book(kept, now, covered=False)
        try:
            yield
        finally:
            self._unbook(kept)

    def limit(self, group: GroupEntry, now: float) -> float | None:
        """Within how many seconds another must end to pass a reservation that this one may not pass."""
        starts = [
            r.start for r in self.slots.values() if r.start < UNKNOWN and not self._may_pass(group, r, now)
        ]
        return max(starts) - now if starts else None

    def offer(self, statement: Statement, group: GroupEntry, attempt: Attempt, now: float) -> None:
        """A group found no room: keep some for it, if it is its turn and its start is known."""
        if not self._depth or attempt.refusals or attempt.pipelined:
            return
        self.aging.note(group, now)
        if not self._world.timed:
            return
        if group.key in self.slots or self._plans >= _PLANS_PER_CYCLE:
            return
        kept = [r.group for r in self.slots.values()]
        if len(kept) >= self._depth and group.rank > max(map(_rank, kept)):
            return
        alike: Iterable[GroupEntry] = group.bucket.members.values() if group.bucket is not None else ()
        if len(kept) < self._depth:
            self._plans += 1
            alike = [*alike, *self.aging.waiting()]
        others = {one.key: one for one in alike if one is not group and one.key not in self.slots}
        ranked = heapq.nsmallest(self._depth, [*kept, group, *others.values()], key=_rank)
        if group not in ranked:
            return
        self._unbook(self.slots.values())
        self._plan(statement, ranked, now, keep=True)
        if group.key not in self.slots and len(ranked) <= len(kept):
            self._plan(statement, kept, now)
        self._book(self.slots.values(), now)

    def next_change(self, now: float) -> float | None:
        """When the first of them is to start, or the next group will have waited for too long."""
        if not self.slots and not self.aging.since:
            return None
        moments = [r.start for r in self.slots.values() if now < r.start < UNKNOWN]
        due = self.aging.next_due(now)
        if due is not None:
            moments.append(due)
        return min(moments, default=None)

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self) -> list[tuple[str, float, dict[str, dict[str, int]]]]:
        """Group key, start, and by node and resource what it will hold there."""
        names, resources = self._world.table.names, self._world.table.resources.values
        return [
            (
                key,
                r.start,
                {
                    names[row]: {resources[at]: int(amounts[at]) for at in np.flatnonzero(amounts).tolist()}
                    for row, amounts in r.rows.items()
                },
            )
            for key, r in self.slots.items()
        ]

    def parts_as_records(self) -> dict[str, dict[str, tuple[Cut, ...]]]:
        """Group key → by node, what it will hold of cards there."""
        names = self._world.table.names
        found = {key: {names[row]: cuts for row, cuts in r.parts.items()} for key, r in self.slots.items()}
        return {key: parts for key, parts in found.items() if parts}

    def restore(
        self,
        records: Iterable[tuple[str, float, dict[str, dict[str, int]]]],
        parts: Mapping[str, Mapping[str, tuple[Cut, ...]]],
    ) -> None:
        """The inverse of :meth:`as_records` and :meth:`parts_as_records`."""
        table = self._world.table
        for key, start, rows in records:
            amounts = {table.row(name): table.request_vector(request) for name, request in rows.items()}
            cuts = {table.row(name): held for name, held in parts.get(key, {}).items()}
            self.slots[key] = self._reservation(key, start, amounts, cuts)

    # ------------------------------------------------------------------ parts

    def _plan(
        self, statement: Statement, groups: list[GroupEntry], now: float, *, keep: bool = False
    ) -> None:
        """Make the reservations anew for these groups: as far as their starts can be told, and for one
        more that has waited for too long. ``keep``: those that come before all who have none stay as they are,
        where they can."""
        self._plans += 1
        before, self.slots = self.slots, {}
        ranked = sorted(groups, key=_rank)
        forecasts: dict[str, Forecast] = {}
        first: list[str] = []
        if self._world.timed:
            kept = {key: told for key, r in before.items() if (told := _told(r)) is not None} if keep else {}
            first, forecasts = self._forecaster.beside(statement, ranked, now, kept)
        self.slots.update((key, before[key]) for key in first)
        for key, forecast in forecasts.items():
            had, later = before.get(key), forecast.start > now
            if later or (had is not None and had.turns <= self._turns):
                turns = 0 if later or had is None else had.turns
                rows = by_row(forecast.placements)
                self.slots[key] = self._reservation(key, forecast.start, rows, forecast.parts, turns)
        aged = {group.key for group in self.aging.due(now)}
        known = forecasts.keys() | self.slots.keys()
        waiting = next((one for one in ranked if one.key in aged and one.key not in known), None)
        if waiting is not None:
            self._empty(statement, waiting, before.get(waiting.key))
        freed = {row for key, r in before.items() if not r.same(self.slots.get(key)) for row in r.rows}
        if freed:
            self._world.table.improved |= freed & set(self._world.table.rows.values())

    def _empty(self, statement: Statement, group: GroupEntry, before: Reservation | None) -> None:
        """Have nodes emptied for a group; those that are being emptied for it already, if they stand."""
        if before is not None and before.start == UNKNOWN and self._stands(before):
            self.slots[group.key] = self._reservation(group.key, UNKNOWN, before.rows, before.parts)
            return
        held = self.aging.rows(statement, group)
        if held is not None:
            self.slots[group.key] = self._reservation(group.key, UNKNOWN, *held)

    def _reservation(
        self, key: str, start: float, rows: dict[int, Amounts], parts: dict[int, Cuts], turns: int = 0
    ) -> Reservation:
        nodes = {row: self._world.table.names[row] for row in rows}
        asked = {
            row: [(column, units) for column, units in enumerate(amounts.tolist()) if units]
            for row, amounts in rows.items()
        }
        return Reservation(self._world.groups[key], start, rows, nodes, parts, asked, turns=turns)

    def _stands(self, reservation: Reservation) -> bool:
        rows = self._world.table.rows
        return all(rows.get(name) == row for row, name in reservation.nodes.items())

    def _may_pass(self, group: GroupEntry, reservation: Reservation, now: float) -> bool:
        if reservation.group is group or group.rank < reservation.group.rank:
            return True
        estimate = passing_time(group) if group.timed and reservation.start < UNKNOWN else None
        return estimate is not None and now + estimate <= reservation.start

    def _first_kept(self, passed: Sequence[Reservation]) -> str:
        return next(key for key, r in self.slots.items() if r not in passed)

    def _book(self, reservations: Iterable[Reservation], now: float, *, covered: bool = True) -> None:
        """Book what has to be kept. What leaves a node covers what is kept there only once, and not at all unless it is
        to be ``covered``."""
        taken_of: dict[int, dict[int, int]] = {}
        keeper = CardKeeper(self._world.table)
        ends: dict[int, list[tuple[float, TaskEntry]]] = {}
        vectors: dict[TaskClass, list[int]] = {}
        for reservation in sorted(reservations, key=_start):
            reservation.kept, reservation.kept_parts = {}, {}
            start = reservation.start
            for row, asked in reservation.asked.items():
                known = ends.get(row)
                if known is None:
                    known = ends[row] = self._ends(row, now)
                ending = [entry for end, entry in known if covered and now < start and end <= start]
                vacated: dict[int, int] = {}
                if row in reservation.parts or any(entry.cuts for entry in ending):
                    vacated = self._keep_cards(keeper, reservation, row, ending)
                leaving = [_vector(entry.cls, vectors) for entry in ending]
                before = taken_of.setdefault(row, {})
                kept = []
                for column, units in asked:
                    left, taken = vacated.get(column, 0), before.get(column, 0)
                    for vector in leaving:
                        left += vector[column]
                    lacking = max(units - max(left - taken, 0), 0)
                    before[column] = taken + units - lacking
                    if lacking:
                        kept.append((column, lacking))
                if kept:
                    reservation.kept[row] = kept
            self._change(reservation, 1)

    def _keep_cards(
        self, keeper: CardKeeper, reservation: Reservation, row: int, ending: Sequence[TaskEntry]
    ) -> dict[int, int]:
        """Note which cards of a node are to be kept. Returns what becomes free of them, by column."""
        amounts = reservation.rows[row]
        parts = keeper.parts(row, reservation.parts.get(row, ()), ending)
        parts += keeper.closed(row, amounts, ending, _held(ending, len(amounts)))
        if parts:
            reservation.kept_parts[row] = parts
        codes = self._world.table.resources.codes
        vacated = keeper.vacated(row, ending).items()
        return {codes[resource]: WHOLE * len(indices) for resource, indices in vacated}

    def _unbook(self, reservations: Iterable[Reservation]) -> None:
        for reservation in reservations:
            self._change(reservation, -1)
            reservation.kept, reservation.kept_parts = {}, {}

    @contextmanager
    def _lifted(self, reservations: Iterable[Reservation]) -> Iterator[None]:
        lifted = list(reservations)
        for reservation in lifted:
            self._change(reservation, -1)
        try:
            yield
        finally:
            for reservation in lifted:
                self._change(reservation, 1)

    def _change(self, reservation: Reservation, sign: int) -> None:
        table = self._world.table
        for row, kept in reservation.kept.items():
            for column, units in kept:
                table.planes[row, PROMISED, column] += sign * units
            table.touch(row)
        for row, parts in reservation.kept_parts.items():
            table.cards.put(row, f"reservation {reservation.group.key}", parts, KEPT, sign)
            table.touch(row)

    def _ends(self, row: int, now: float) -> list[tuple[float, TaskEntry]]:
        """Those on a node of whom it is known when they end; what terminates covers promises already."""
        found = []
        for entry in self._world.table.tasks[row].values():
            if entry.state is not TaskState.RELEASING:
                end = end_of(entry, now)
                if end is not None:
                    found.append((end, entry))
        return found


def _vector(cls: TaskClass, known: dict[TaskClass, list[int]]) -> list[int]:
    """What a task of a class holds of a node, by column."""
    found = known.get(cls)
    if found is None:
        cls.fit_vector()
        found = known[cls] = cls.vector.tolist()
    return found


def _told(reservation: Reservation) -> Kept | None:
    """What a reservation keeps, if that can be told without trying: for whole steps of one class that need no
    parts of cards. Where run times are learned, others end otherwise than was reckoned with: all is planned anew."""
    group, step = reservation.group, reservation.group.step
    if group.spec.learned:
        return None
    if step is None or len(step.runs) != 1 or step.extra or group.promises or reservation.start >= UNKNOWN:
        return None
    cls = step.runs[0].cls
    if cls.needs.devices or step.root is not None or step.options:
        return None
    cls.fit_vector()
    each = [(column, units) for column, units in enumerate(cls.vector.tolist()) if units]
    rows: dict[int, int] = {}
    for row, asked in reservation.asked.items():
        n = rows[row] = asked[0][1] // each[0][1]
        if asked != [(column, units * n) for column, units in each]:
            return None
    return Kept(reservation.start, rows) if sum(rows.values()) == step.members else None


def _held(entries: Iterable[TaskEntry], width: int) -> Amounts:
    """What tasks hold of a node together, but for parts of cards."""
    sums = np.zeros(width, dtype=np.int64)
    for entry in entries:
        entry.cls.fit_vector()
        sums += entry.cls.vector[:width]
    return sums


def _waits(world: World, group: GroupEntry) -> bool:
    return group.group is not None and world.groups.get(group.key) is group and group.bucket is not None

"""Backfill: room kept for those whose start is known, and who may pass them.

The first group in rank (priority, then age) that finds no room gets a *reservation*, if it can be told
from the run times of others when it will start (:mod:`windlass.engine.backfill.forecast`): on the nodes that it
will take, the part of its room that nothing leaves by then is kept. A group that comes after it may use
kept room only if it ends before the reservation starts, by its own estimate. With ``easy`` one group has a
reservation (EASY backfilling: Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995), with
``conservative`` up to :data:`DEPTH`. Without run times there is no reservation, and everybody passes, until
a group has waited for so long that nodes are emptied for it (:mod:`windlass.engine.backfill.aging`).

A group is placed as if nothing was kept; only if that takes kept room is it placed again with that room booked as
promised (:mod:`windlass.engine.backfill.reserved_capacity`). For a group that may not pass, actions that evict leave
alone all of it. The room stays kept when its time has come, until the group has had its turn: a queue that comes before
its own would take it otherwise.

When there is room sooner than was reckoned with, several reservations move forward, one after the other, and none of
them back (:meth:`Reservations._move_forward`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from operator import attrgetter

import numpy as np

from windlass.engine.backfill.aging import Aging, by_row
from windlass.engine.backfill.forecast import Forecast, Forecaster, tasks_by_row
from windlass.engine.backfill.planned_capacity import PlannedCapacity
from windlass.engine.backfill.reclaim_precedence import ReclaimPrecedence
from windlass.engine.backfill.reservation import UNKNOWN, Amounts, Reservation
from windlass.engine.backfill.reserved_capacity import ReservedCapacity
from windlass.engine.devices.share_table import TaskShare, TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, alike, passing_time
from windlass.engine.groups.next_step import NextTasks, is_nominated
from windlass.engine.pending.scheduling_queue import PendingClass
from windlass.engine.placement.gang_allocator import GangAllocator, PlacementAttempt
from windlass.engine.queueing.never_fits import NeverFits
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement

DEPTH = 16
DEPTHS = {"strict": 0, "none": 0, "easy": 1, "conservative": DEPTH}
_PLANS_PER_CYCLE = DEPTH + 4
_TURNS = 2
"""So many cycles have a turn for a group whose time has come: who is woken in one is tried in the next."""
_TIDY_AT_LEAST = 4096
_FOREVER = float("inf")
_rank = attrgetter("rank")
_rank_of = attrgetter("group.rank")


class Reservations:
    def __init__(self, state: ClusterState, gang_allocator: GangAllocator) -> None:
        self._state = state
        self._gang_allocator = gang_allocator
        self._forecaster = Forecaster(state, gang_allocator)
        self._planned = PlannedCapacity(state, gang_allocator)
        self._never_fits = NeverFits(state.table)
        self.aging = Aging(state, gang_allocator, self._never_fits)
        self._depth = DEPTHS[state.config.backfill]
        self._reserved = ReservedCapacity(state.table)
        self._precedence = ReclaimPrecedence(state)
        self._plans = 0
        self._nodes_seen = -1
        """Up to here the changes of nodes have been looked at."""
        self._tidy_at = _TIDY_AT_LEAST
        self.vacant = False
        """Whether a reservation has gone, and nobody has been looked for to have one in its place."""
        self._unfilled = False
        """Whether a group has begun in this cycle that had one, or was to, and nobody has been looked for in its place.
        """
        self._startable: set[str] = set()
        """Those that were to have one when it was last planned, but for that they may begin now."""
        self._grown = False
        """Whether room that a reservation was to hold is not held, or not yet, so that others may begin sooner."""
        self._shape_seen = -1
        """As of which state nodes were reckoned with."""
        self._turned: list[Reservation] = []
        """Those whose time has come that have their first turn in this cycle."""
        self._overtaken = False
        """Whether a group has started that need not respect all of them."""
        self._displaced = False
        """Whether that was one that goes before who will be beyond his share: others may go where those were to be."""
        self.roomless: dict[PendingClass, None] = {}
        """Those that wait for room alone: of them the first have reservations."""
        self.slots: dict[str, Reservation] = {}

    # ------------------------------------------------------------------ round the action

    def open(
        self, statement: Statement, now: float, touched: Iterable[GroupEntry] = (), *, served: bool = True
    ) -> None:
        """Bring the reservations in line with the world, and book what they keep, unless nobody is ``served``.

        ``touched``: the groups that may have come since the last time.
        """
        self._plans = 0
        self._turned, self._unfilled, self._startable = [], False, set()
        reshaped, vacant, grown = self.reshaped, self.unreserved, self._has_grown(now)
        if not self.slots and not self.aging.since:
            return
        self.vacant = vacant
        gone, broken, due = self._looked_at(now)
        if gone:
            self._drop(gone)
        if due:
            for r in due:
                r.turns += served
            broken |= self._come_due(statement, due, now, served=served)
        others = self._others(touched, now)
        if broken or others or reshaped:  # of what is gone or ill on nodes somebody may have had his room
            ranked = self._first_of(others)
            if broken or reshaped or any(group.key not in self.slots for group in ranked):
                self._plan(statement, ranked, now, broken)
        if grown or self._grown:
            self._move_forward(statement, now)

    def _first_of(self, others: Sequence[GroupEntry]) -> list[GroupEntry]:
        """Those who have reservations and these others in their order, as many as may have one."""
        return sorted([*[r.group for r in self.slots.values()], *others], key=_rank)[: self._depth]

    def _looked_at(self, now: float) -> tuple[list[Reservation], set[str], list[Reservation]]:
        """Those whose groups wait no more, or for room that is promised to them by now, the keys of those whose nodes
        are gone or closed or that ask for something else, and those of the others whose time has come."""
        gone: list[Reservation] = []
        broken: set[str] = set()
        due: list[Reservation] = []
        groups, mark = self._state.groups, self._state.table.statics.mark
        same_nodes, self._nodes_seen = mark == self._nodes_seen, mark
        for key, r in self.slots.items():
            group = r.group
            if group.bucket is None or group.group is None or groups.get(key) is not group or _served(group):
                gone.append(r)
            elif not (r.asks() if same_nodes else self._stands(r)):
                broken.add(key)
            elif r.start <= now:
                due.append(r)
        return gone, broken, due

    def _drop(self, reservations: Iterable[Reservation]) -> None:
        """These are kept no more, and others may come for their room."""
        for r in reservations:
            del self.slots[r.group.key]
            self.vacant = self._grown = True
            self._state.table.improved |= r.rows.keys() & set(self._state.table.rows.values())

    def _come_due(
        self, statement: Statement, due: Sequence[Reservation], now: float, *, served: bool
    ) -> set[str]:
        """Those whose time has come keep their room until they have had their turn. The keys of those that do not have
        it: they are planned anew."""
        due = sorted(due, key=_rank_of)
        late: set[str] = set()
        if not self._planned.there(due):
            there = self._at_once(statement, due, now)
            late = {r.group.key for r in due} - there
            due = [r for r in self.slots.values() if r.start <= now and r.group.key in there]
        self._turned = [r for r in due if r.turns == 1] if served else []
        self._drop([r for r in due if r.turns > _TURNS])
        return late

    def _at_once(self, statement: Statement, due: Sequence[Reservation], now: float) -> set[str]:
        """The keys of those of whom the code that places says that they have their room now; some of it elsewhere."""
        told = {r.group.key: known for r in due if (known := r.told()) is not None}
        kept = [r for r in self.slots.values() if r.start > now]
        with self._reserved.booked(kept if len(told) < len(due) else (), now, _FOREVER):
            first, found = self._forecaster.at_once(statement, [r.group for r in due], now, told)
        for key, forecast in found.items():
            self.slots[key] = self._made(key, now, forecast, self.slots[key].turns)
        return {*first, *found}

    def _others(self, touched: Iterable[GroupEntry], now: float) -> list[GroupEntry]:
        """Groups that may have to have a reservation, and have none."""
        slots = self.slots
        if self.vacant:
            self.vacant = False
            return self._next_in_line()
        found = [one for one in self.aging.due(now) if self._lacks_one(one)]
        if found and any(r.start >= UNKNOWN for r in slots.values()):
            found = []
        if self._depth > 1 or slots:
            new = [one for one in touched if one.bucket in self.roomless and self._lacks_one(one)]
            new = [one for one in new if not self._never_fits.beyond(one)]
            if new and len(slots) >= self._depth:
                bar = max(r.group.rank for r in slots.values())
                new = [one for one in new if one.rank < bar]
            found += [one for one in new if one not in found]
        return found

    def _lacks_one(self, group: GroupEntry) -> bool:
        """Whether no room is kept for a group, nor all that it waits for promised to it."""
        return group.key not in self.slots and not _served(group)

    def _waiting(self) -> list[PendingClass]:
        """Where those stand who wait for room, as far as is known: who found none, and who asks for the same."""
        self.roomless = {pending_class: None for pending_class in self.roomless if pending_class.members}
        return [pending_class for pending_class in self.roomless if not self._is_beyond(pending_class)]

    def _is_beyond(self, pending_class: PendingClass) -> bool:
        """Whether nobody who stands there, all of whom ask for the same, can ever run."""
        return self._never_fits.beyond(next(iter(pending_class.members.values())))

    def _unreserved(self, pending_classes: Iterable[PendingClass], most: int) -> list[GroupEntry]:
        """The first in rank of those who stand there and have no reservation, so many at most."""
        found: list[GroupEntry] = []
        for pending_class in pending_classes:
            ranked = (pending_class.members[key] for key in pending_class.by_rank())
            found += islice(filter(self._lacks_one, ranked), most)
        found.sort(key=_rank)
        return found[:most]

    def _next_in_line(self) -> list[GroupEntry]:
        """Of all who wait for room and have no reservation, those who may be among the first of all."""
        waiting = self._waiting()
        if len(self.slots) >= self._depth - 1:  # as it mostly is: one has gone
            found = self._unreserved(waiting, 1)
            if not found or all(r.group.rank < found[0].rank for r in self.slots.values()):
                return found
        return self._unreserved(waiting, self._depth)

    def close(self, statement: Statement, now: float) -> None:
        """Those whose time has come and that have not begun have a turn in the next cycle, as has who waits for their
        room. Those whose room somebody may have taken who need not leave it alone are planned anew."""
        if self._turned:
            self._follow(statement, now)
        if self._overtaken or self._displaced:
            self._plan_again(statement, now)
        if self._grown:
            self._move_forward(statement, now)

    def _plan_again(self, statement: Statement, now: float) -> None:
        """All of them, after others have gone where they were to be."""
        self._overtaken = self._displaced = False
        self._plan(statement, [r.group for r in self.slots.values()], now)

    def _follow(self, statement: Statement, now: float) -> None:
        """Another cycle for those whose time has come and that have not begun, and for who waits for their room. Where
        all have begun as it was said, their room is as taken as it was, and none is needed: who comes in their place
        is planned at once, unless that moves others."""
        before, improved = self.slots, self._state.table.improved
        again = bool(improved) or any(r.start <= now for r in before.values())
        again = again or not all(map(_begun, self._turned))
        if self.vacant and not again:
            self.vacant = False
            self._fill_up(statement, now)
            again = any(self.slots.get(key) is not r for key, r in before.items())
        if again:
            for r in self._turned:
                self._state.table.improved |= r.rows.keys()

    # ------------------------------------------------------------------ moving forward

    @property
    def reshaped(self) -> bool:
        """Whether nodes are others than was reckoned with."""
        return self._shape_seen != self._state.table.shape

    @property
    def grown(self) -> bool:
        """Whether room is there sooner than was reckoned with, but for what has left since."""
        return self._grown or self.reshaped

    @property
    def unreserved(self) -> bool:
        """Whether those are to be looked for who may have a reservation now and have none: one has gone, or nodes are
        others, so that the start of somebody may be known that was not."""
        return self.vacant or (self.reshaped and bool(self.slots or self.aging.since))

    def look_again(self) -> bool:
        """Some who could never run can now: the next cycle looks for who may have a reservation. Whether any wait."""
        self.vacant = self.vacant or bool(self.slots or self.aging.since)
        return self.vacant

    def _has_grown(self, now: float) -> bool:
        """Whether there may be room sooner than was reckoned with: somebody has left at another moment than was said,
        or nodes are others. To be asked once a cycle."""
        ends = self._state.ledger.ends
        left, ends.left = ends.left, None
        grown = self.grown or (left is not None and left != (now, now))
        self._shape_seen = self._state.table.shape
        return grown

    def _move_forward(self, statement: Statement, now: float) -> None:
        """Have those who have reservations start sooner where they can by now, one after the other in their order, and
        none of them later (schedule compression: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001)."""
        self._grown = False
        if self._depth < 2:
            return
        kept = list(takewhile(_is_tellable, sorted(self.slots.values(), key=_rank_of)))
        if not kept or kept[-1].start <= now:
            return
        found = self._planned.forward(kept, now)
        if found is None:
            told = {r.group.key: known for r in kept if (known := r.told()) is not None}
            found = self._forecaster.forward(statement, [r.group for r in kept], now, told)
        if not found:
            return
        before = self.slots
        made = {key: self._made(key, forecast.start, forecast, 0) for key, forecast in found.items()}
        self.slots = {**before, **made}
        self._planned.took(made.values())
        self._let_go(before)
        for r in made.values():
            if r.start <= now:  # its turn may not have come otherwise
                self._state.table.improved |= r.rows.keys()

    # ------------------------------------------------------------------ within it

    def advance(
        self, statement: Statement, group: GroupEntry, step: NextTasks, now: float
    ) -> tuple[PlacementAttempt, str]:
        """``GangAllocator.allocate_step`` past the reservations that the group may pass.

        With a failed attempt comes the group for which the room is kept that it could have had, or "".
        """
        if self._displaced:
            self._plan_again(statement, now)
        own = self.slots.get(group.key)
        if self._unfilled and own is None:
            self._fill_up(statement, now)
            own = self.slots.get(group.key)
        planned = own is not None and own.start < UNKNOWN
        outranked = [r for r in self.slots.values() if group.rank < r.group.rank]
        if planned:  # he leaves alone what was planned beside it; nodes are emptied whatever is planned
            outranked = [r for r in outranked if r.start >= UNKNOWN]
        kept = [r for r in self.slots.values() if r is not own and r not in outranked]
        behind: list[Reservation] = []
        until = self._until(group, now)
        mark = statement.checkpoint()
        attempt = self._gang_allocator.allocate_step(statement, group, step)
        rows = {row for _, row in statement.placements(mark)} if attempt.done else ()
        if rows and not self._reserved.leaves(group, rows, kept, now, until):
            statement.rollback(mark)
            behind = self._precedence.before(group, kept, self.slots.values(), now)
            kept = [r for r in kept if r not in behind]
            with self._reserved.booked(kept, now, until, rows=self._open_rows(statement, step)):
                attempt = self._gang_allocator.allocate_step(statement, group, step)
            if not attempt.done:
                return attempt, "" if len(statement) else self._first_kept(kept, until)
        if attempt.done:
            self._overtaken = self._overtaken or any(r.binds(until) for r in outranked)
            self._displaced = any(r.binds(until) for r in behind)
            if group.key in self._startable:
                self.vacant = self._unfilled = True
            if own is not None:
                del self.slots[group.key]
                self.vacant = self._unfilled = True
                self._grown = self._grown or own.start > now or not _begun(own)
        return attempt, ""

    def _fill_up(self, statement: Statement, now: float) -> None:
        """In the place of those who have begun others have room kept for them, before anybody behind them is tried."""
        self._unfilled = False
        ranked = self._first_of(self._next_in_line())
        if any(group.key not in self.slots for group in ranked):
            self._plan(statement, ranked, now)

    @property
    def concern(self) -> bool:
        """Whether anybody has to leave room alone, or may have to before he is tried."""
        return self._unfilled or bool(self.slots or self._startable)

    def owners_in(self, pending_class: PendingClass) -> list[GroupEntry]:
        """Those of a bucket for whom room is kept, as they are to begin."""
        return [r.group for r in self.slots.values() if r.group.bucket is pending_class]

    def is_planned(self, group: GroupEntry) -> bool:
        """Whether room is kept for a group from a known moment on."""
        own = self.slots.get(group.key)
        return own is not None and own.start < UNKNOWN

    def at_once(
        self, statement: Statement, group: GroupEntry, step: NextTasks, now: float
    ) -> PlacementAttempt:
        """:meth:`advance` of one who is not the first of his bucket, if all he needs is free by now; else nothing has
        happened: of a promise that he were given nobody would take notice before it is his turn."""
        if self._displaced:
            self._plan_again(statement, now)
        before, mark = dict(self.slots), statement.checkpoint()
        attempt, _ = self.advance(statement, group, step, now)
        if attempt.done and not attempt.pipelined:
            return attempt
        statement.rollback(mark)
        self.slots = before
        return PlacementAttempt(False)

    @staticmethod
    def _open_rows(statement: Statement, step: NextTasks) -> set[int] | None:
        """Where some task of a step goes, if none may be promised what leaves: what is booked elsewhere bears on
        nothing; ``None`` for everywhere."""
        if statement.leaving:
            return None
        rows: set[int] = set()
        for cls in {batch.cls for batch in step.batches}:
            cls.refresh()
            rows.update(cls.count.nonzero()[0].tolist())
        return rows

    @staticmethod
    def _until(group: GroupEntry, now: float) -> float:
        """When the group will have ended for certain if it starts now."""
        seconds = passing_time(group) if group.timed else None
        return _FOREVER if seconds is None else now + seconds

    @contextmanager
    def kept_from(self, group: GroupEntry, now: float) -> Iterator[None]:
        """Outside the action: whatever is looked for meanwhile leaves alone what is kept from the group. What will
        have ended by then covers nothing of that: it may be whom the group has evicted. He would take the room that
        the group may not have, be evicted again, and so on without end."""
        kept = [r for r in self.slots.values() if not self._may_pass(group, r, now) and self._stands(r)]
        with self._reserved.booked(kept, now, _FOREVER, covered=False):
            yield

    def limit(self, group: GroupEntry, now: float) -> float | None:
        """Within how many seconds another must end to pass a reservation that this one may not pass."""
        starts = [
            r.start for r in self.slots.values() if r.start < UNKNOWN and not self._may_pass(group, r, now)
        ]
        return max(starts) - now if starts else None

    def offer(self, statement: Statement, group: GroupEntry, attempt: PlacementAttempt, now: float) -> None:
        """A group found no room: keep some for it, if it is its turn and its start is known; or, where it is the first
        of those who ask for the same that is seen to find none, for who goes before it in rank among them."""
        if group.bucket is None or not self._depth or attempt.pipelined or _served(group):
            return
        if attempt.rejections:
            self.roomless.pop(group.bucket, None)
            return
        self.aging.note(group, now)
        seen = group.bucket in self.roomless
        self.roomless[group.bucket] = None
        if len(self.roomless) > self._tidy_at:
            self._tidy_at = max(
                _TIDY_AT_LEAST, 2 * sum(len(pending_class.members) for pending_class in self._waiting())
            )
        if not self._state.timed or self._never_fits.beyond(group):
            return
        first = next(iter([group] if seen else self._unreserved([group.bucket], 1)), None)
        if first is None or first.key in self.slots or self._plans >= _PLANS_PER_CYCLE:
            return
        kept = [r.group for r in self.slots.values()]
        if len(kept) >= self._depth and first.rank > max(map(_rank, kept)):
            return
        alike = [group.bucket]
        if len(kept) < self._depth:
            self._plans += 1
            alike = self._waiting()
        others = [one for one in self._unreserved(alike, self._depth) if one is not first]
        ranked = sorted([*kept, first, *others], key=_rank)[: self._depth]
        if first not in ranked:
            return
        before = self.slots
        self._make(statement, ranked, now)
        if first.key not in self.slots:
            if len(ranked) <= len(kept):
                self.slots = before
            else:  # it could not be told amid what is being decided: it is asked once more when that stands
                self.vacant = True
        self._let_go(before)

    def untold_by(self, group: GroupEntry) -> list[GroupEntry]:
        """Because of whom no room is kept for a group that waits for room: nobody can tell when they end."""
        if not self._depth or group.key in self.slots or group.bucket not in self.roomless:
            return []
        return [
            one
            for one in self._state.groups.values()
            if one.active and one.group is not None and one.group.learned and not alike(one.group.runs)
        ]

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
        """Group key, start, and by node and resource what it will hold there; of nodes that are gone, too."""
        resources = self._state.table.resources.values
        return [
            (
                key,
                r.start,
                {
                    r.nodes[row]: {resources[at]: int(amounts[at]) for at in np.flatnonzero(amounts).tolist()}
                    for row, amounts in r.rows.items()
                },
            )
            for key, r in self.slots.items()
        ]

    def parts_as_records(self) -> dict[str, dict[str, tuple[TaskShare, ...]]]:
        """Group key → by node, what it will hold of cards there."""
        found = {key: {r.nodes[row]: cuts for row, cuts in r.parts.items()} for key, r in self.slots.items()}
        return {key: parts for key, parts in found.items() if parts}

    def restore(
        self,
        records: Iterable[tuple[str, float, dict[str, dict[str, int]]]],
        parts: Mapping[str, Mapping[str, tuple[TaskShare, ...]]],
    ) -> None:
        """The inverse of :meth:`as_records` and :meth:`parts_as_records`."""
        table = self._state.table
        for key, start, rows in records:
            amounts = {table.row(name): table.request_vector(request) for name, request in rows.items()}
            shares = {table.row(name): held for name, held in parts.get(key, {}).items()}
            self.slots[key] = self._reservation(key, start, amounts, shares)

    def tasks_as_records(self) -> dict[str, dict[str, dict[int, int]]]:
        """Group key → by node, the number of a class → how many of its tasks will be there."""
        found: dict[str, dict[str, dict[int, int]]] = {}
        for key, r in self.slots.items():
            for cls, rows in r.tasks.items():
                for row, n in rows.items():
                    found.setdefault(key, {}).setdefault(r.nodes[row], {})[cls.number] = n
        return found

    def restore_more(
        self,
        tasks: Mapping[str, Mapping[str, Mapping[int, int]]],
        turns: Mapping[str, int],
        classes: Mapping[int, TaskClass],
        *,
        grown: bool,
        reshaped: bool,
    ) -> None:
        """After :meth:`restore`: the inverse of :meth:`tasks_as_records`, how many turns they have had, and whether
        room has :attr:`grown` or nodes are :attr:`reshaped`."""
        table = self._state.table
        self._grown, self._shape_seen = grown, table.shape - reshaped
        for key, r in self.slots.items():
            r.turns = turns.get(key, 0)
            for name, numbers in tasks.get(key, {}).items():
                for number, n in numbers.items():
                    r.tasks.setdefault(classes[number], {})[table.row(name)] = n
        for row in {row for r in self.slots.values() for row in r.rows}:
            table.release_row(row)  # of nodes that are gone

    # ------------------------------------------------------------------ parts

    def _plan(
        self, statement: Statement, groups: Sequence[GroupEntry], now: float, broken: Collection[str] = ()
    ) -> None:
        """Have reservations made for these groups, and others look at what is kept no more."""
        before = self.slots
        self._make(statement, groups, now, broken)
        self._let_go(before)

    def _make(
        self, statement: Statement, groups: Sequence[GroupEntry], now: float, broken: Collection[str] = ()
    ) -> None:
        """Make reservations for these groups as far as their starts can be told, and for one more that has waited
        for too long. Those that come before all who have none, or whose own is ``broken``, stay as they are where
        they can."""
        self._plans += 1
        before, self.slots = self.slots, {}
        ranked = sorted(groups, key=_rank)
        forecasts: dict[str, Forecast] = {}
        first: list[str] = []
        if self._state.timed:
            first, forecasts = self._forecast(statement, ranked, now, before, broken)
        self.slots.update((key, before[key]) for key in first)
        for key, forecast in forecasts.items():
            had, later = before.get(key), forecast.start > now
            if later or (had is not None and had.turns <= _TURNS):
                turns = 0 if later or had is None else had.turns
                self.slots[key] = self._made(key, forecast.start, forecast, turns)
        self._startable = forecasts.keys() - self.slots.keys()
        if forecasts:
            self._planned.took([self.slots[key] for key in forecasts if key in self.slots])
        aged = {group.key for group in self.aging.due(now)}
        known = forecasts.keys() | self.slots.keys()
        waiting = next((one for one in ranked if one.key in aged and one.key not in known), None)
        if waiting is not None:
            self._empty(statement, waiting, before.get(waiting.key))

    def _let_go(self, before: Mapping[str, Reservation]) -> None:
        """Others may come for what was kept ``before``, and is not any more."""
        freed = {row for key, r in before.items() if not r.same(self.slots.get(key)) for row in r.rows}
        if freed:
            self._state.table.improved |= freed & set(self._state.table.rows.values())

    def _forecast(
        self,
        statement: Statement,
        ranked: Sequence[GroupEntry],
        now: float,
        before: Mapping[str, Reservation],
        broken: Collection[str],
    ) -> tuple[list[str], dict[str, Forecast]]:
        """Whose reservations stay as they were ``before``, and the starts of those behind them."""
        kept: list[Reservation] = []
        for group in ranked:
            r = before.get(group.key)
            if r is None or not r.tellable or group.key in broken:
                break
            kept.append(r)
        found = self._planned.beside(ranked, kept, now)
        if found is not None:
            return found
        told = {r.group.key: known for r in kept if (known := r.told()) is not None}
        return self._forecaster.beside(statement, ranked, now, told)

    def _empty(self, statement: Statement, group: GroupEntry, before: Reservation | None) -> None:
        """Have nodes emptied for a group; those that are being emptied for it already, if they stand."""
        if before is not None and before.start == UNKNOWN and self._stands(before):
            self.slots[group.key] = self._reservation(group.key, UNKNOWN, before.rows, before.parts)
            return
        held = self.aging.rows(statement, group)
        if held is not None:
            self.slots[group.key] = self._reservation(group.key, UNKNOWN, *held)

    def _reservation(
        self, key: str, start: float, rows: dict[int, Amounts], parts: dict[int, TaskShares]
    ) -> Reservation:
        nodes = {row: self._state.table.names[row] for row in rows}
        asked = {
            row: [(column, units) for column, units in enumerate(amounts.tolist()) if units]
            for row, amounts in rows.items()
        }
        group = self._state.groups[key]
        signature = group.bucket.signature if group.bucket is not None else ()
        return Reservation(group, start, rows, nodes, signature, parts, asked)

    def _made(self, key: str, start: float, forecast: Forecast, turns: int) -> Reservation:
        """The reservation of what was forecast."""
        made = self._reservation(key, start, by_row(forecast.placements), forecast.parts)
        made.turns = turns
        made.tasks = tasks_by_row(forecast)
        return made

    def _stands(self, reservation: Reservation) -> bool:
        """Whether its nodes are there and take its tasks, but for amounts, and the group asks for the same as when it
        was made."""
        rows, nodes = self._state.table.rows, self._state.table.nodes
        there = reservation.asks() and all(
            rows.get(name) == row and nodes[row] is not None for row, name in reservation.nodes.items()
        )
        return there and reservation.open()

    def _may_pass(self, group: GroupEntry, reservation: Reservation, now: float) -> bool:
        """Whether nothing is kept there from the group: it goes before, or will have ended."""
        mine = reservation.group is group or group.rank < reservation.group.rank
        if mine or not reservation.binds(self._until(group, now)):
            return True
        return bool(self._precedence.before(group, [reservation], self.slots.values(), now))

    @staticmethod
    def _first_kept(kept: Sequence[Reservation], until: float) -> str:
        return next(r.group.key for r in kept if r.binds(until))


def _served(group: GroupEntry) -> bool:
    """Whether the group has been promised all that it waits for, by those who make others go."""
    return group.promises > 0 and group.step is not None and is_nominated(group, group.step)


def _is_tellable(reservation: Reservation) -> bool:
    return reservation.tellable


def _begun(reservation: Reservation) -> bool:
    """Whether its group has begun, and is where it was to be."""
    there: dict[TaskClass, dict[int, int]] = {}
    for entry in reservation.group.tasks.values():
        rows = there.setdefault(entry.cls, {})
        rows[entry.row] = rows.get(entry.row, 0) + 1
    return there == reservation.tasks

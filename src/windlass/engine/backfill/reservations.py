"""Backfill: reservations for groups with a known start, and the groups that may pass them.

The first group in rank (priority, then age) that finds no capacity gets a
*reservation*, if the run times of other groups tell its start
(:mod:`windlass.engine.backfill.forecast`). On its planned nodes, the part of its
capacity that no release covers in time is reserved. A later group may use reserved
capacity only if it ends before the reservation starts, by its own estimate. With
``easy`` one group has a reservation (EASY backfilling: Lifka, "The ANL/IBM SP
Scheduling System", JSSPP 1995), with ``conservative`` up to :data:`DEPTH`. Without run
times there is no reservation and every group passes, until a group has waited so long
that nodes are emptied for it (:mod:`windlass.engine.backfill.aging`).

A group is first placed as if nothing were reserved. If this uses reserved capacity, it
is placed again with that capacity booked as nominated
(:mod:`windlass.engine.backfill.reserved_capacity`). For a group that may not pass,
actions that evict leave all of it alone. Capacity stays reserved after the start until
the group has been tried; otherwise a queue that comes earlier would take it.

If capacity is free sooner than planned, several reservations move forward, one after
the other, and none is delayed (:meth:`Reservations._move_forward`).
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
"""Number of cycles in which a due group is tried (woken in one, tried in the next)."""
_TIDY_AT_LEAST = 4096
_FOREVER = float("inf")
_rank = attrgetter("rank")
_rank_of = attrgetter("group.rank")


class Reservations:
    """Reservations of one engine."""

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
        """Mark up to which changes of nodes have been processed."""
        self._tidy_at = _TIDY_AT_LEAST
        self.vacant = False
        """True if a reservation has gone and no successor has been looked for."""
        self._unfilled = False
        """True if a reserved group started in this cycle and no successor was looked for.

        A group that was to get one counts as well.
        """
        self._startable: set[str] = set()
        """Groups that got no reservation in the last plan because they can start now."""
        self._grown = False
        """True if reserved capacity is unused, or not used yet, so that others may start sooner."""
        self._shape_seen = -1
        """State of the nodes in the last plan."""
        self._turned: list[Reservation] = []
        """Due reservations that are tried first in this cycle."""
        self._overtaken = False
        """True if a group has started that does not have to respect all reservations."""
        self._displaced = False
        """True if such a group took precedence by its share, so that others may need other nodes."""
        self.roomless: dict[PendingClass, None] = {}
        """Pending classes that wait for capacity only; the first of their groups have reservations."""
        self.slots: dict[str, Reservation] = {}

    # ------------------------------------------------------------------ start and end of the action

    def open(
        self, statement: Statement, now: float, touched: Iterable[GroupEntry] = (), *, served: bool = True
    ) -> None:
        """Synchronise the reservations with the cluster state, unless no group is ``served``.

        ``touched``: groups that may be new since the last time.
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
        if broken or others or reshaped:  # capacity may have been planned on nodes that are gone or unhealthy
            ranked = self._first_of(others)
            if broken or reshaped or any(group.key not in self.slots for group in ranked):
                self._plan(statement, ranked, now, broken)
        if grown or self._grown:
            self._move_forward(statement, now)

    def _first_of(self, others: Sequence[GroupEntry]) -> list[GroupEntry]:
        """Return the reserved groups and these others by rank, as many as may have a reservation."""
        return sorted([*[r.group for r in self.slots.values()], *others], key=_rank)[: self._depth]

    def _looked_at(self, now: float) -> tuple[list[Reservation], set[str], list[Reservation]]:
        """Return the reservations that ended, the keys of broken ones, and those that are due.

        A reservation ends if its group does not wait any more, or waits for nominated
        capacity. It is broken if its nodes are gone or closed, or if the request of the
        group has changed.
        """
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
        """Remove these reservations. Other groups may then use their capacity."""
        for r in reservations:
            del self.slots[r.group.key]
            self.vacant = self._grown = True
            self._state.table.improved |= r.rows.keys() & set(self._state.table.rows.values())

    def _come_due(
        self, statement: Statement, due: Sequence[Reservation], now: float, *, served: bool
    ) -> set[str]:
        """Keep the capacity of due groups until they were tried.

        Return the keys of the groups without free capacity. They have to be planned
        again.
        """
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
        """Return the keys of the groups that the placement code can place now, some on other nodes."""
        told = {r.group.key: known for r in due if (known := r.told()) is not None}
        kept = [r for r in self.slots.values() if r.start > now]
        with self._reserved.booked(kept if len(told) < len(due) else (), now, _FOREVER):
            first, found = self._forecaster.at_once(statement, [r.group for r in due], now, told)
        for key, forecast in found.items():
            self.slots[key] = self._made(key, now, forecast, self.slots[key].turns)
        return {*first, *found}

    def _others(self, touched: Iterable[GroupEntry], now: float) -> list[GroupEntry]:
        """Return the groups without a reservation that may need one."""
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
        """Return whether nothing is reserved for a group and not everything is nominated to it."""
        return group.key not in self.slots and not _served(group)

    def _waiting(self) -> list[PendingClass]:
        """Return the pending classes that wait for capacity, as far as known."""
        self.roomless = {pending_class: None for pending_class in self.roomless if pending_class.members}
        return [pending_class for pending_class in self.roomless if not self._is_beyond(pending_class)]

    def _is_beyond(self, pending_class: PendingClass) -> bool:
        """Return whether no group of the pending class, all with equal requests, can ever run."""
        return self._never_fits.beyond(next(iter(pending_class.members.values())))

    def _unreserved(self, pending_classes: Iterable[PendingClass], most: int) -> list[GroupEntry]:
        """Return the first groups in rank of these classes without a reservation, at most ``most``."""
        found: list[GroupEntry] = []
        for pending_class in pending_classes:
            ranked = (pending_class.members[key] for key in pending_class.by_rank())
            found += islice(filter(self._lacks_one, ranked), most)
        found.sort(key=_rank)
        return found[:most]

    def _next_in_line(self) -> list[GroupEntry]:
        """Return the groups without a reservation that may be among the first of all waiting groups."""
        waiting = self._waiting()
        if len(self.slots) >= self._depth - 1:  # the usual case: one has gone
            found = self._unreserved(waiting, 1)
            if not found or all(r.group.rank < found[0].rank for r in self.slots.values()):
                return found
        return self._unreserved(waiting, self._depth)

    def close(self, statement: Statement, now: float) -> None:
        """Finish the action and schedule the next tries.

        Due groups that have not started are tried in the next cycle, and so are the
        groups that wait for their capacity. If capacity of reservations may have been
        taken, they are planned again.
        """
        if self._turned:
            self._follow(statement, now)
        if self._overtaken or self._displaced:
            self._plan_again(statement, now)
        if self._grown:
            self._move_forward(statement, now)

    def _plan_again(self, statement: Statement, now: float) -> None:
        """Plan all reservations again after other groups took their nodes."""
        self._overtaken = self._displaced = False
        self._plan(statement, [r.group for r in self.slots.values()], now)

    def _follow(self, statement: Statement, now: float) -> None:
        """Request another cycle for due groups that have not started, and for those behind them.

        If all started as planned, their capacity is used as before and no cycle is
        needed. Their successors are planned at once, unless this moves other
        reservations.
        """
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
        """Return whether the nodes differ from those of the last plan."""
        return self._shape_seen != self._state.table.shape

    @property
    def grown(self) -> bool:
        """Return whether capacity is free sooner than planned, other than by releases since then."""
        return self._grown or self.reshaped

    @property
    def unreserved(self) -> bool:
        """Return whether a group without a reservation may get one now.

        This is the case if a reservation has gone. It is also the case if nodes
        changed, since an unknown start may be known now.
        """
        return self.vacant or (self.reshaped and bool(self.slots or self.aging.since))

    def look_again(self) -> bool:
        """Search for groups to reserve in the next cycle, after some can run that never could.

        Return whether any may wait.
        """
        self.vacant = self.vacant or bool(self.slots or self.aging.since)
        return self.vacant

    def _has_grown(self, now: float) -> bool:
        """Return whether capacity may be free sooner than planned. Call it once per cycle.

        This is the case if a task ended at another time than expected, or if nodes
        changed.
        """
        ends = self._state.ledger.ends
        left, ends.left = ends.left, None
        grown = self.grown or (left is not None and left != (now, now))
        self._shape_seen = self._state.table.shape
        return grown

    def _move_forward(self, statement: Statement, now: float) -> None:
        """Start reserved groups sooner where possible, one after the other in their order.

        None of them starts later (schedule compression: Mu'alem and Feitelson, IEEE
        TPDS 12(6), 2001).
        """
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
            if r.start <= now:  # it might not be tried otherwise
                self._state.table.improved |= r.rows.keys()

    # ------------------------------------------------------------------ during the action

    def advance(
        self, statement: Statement, group: GroupEntry, step: NextTasks, now: float
    ) -> tuple[PlacementAttempt, str]:
        """Run ``GangAllocator.allocate_step`` past the reservations that the group may pass.

        With a failed attempt comes the group that holds the reserved capacity it could
        have used, or "".
        """
        if self._displaced:
            self._plan_again(statement, now)
        own = self.slots.get(group.key)
        if self._unfilled and own is None:
            self._fill_up(statement, now)
            own = self.slots.get(group.key)
        planned = own is not None and own.start < UNKNOWN
        outranked = [r for r in self.slots.values() if group.rank < r.group.rank]
        if planned:  # planned together with those behind it, unless they wait for emptied nodes
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
        """Reserve for the successors of started groups, before any group behind them is tried."""
        self._unfilled = False
        ranked = self._first_of(self._next_in_line())
        if any(group.key not in self.slots for group in ranked):
            self._plan(statement, ranked, now)

    @property
    def concern(self) -> bool:
        """Return whether reserved capacity affects, or may affect, the placement of other groups."""
        return self._unfilled or bool(self.slots or self._startable)

    def owners_in(self, pending_class: PendingClass) -> list[GroupEntry]:
        """Return the groups of a pending class with a reservation."""
        return [r.group for r in self.slots.values() if r.group.bucket is pending_class]

    def is_planned(self, group: GroupEntry) -> bool:
        """Return whether capacity is reserved for the group from a known start on."""
        own = self.slots.get(group.key)
        return own is not None and own.start < UNKNOWN

    def at_once(
        self, statement: Statement, group: GroupEntry, step: NextTasks, now: float
    ) -> PlacementAttempt:
        """Place a group behind the head of its pending class, if all its capacity is free now.

        Otherwise leave the statement unchanged: a nomination would have no effect
        before the group reaches the head.
        """
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
        """Return the rows that take a task of the step; ``None`` for all.

        Bookings on other rows have no effect, unless the step may be nominated to
        capacity that is being released.
        """
        if statement.leaving:
            return None
        rows: set[int] = set()
        for cls in {batch.cls for batch in step.batches}:
            cls.refresh()
            rows.update(cls.count.nonzero()[0].tolist())
        return rows

    @staticmethod
    def _until(group: GroupEntry, now: float) -> float:
        """Return the latest end of the group if it starts now."""
        seconds = passing_time(group) if group.timed else None
        return _FOREVER if seconds is None else now + seconds

    @contextmanager
    def kept_from(self, group: GroupEntry, now: float) -> Iterator[None]:
        """Book everything reserved against the group, for searches outside the action.

        Future releases do not cover it: they may be victims of this very group. Such a
        victim would take the capacity that the group may not have, be evicted again,
        and so on without end.
        """
        kept = [r for r in self.slots.values() if not self._may_pass(group, r, now) and self._stands(r)]
        with self._reserved.booked(kept, now, _FOREVER, covered=False):
            yield

    def limit(self, group: GroupEntry, now: float) -> float | None:
        """Return the run time (seconds) below which a group passes what this group may not pass."""
        starts = [
            r.start for r in self.slots.values() if r.start < UNKNOWN and not self._may_pass(group, r, now)
        ]
        return max(starts) - now if starts else None

    def offer(self, statement: Statement, group: GroupEntry, attempt: PlacementAttempt, now: float) -> None:
        """Reserve capacity for a group that found none, if it is in rank and its start is known.

        If the group is the first of its pending class to find none, the first in rank
        of that class is considered instead.
        """
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
            else:  # it could not be predicted during this decision: try again when the decision is final
                self.vacant = True
        self._let_go(before)

    def untold_by(self, group: GroupEntry) -> list[GroupEntry]:
        """Return the groups with an unknown end that prevents a reservation for this group."""
        if not self._depth or group.key in self.slots or group.bucket not in self.roomless:
            return []
        return [
            one
            for one in self._state.groups.values()
            if one.active and one.group is not None and one.group.learned and not alike(one.group.runs)
        ]

    def next_change(self, now: float) -> float | None:
        """Return the next time at which a reservation starts or a group has waited too long."""
        if not self.slots and not self.aging.since:
            return None
        moments = [r.start for r in self.slots.values() if now < r.start < UNKNOWN]
        due = self.aging.next_due(now)
        if due is not None:
            moments.append(due)
        return min(moments, default=None)

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self) -> list[tuple[str, float, dict[str, dict[str, int]]]]:
        """Return group key, start, and resources by node; nodes that are gone are included."""
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
        """Return group key → node → device shares that it will hold there."""
        found = {key: {r.nodes[row]: cuts for row, cuts in r.parts.items()} for key, r in self.slots.items()}
        return {key: parts for key, parts in found.items() if parts}

    def restore(
        self,
        records: Iterable[tuple[str, float, dict[str, dict[str, int]]]],
        parts: Mapping[str, Mapping[str, tuple[TaskShare, ...]]],
    ) -> None:
        """Restore the result of :meth:`as_records` and :meth:`device_shares_as_records`."""
        table = self._state.table
        for key, start, rows in records:
            amounts = {table.row(name): table.request_vector(request) for name, request in rows.items()}
            shares = {table.row(name): held for name, held in parts.get(key, {}).items()}
            self.slots[key] = self._reservation(key, start, amounts, shares)

    def tasks_as_records(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return group key → node → number of a class → number of its tasks there."""
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
        """Restore the result of :meth:`tasks_as_records` and the flags.

        Call it after :meth:`restore`.

        ``turns``: group key → number of cycles since its start was reached.
        """
        table = self._state.table
        self._grown, self._shape_seen = grown, table.shape - reshaped
        for key, r in self.slots.items():
            r.turns = turns.get(key, 0)
            for name, numbers in tasks.get(key, {}).items():
                for number, n in numbers.items():
                    r.tasks.setdefault(classes[number], {})[table.row(name)] = n
        for row in {row for r in self.slots.values() for row in r.rows}:
            table.release_row(row)  # of nodes that are gone

    # ------------------------------------------------------------------ planning

    def _plan(
        self, statement: Statement, groups: Sequence[GroupEntry], now: float, broken: Collection[str] = ()
    ) -> None:
        """Make reservations for these groups. Other groups may use what is not reserved any more."""
        before = self.slots
        self._make(statement, groups, now, broken)
        self._let_go(before)

    def _make(
        self, statement: Statement, groups: Sequence[GroupEntry], now: float, broken: Collection[str] = ()
    ) -> None:
        """Make reservations for these groups as far as their starts are known.

        One more group that waited too long gets emptied nodes. Reservations at the
        front that are not ``broken`` stay as they are where possible.
        """
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
        """Mark the rows with capacity that was reserved ``before`` and is not any more."""
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
        """Return the keys with unchanged reservations, and the forecasts of the groups behind."""
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
        """Empty nodes for a group. Nodes that are being emptied for it already are kept if valid."""
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
        """Return the reservation for a forecast."""
        made = self._reservation(key, start, by_row(forecast.placements), forecast.parts)
        made.turns = turns
        made.tasks = tasks_by_row(forecast)
        return made

    def _stands(self, reservation: Reservation) -> bool:
        """Return whether nodes and request are still those of the reservation, resources ignored."""
        rows, nodes = self._state.table.rows, self._state.table.nodes
        there = reservation.asks() and all(
            rows.get(name) == row and nodes[row] is not None for row, name in reservation.nodes.items()
        )
        return there and reservation.open()

    def _may_pass(self, group: GroupEntry, reservation: Reservation, now: float) -> bool:
        """Return whether the reservation does not bind the group: it precedes it or ends in time."""
        mine = reservation.group is group or group.rank < reservation.group.rank
        if mine or not reservation.binds(self._until(group, now)):
            return True
        return bool(self._precedence.before(group, [reservation], self.slots.values(), now))

    @staticmethod
    def _first_kept(kept: Sequence[Reservation], until: float) -> str:
        return next(r.group.key for r in kept if r.binds(until))


def _served(group: GroupEntry) -> bool:
    """Return whether evictions have nominated everything that the group waits for."""
    return group.promises > 0 and group.step is not None and is_nominated(group, group.step)


def _is_tellable(reservation: Reservation) -> bool:
    return reservation.tellable


def _begun(reservation: Reservation) -> bool:
    """Return whether the group of the reservation has started exactly as planned."""
    there: dict[TaskClass, dict[int, int]] = {}
    for entry in reservation.group.tasks.values():
        rows = there.setdefault(entry.cls, {})
        rows[entry.row] = rows.get(entry.row, 0) + 1
    return there == reservation.tasks

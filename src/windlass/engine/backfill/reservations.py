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

from windlass.engine.backfill.aging import Aging, resources_by_row
from windlass.engine.backfill.early_starts import EarlyStarts
from windlass.engine.backfill.forecast import Forecast, Forecaster, tasks_by_row
from windlass.engine.backfill.planned_capacity import PlannedCapacity
from windlass.engine.backfill.reclaim_precedence import ReclaimPrecedence
from windlass.engine.backfill.reservation import (
    UNKNOWN,
    Reservation,
    Resources,
    is_predictable,
    started_as_planned,
    waits_for_nominated,
)
from windlass.engine.backfill.reserved_capacity import ReservedCapacity
from windlass.engine.devices.share_table import TaskShare, TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, NextTasks
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.groups.run_times import latest_end, runs_are_alike
from windlass.engine.placement.gang_allocator import GangAllocator, PlacementAttempt
from windlass.engine.queueing.never_fits import NeverFits
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement

DEPTH = 16
DEPTHS = {"strict": 0, "none": 0, "easy": 1, "conservative": DEPTH}
_PLANS_PER_CYCLE = DEPTH + 4
_MAX_DUE_CYCLES = 2
"""Number of cycles in which a due group is tried (woken in one, tried in the next)."""
_MIN_PRUNE_SIZE = 4096
_FOREVER = float("inf")
_rank = attrgetter("rank")
_rank_of = attrgetter("group.rank")


class Reservations:
    """Reservations of one engine."""

    def __init__(self, state: ClusterState, gang_allocator: GangAllocator) -> None:
        self._state = state
        self._gang_allocator = gang_allocator
        self.early = EarlyStarts(state, gang_allocator)
        """Reservations of groups with an earliest start. They are not counted among the others."""
        self._forecaster = Forecaster(state, gang_allocator, self.early.windows)
        self._planned = PlannedCapacity(state, gang_allocator)
        self._never_fits = NeverFits(state.table)
        self.aging = Aging(state, gang_allocator, self._never_fits)
        self._depth = DEPTHS[state.config.backfill]
        self._reserved = ReservedCapacity(state.table)
        self._precedence = ReclaimPrecedence(state)
        self.in_use = True
        """False if nothing is reserved, no group has failed, and no earlier cycle left work.

        Then the action ``allocate`` calls nothing here, unless tasks or nodes have changed.
        """
        self._plans = 0
        self._nodes_mark = -1
        """Mark up to which changes of nodes have been processed."""
        self._prune_at = _MIN_PRUNE_SIZE
        self.vacant = False
        """True if a reservation has gone and no successor has been looked for."""
        self._unfilled = False
        """True if a reserved group started in this cycle and no successor was looked for.

        A group that was to get one counts as well.
        """
        self._startable: set[str] = set()
        """Groups that got no reservation in the last plan because they can start now."""
        self._capacity_gained = False
        """True if reserved capacity is unused, or not used yet, so that others may start sooner."""
        self.planned_shape = -1
        """State of the nodes in the last plan."""
        self._first_due: list[Reservation] = []
        """Due reservations that are tried first in this cycle."""
        self._overtaken = False
        """True if a group has started that does not have to respect all reservations."""
        self._share_precedence_used = False
        """True if such a group took precedence by its share, so that others may need other nodes."""
        self.without_capacity: dict[PendingClass, None] = {}
        """Pending classes that wait for capacity only; the first of their groups have reservations."""
        self.by_group: dict[str, Reservation] = {}

    # ------------------------------------------------------------------ start and end of the action

    def start_action(
        self, statement: Statement, now: float, touched: Iterable[GroupEntry] = (), *, served: bool = True
    ) -> None:
        """Synchronise the reservations with the cluster state, unless no group is ``served``.

        ``touched``: groups that may be new since the last time.
        """
        self._plans = 0
        self._first_due, self._unfilled, self._startable = [], False, set()
        nodes_changed, vacant = self.nodes_changed, self.may_lack_reservations
        gained = self._check_gained(now)
        if self._depth and (self._state.early or self.early.by_group):
            self.early.plan(statement, now, self.by_group.values())
        if not self.by_group and not self.aging.since:
            self.in_use = (
                self.vacant or self._capacity_gained or self._overtaken or self._share_precedence_used
            ) or bool(self._state.early)
            return
        self.vacant = vacant
        ended, broken, due = self._review(now)
        if ended:
            self._drop(ended)
        if due:
            for r in due:
                r.due_cycles += served
            broken |= self._handle_due(statement, due, now, served=served)
        candidates = self._candidates(touched, now)
        # After a change of nodes, capacity may be planned on nodes that are gone or unhealthy.
        if broken or candidates or nodes_changed:
            ranked = self._first_of(candidates)
            if broken or nodes_changed or any(group.key not in self.by_group for group in ranked):
                self._plan(statement, ranked, now, broken)
        if gained or self._capacity_gained:
            self._move_forward(statement, now)

    def _first_of(self, others: Sequence[GroupEntry]) -> list[GroupEntry]:
        """Return the reserved groups and these others by rank, as many as may have a reservation."""
        return sorted([*[r.group for r in self.by_group.values()], *others], key=_rank)[: self._depth]

    def _review(self, now: float) -> tuple[list[Reservation], set[str], list[Reservation]]:
        """Return the reservations that ended, the keys of broken ones, and those that are due.

        A reservation ends if its group does not wait any more, or waits for nominated
        capacity. It is broken if its nodes are gone or closed, or if the request of the
        group has changed.
        """
        ended: list[Reservation] = []
        broken: set[str] = set()
        due: list[Reservation] = []
        groups, mark = self._state.groups, self._state.table.static_log.mark
        same_nodes, self._nodes_mark = mark == self._nodes_mark, mark
        for key, r in self.by_group.items():
            group = r.group
            if (
                group.pending_class is None
                or group.group is None
                or groups.get(key) is not group
                or waits_for_nominated(group)
            ):
                ended.append(r)
            elif not (r.is_current() if same_nodes else self._is_valid(r)):
                broken.add(key)
            elif r.start <= now:
                due.append(r)
        return ended, broken, due

    def _drop(self, reservations: Iterable[Reservation]) -> None:
        """Remove these reservations. Other groups may then use their capacity."""
        for r in reservations:
            del self.by_group[r.group.key]
            self.vacant = self._capacity_gained = True
            self._state.table.improved |= r.rows.keys() & set(self._state.table.rows.values())

    def _handle_due(
        self, statement: Statement, due: Sequence[Reservation], now: float, *, served: bool
    ) -> set[str]:
        """Keep the capacity of due groups until they were tried.

        Return the keys of the groups without free capacity. They have to be planned
        again.
        """
        due = sorted(due, key=_rank_of)
        late: set[str] = set()
        if not self._planned.is_available(due):
            available = self._available_now(statement, due, now)
            late = {r.group.key for r in due} - available
            due = [r for r in self.by_group.values() if r.start <= now and r.group.key in available]
        self._first_due = [r for r in due if r.due_cycles == 1] if served else []
        self._drop([r for r in due if r.due_cycles > _MAX_DUE_CYCLES])
        return late

    def _available_now(self, statement: Statement, due: Sequence[Reservation], now: float) -> set[str]:
        """Return the keys of the groups that the placement code can place now, some on other nodes."""
        reserved_counts = {r.group.key: known for r in due if (known := r.reserved_counts()) is not None}
        reservations = [r for r in self.by_group.values() if r.start > now]
        with self._reserved.booked(reservations if len(reserved_counts) < len(due) else (), now, _FOREVER):
            first, result = self._forecaster.available_now(
                statement, [r.group for r in due], now, reserved_counts
            )
        for key, forecast in result.items():
            self.by_group[key] = self._from_forecast(key, now, forecast, self.by_group[key].due_cycles)
        return {*first, *result}

    def _candidates(self, touched: Iterable[GroupEntry], now: float) -> list[GroupEntry]:
        """Return the groups without a reservation that may need one."""
        by_group = self.by_group
        if self.vacant:
            self.vacant = False
            return self._next_candidates()
        candidates = [group for group in self.aging.due(now) if self._has_none(group)]
        if candidates and any(r.start >= UNKNOWN for r in by_group.values()):
            candidates = []
        if self._depth > 1 or by_group:
            new = [
                group
                for group in touched
                if group.pending_class in self.without_capacity and self._has_none(group)
            ]
            new = [group for group in new if not self._never_fits.never_runs(group)]
            if new and len(by_group) >= self._depth:
                worst_rank = max(r.group.rank for r in by_group.values())
                new = [group for group in new if group.rank < worst_rank]
            candidates += [group for group in new if group not in candidates]
        return candidates

    def _has_none(self, group: GroupEntry) -> bool:
        """Return whether nothing is reserved for a group and not everything is nominated to it."""
        reserved = group.key in self.by_group or group.key in self.early.by_group
        return not reserved and not waits_for_nominated(group)

    def _waiting_classes(self) -> list[PendingClass]:
        """Return the pending classes that wait for capacity, as far as known."""
        self.without_capacity = {
            pending_class: None for pending_class in self.without_capacity if pending_class.members
        }
        return [
            pending_class
            for pending_class in self.without_capacity
            if not self._never_fits_class(pending_class)
        ]

    def _never_fits_class(self, pending_class: PendingClass) -> bool:
        """Return whether no group of the pending class, all with equal requests, can ever run."""
        return self._never_fits.never_runs(next(iter(pending_class.members.values())))

    def _first_unreserved(self, pending_classes: Iterable[PendingClass], maximum: int) -> list[GroupEntry]:
        """Return the first groups in rank of these classes without a reservation, at most ``maximum``."""
        result: list[GroupEntry] = []
        for pending_class in pending_classes:
            ranked = (pending_class.members[key] for key in pending_class.by_rank())
            result += islice(filter(self._has_none, ranked), maximum)
        result.sort(key=_rank)
        return result[:maximum]

    def _next_candidates(self) -> list[GroupEntry]:
        """Return the groups without a reservation that may be among the first of all waiting groups."""
        aged_group = self._waiting_classes()
        if len(self.by_group) >= self._depth - 1:  # the usual case: one has gone
            result = self._first_unreserved(aged_group, 1)
            if not result or all(r.group.rank < result[0].rank for r in self.by_group.values()):
                return result
        return self._first_unreserved(aged_group, self._depth)

    def finish_action(self, statement: Statement, now: float) -> None:
        """Finish the action and schedule the next tries.

        Due groups that have not started are tried in the next cycle, and so are the
        groups that wait for their capacity. If capacity of reservations may have been
        taken, they are planned again.
        """
        if self._first_due:
            self._request_next_cycle(statement, now)
        if self._overtaken or self._share_precedence_used:
            self._replan(statement, now)
        if self._capacity_gained:
            self._move_forward(statement, now)

    def _replan(self, statement: Statement, now: float) -> None:
        """Plan all reservations again after other groups took their nodes."""
        self._overtaken = self._share_precedence_used = False
        self._plan(statement, [r.group for r in self.by_group.values()], now)

    def _request_next_cycle(self, statement: Statement, now: float) -> None:
        """Request another cycle for due groups that have not started, and for those behind them.

        If all started as planned, their capacity is used as before and no cycle is
        needed. Their successors are planned at once, unless this moves other
        reservations.
        """
        before, improved = self.by_group, self._state.table.improved
        needs_cycle = bool(improved) or any(r.start <= now for r in before.values())
        needs_cycle = needs_cycle or not all(map(started_as_planned, self._first_due))
        if self.vacant and not needs_cycle:
            self.vacant = False
            self._replace_started(statement, now)
            needs_cycle = any(self.by_group.get(key) is not r for key, r in before.items())
        if needs_cycle:
            for r in self._first_due:
                self._state.table.improved |= r.rows.keys()

    # ------------------------------------------------------------------ moving forward

    @property
    def nodes_changed(self) -> bool:
        """Return whether the nodes differ from those of the last plan."""
        return self.planned_shape != self._state.table.shape

    @property
    def capacity_gained(self) -> bool:
        """Return whether capacity is free sooner than planned, other than by releases since then."""
        return self._capacity_gained or self.nodes_changed

    @property
    def may_lack_reservations(self) -> bool:
        """Return whether a group without a reservation may get one now.

        This is the case if a reservation has gone. It is also the case if nodes
        changed, since an unknown start may be known now.
        """
        return self.vacant or (self.nodes_changed and bool(self.by_group or self.aging.since))

    def search_again(self) -> bool:
        """Search for groups to reserve in the next cycle, after some can run that never could.

        Return whether any may wait.
        """
        self.vacant = self.vacant or bool(self.by_group or self.aging.since)
        return self.vacant

    def _check_gained(self, now: float) -> bool:
        """Return whether capacity may be free sooner than planned. Call it once per cycle.

        This is the case if a task ended at another time than expected, or if nodes
        changed.
        """
        ends = self._state.ledger.expected_ends
        left, ends.left = ends.left, None
        gained = self.capacity_gained or (left is not None and left != (now, now))
        self.planned_shape = self._state.table.shape
        return gained

    def _move_forward(self, statement: Statement, now: float) -> None:
        """Start reserved groups sooner where possible, one after the other in their order.

        None of them starts later (schedule compression: Mu'alem and Feitelson, IEEE
        TPDS 12(6), 2001).
        """
        self._capacity_gained = False
        if self._depth < 2 or self.early.by_group:
            return
        reservations = list(takewhile(is_predictable, sorted(self.by_group.values(), key=_rank_of)))
        if not reservations or reservations[-1].start <= now:
            return
        result = self._planned.move_forward(reservations, now)
        if result is None:
            reserved_counts = {
                r.group.key: known for r in reservations if (known := r.reserved_counts()) is not None
            }
            result = self._forecaster.move_forward(
                statement, [r.group for r in reservations], now, reserved_counts
            )
        if not result:
            return
        before = self.by_group
        made = {
            key: self._from_forecast(key, forecast.start, forecast, 0) for key, forecast in result.items()
        }
        self.by_group = {**before, **made}
        self._planned.adopt(made.values())
        self._mark_released_rows(before)
        for r in made.values():
            if r.start <= now:  # it might not be tried otherwise
                self._state.table.improved |= r.rows.keys()

    # ------------------------------------------------------------------ during the action

    def allocate_group(
        self, statement: Statement, group: GroupEntry, step: NextTasks, now: float
    ) -> tuple[PlacementAttempt, str]:
        """Run ``GangAllocator.allocate_group`` past the reservations that the group may pass.

        With a failed attempt comes the group that holds the reserved capacity it could
        have used, or "".
        """
        if self._share_precedence_used:
            self._replan(statement, now)
        if group.key in self.early.by_group:  # the others are planned next to it: it rarely has to move any
            mark = statement.checkpoint()
            attempt, _ = self._allocate_next_to(statement, group, step, now, [])
            if attempt.done:
                return attempt, ""
            statement.rollback(mark)
        outranked = [r for r in self._all() if group.rank < r.group.rank]
        return self._allocate_next_to(statement, group, step, now, outranked)

    def _allocate_next_to(
        self,
        statement: Statement,
        group: GroupEntry,
        step: NextTasks,
        now: float,
        outranked: list[Reservation],
    ) -> tuple[PlacementAttempt, str]:
        """Place a group next to all reservations but its own and the ``outranked`` ones."""
        own = self.by_group.get(group.key)
        if self._unfilled and own is None:
            self._replace_started(statement, now)
            own = self.by_group.get(group.key)
        planned = own is not None and own.start < UNKNOWN
        if planned:  # planned together with those behind it, unless they wait for emptied nodes
            outranked = [r for r in outranked if r.start >= UNKNOWN or r.is_early]
        skipped = {id(r) for r in outranked}
        reservations = [r for r in self._all() if r.group is not group and id(r) not in skipped]
        behind: list[Reservation] = []
        until = latest_end(group, now)
        mark = statement.checkpoint()
        attempt = self._gang_allocator.allocate_group(statement, group, step)
        rows = {row for _, row in statement.placements(mark)} if attempt.done else ()
        if rows and not self._reserved.is_respected(group, rows, reservations, now, until):
            statement.rollback(mark)
            behind = self._precedence.passable(group, reservations, self._all(), now)
            reservations = [r for r in reservations if r not in behind]
            with self._reserved.booked(reservations, now, until, rows=self._usable_rows(statement, step)):
                attempt = self._gang_allocator.allocate_group(statement, group, step)
            if not attempt.done:
                return attempt, "" if len(statement) else self._first_binding(reservations, until)
        if attempt.done:
            self._overtaken = self._overtaken or any(r.affects(until) for r in outranked)
            self._share_precedence_used = any(r.affects(until) for r in behind)
            if group.key in self._startable:
                self.vacant = self._unfilled = True
            self.early.drop(group.key)
            if own is not None:
                del self.by_group[group.key]
                self.vacant = self._unfilled = True
                self._capacity_gained = (
                    self._capacity_gained or own.start > now or not started_as_planned(own)
                )
        return attempt, ""

    def _replace_started(self, statement: Statement, now: float) -> None:
        """Reserve for the successors of started groups, before any group behind them is tried."""
        self._unfilled = False
        ranked = self._first_of(self._next_candidates())
        if any(group.key not in self.by_group for group in ranked):
            self._plan(statement, ranked, now)

    @property
    def affects_placement(self) -> bool:
        """Return whether reserved capacity affects, or may affect, the placement of other groups."""
        return self._unfilled or bool(self.by_group or self._startable or self.early.by_group)

    def _all(self) -> list[Reservation]:
        """Return all reservations, of groups with an earliest start as well."""
        return [*self.by_group.values(), *self.early.by_group.values()]

    def planned_groups_in(self, pending_class: PendingClass) -> list[GroupEntry]:
        """Return the groups of a pending class with a reservation."""
        return [r.group for r in self.by_group.values() if r.group.pending_class is pending_class]

    def is_planned(self, group: GroupEntry) -> bool:
        """Return whether capacity is reserved for the group from a known start on."""
        own = self.by_group.get(group.key)
        return own is not None and own.start < UNKNOWN

    def allocate_now(
        self, statement: Statement, group: GroupEntry, step: NextTasks, now: float
    ) -> PlacementAttempt:
        """Place a group behind the head of its pending class, if all its capacity is free now.

        Otherwise leave the statement unchanged: a nomination would have no effect
        before the group reaches the head.
        """
        if self._share_precedence_used:
            self._replan(statement, now)
        before, mark = dict(self.by_group), statement.checkpoint()
        early = dict(self.early.by_group)
        attempt, _ = self.allocate_group(statement, group, step, now)
        if attempt.done and not attempt.pipelined:
            return attempt
        statement.rollback(mark)
        self.by_group, self.early.by_group = before, early
        return PlacementAttempt(False)

    @staticmethod
    def _usable_rows(statement: Statement, step: NextTasks) -> set[int] | None:
        """Return the rows that take a task of the step; ``None`` for all.

        Bookings on other rows have no effect, unless the step may be nominated to
        capacity that is being released.
        """
        if statement.terminating:
            return None
        rows: set[int] = set()
        for cls in {batch.cls for batch in step.batches}:
            cls.refresh()
            rows.update(cls.count.nonzero()[0].tolist())
        return rows

    @contextmanager
    def reserved_from(self, group: GroupEntry, now: float) -> Iterator[None]:
        """Book everything reserved against the group, for searches outside the action.

        Future releases do not cover it: they may be victims of this very group. Such a
        victim would take the capacity that the group may not have, be evicted again,
        and so on without end.
        """
        reservations = [r for r in self._all() if not self._passes(group, r, now) and self._is_valid(r)]
        with self._reserved.booked(reservations, now, _FOREVER, covered=False):
            yield

    def max_seconds_to_pass(self, group: GroupEntry, now: float) -> float | None:
        """Return the run time (seconds) below which a group passes what this group may not pass."""
        starts = [r.start for r in self._all() if r.start < UNKNOWN and not self._passes(group, r, now)]
        return max(starts) - now if starts else None

    def consider(
        self, statement: Statement, group: GroupEntry, attempt: PlacementAttempt, now: float
    ) -> None:
        """Reserve capacity for a group that found none, if it is in rank and its start is known.

        If the group is the first of its pending class to find none, the first in rank
        of that class is considered instead.
        """
        if group.pending_class is None or not self._depth or attempt.pipelined or waits_for_nominated(group):
            return
        if attempt.rejections:
            self.without_capacity.pop(group.pending_class, None)
            return
        self.in_use = True
        self.aging.record_failure(group, now)
        is_known = group.pending_class in self.without_capacity
        self.without_capacity[group.pending_class] = None
        if len(self.without_capacity) > self._prune_at:
            self._prune_at = max(
                _MIN_PRUNE_SIZE,
                2 * sum(len(pending_class.members) for pending_class in self._waiting_classes()),
            )
        if not self._state.timed or self._never_fits.never_runs(group):
            return
        first = next(iter([group] if is_known else self._first_unreserved([group.pending_class], 1)), None)
        if first is None or not self._has_none(first) or self._plans >= _PLANS_PER_CYCLE:
            return
        reserved_groups = [r.group for r in self.by_group.values()]
        if len(reserved_groups) >= self._depth and first.rank > max(map(_rank, reserved_groups)):
            return
        classes = [group.pending_class]
        if len(reserved_groups) < self._depth:
            self._plans += 1
            classes = self._waiting_classes()
        others = [group for group in self._first_unreserved(classes, self._depth) if group is not first]
        ranked = sorted([*reserved_groups, first, *others], key=_rank)[: self._depth]
        if first not in ranked:
            return
        before = self.by_group
        self._rebuild(statement, ranked, now)
        if first.key not in self.by_group:
            if len(ranked) <= len(reserved_groups):
                self.by_group = before
            else:  # it could not be predicted during this decision: try again when the decision is final
                self.vacant = True
        self._mark_released_rows(before)

    def groups_with_unknown_end(self, group: GroupEntry) -> list[GroupEntry]:
        """Return the groups with an unknown end that prevents a reservation for this group."""
        if not self._depth or group.key in self.by_group or group.pending_class not in self.without_capacity:
            return []
        return [
            group
            for group in self._state.groups.values()
            if group.active
            and group.group is not None
            and group.group.learned
            and not runs_are_alike(group.group.runs)
        ]

    def next_change(self, now: float) -> float | None:
        """Return the next time at which a reservation starts or a group has waited too long."""
        if not self.by_group and not self.aging.since and not self.early.by_group:
            return None
        times = [r.start for r in self.by_group.values() if now < r.start < UNKNOWN]
        if (expiry := self.early.next_end(now)) is not None:
            times.append(expiry)
        due = self.aging.next_due(now)
        if due is not None:
            times.append(due)
        return min(times, default=None)

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self) -> list[tuple[str, float, dict[str, dict[str, int]]]]:
        """Return group key, start, and resources by node; nodes that are gone are included."""
        resources = self._state.table.resources.values
        return [
            (
                key,
                r.start,
                {
                    r.nodes[row]: {
                        resources[column]: int(row_resources[column])
                        for column in np.flatnonzero(row_resources).tolist()
                    }
                    for row, row_resources in r.rows.items()
                },
            )
            for key, r in self.by_group.items()
        ]

    def device_shares_as_records(self) -> dict[str, dict[str, tuple[TaskShare, ...]]]:
        """Return group key → node → device shares that it will hold there."""
        result = {
            key: {r.nodes[row]: shares for row, shares in r.device_shares.items()}
            for key, r in self.by_group.items()
        }
        return {key: shares for key, shares in result.items() if shares}

    def restore(
        self,
        records: Iterable[tuple[str, float, dict[str, dict[str, int]]]],
        parts: Mapping[str, Mapping[str, tuple[TaskShare, ...]]],
    ) -> None:
        """Restore the result of :meth:`as_records` and :meth:`device_shares_as_records`."""
        table = self._state.table
        for key, start, rows in records:
            resources = {table.row(name): table.request_vector(request) for name, request in rows.items()}
            shares = {table.row(name): held for name, held in parts.get(key, {}).items()}
            self.by_group[key] = self._reservation(key, start, resources, shares)

    def tasks_as_records(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return group key → node → number of a class → number of its tasks there."""
        result: dict[str, dict[str, dict[int, int]]] = {}
        for key, r in self.by_group.items():
            for cls, rows in r.tasks.items():
                for row, n in rows.items():
                    result.setdefault(key, {}).setdefault(r.nodes[row], {})[cls.number] = n
        return result

    def restore_more(
        self,
        tasks: Mapping[str, Mapping[str, Mapping[int, int]]],
        due_cycles: Mapping[str, int],
        classes: Mapping[int, TaskClass],
        *,
        gained: bool,
        nodes_changed: bool,
    ) -> None:
        """Restore the result of :meth:`tasks_as_records` and the flags.

        Call it after :meth:`restore`.

        ``due_cycles``: group key → number of cycles since its start was reached.
        """
        table = self._state.table
        self._capacity_gained, self.planned_shape = gained, table.shape - nodes_changed
        for key, r in self.by_group.items():
            r.due_cycles = due_cycles.get(key, 0)
            for name, numbers in tasks.get(key, {}).items():
                for number, n in numbers.items():
                    r.tasks.setdefault(classes[number], {})[table.row(name)] = n
        for row in {row for r in self.by_group.values() for row in r.rows}:
            table.release_row(row)  # of nodes that are gone

    # ------------------------------------------------------------------ planning

    def _plan(
        self, statement: Statement, groups: Sequence[GroupEntry], now: float, broken: Collection[str] = ()
    ) -> None:
        """Make reservations for these groups. Other groups may use what is not reserved any more."""
        before = self.by_group
        self._rebuild(statement, groups, now, broken)
        self._mark_released_rows(before)

    def _rebuild(
        self, statement: Statement, groups: Sequence[GroupEntry], now: float, broken: Collection[str] = ()
    ) -> None:
        """Make reservations for these groups as far as their starts are known.

        One more group that waited too long gets emptied nodes. Reservations at the
        front that are not ``broken`` stay as they are where possible.
        """
        self._plans += 1
        before, self.by_group = self.by_group, {}
        ranked = sorted(groups, key=_rank)
        forecasts: dict[str, Forecast] = {}
        first: list[str] = []
        if self._state.timed:
            first, forecasts = self._forecast(statement, ranked, now, before, broken)
        self.by_group.update((key, before[key]) for key in first)
        for key, forecast in forecasts.items():
            previous, later = before.get(key), forecast.start > now
            if later or (previous is not None and previous.due_cycles <= _MAX_DUE_CYCLES):
                due_cycles = 0 if later or previous is None else previous.due_cycles
                self.by_group[key] = self._from_forecast(key, forecast.start, forecast, due_cycles)
        self._startable = forecasts.keys() - self.by_group.keys()
        if forecasts:
            self._planned.adopt([self.by_group[key] for key in forecasts if key in self.by_group])
        aged = {group.key for group in self.aging.due(now)}
        known = forecasts.keys() | self.by_group.keys()
        aged_group = next((group for group in ranked if group.key in aged and group.key not in known), None)
        if aged_group is not None:
            self._empty_nodes_for(statement, aged_group, before.get(aged_group.key))

    def _mark_released_rows(self, before: Mapping[str, Reservation]) -> None:
        """Mark the rows with capacity that was reserved ``before`` and is not any more."""
        freed = {
            row for key, r in before.items() if not r.reserves_same(self.by_group.get(key)) for row in r.rows
        }
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
        reservations: list[Reservation] = []
        for group in ranked:
            r = before.get(group.key)
            if r is None or not r.is_predictable or group.key in broken:
                break
            reservations.append(r)
        if self.early.by_group:
            self._planned.forget()
        result = None if self.early.by_group else self._planned.plan(ranked, reservations, now)
        if result is not None:
            return result
        reserved_counts = {
            r.group.key: known for r in reservations if (known := r.reserved_counts()) is not None
        }
        return self._forecaster.plan_with_reserved(statement, ranked, now, reserved_counts)

    def _empty_nodes_for(self, statement: Statement, group: GroupEntry, before: Reservation | None) -> None:
        """Empty nodes for a group. Nodes that are being emptied for it already are kept if valid."""
        if before is not None and before.start == UNKNOWN and self._is_valid(before):
            self.by_group[group.key] = self._reservation(
                group.key, UNKNOWN, before.rows, before.device_shares
            )
            return
        held = self.aging.nodes_to_empty(statement, group)
        if held is not None:
            self.by_group[group.key] = self._reservation(group.key, UNKNOWN, *held)

    def _reservation(
        self, key: str, start: float, rows: dict[int, Resources], shares: dict[int, TaskShares]
    ) -> Reservation:
        nodes = {row: self._state.table.names[row] for row in rows}
        column_units = {
            row: [(column, units) for column, units in enumerate(resources.tolist()) if units]
            for row, resources in rows.items()
        }
        group = self._state.groups[key]
        signature = group.pending_class.signature if group.pending_class is not None else ()
        return Reservation(group, start, rows, nodes, signature, shares, column_units)

    def _from_forecast(self, key: str, start: float, forecast: Forecast, due_cycles: int) -> Reservation:
        """Return the reservation for a forecast."""
        reservation = self._reservation(
            key, start, resources_by_row(forecast.placements), forecast.device_shares
        )
        reservation.due_cycles = due_cycles
        reservation.tasks = tasks_by_row(forecast)
        return reservation

    def _is_valid(self, reservation: Reservation) -> bool:
        """Return whether nodes and request are still those of the reservation, resources ignored."""
        rows, nodes = self._state.table.rows, self._state.table.nodes
        nodes_exist = reservation.is_current() and all(
            rows.get(name) == row and nodes[row] is not None for row, name in reservation.nodes.items()
        )
        return nodes_exist and reservation.nodes_accept()

    def _passes(self, group: GroupEntry, reservation: Reservation, now: float) -> bool:
        """Return whether the reservation does not bind the group: it precedes it or ends in time."""
        precedes = reservation.group is group or group.rank < reservation.group.rank
        if precedes or not reservation.affects(latest_end(group, now)):
            return True
        return bool(self._precedence.passable(group, [reservation], self._all(), now))

    @staticmethod
    def _first_binding(reservations: Sequence[Reservation], until: float) -> str:
        return next(r.group.key for r in reservations if r.affects(until))

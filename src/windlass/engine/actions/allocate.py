"""Action ``allocate``: place the next tasks of pending groups, in queue order.

Tasks that fit only once terminating tasks are gone are nominated to that capacity. If
run times are known, capacity is reserved for the first groups that do not fit
(:mod:`windlass.engine.backfill.reservations`). ``binds_per_cycle`` of the configuration
limits the binds of a cycle. The rest follows in the next cycle.
"""

from __future__ import annotations

from windlass.engine.actions.context import EVERY_CYCLE, ActionContext, CycleContext
from windlass.engine.groups.entries import GroupEntry, NextTasks, nominated
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.placement.gang_allocator import PlacementAttempt, wake_conditions
from windlass.spi.plugins import Rejection


class Allocate:
    """The action. It passes the queue heap until no group can be placed."""

    name = "allocate"
    subjects = EVERY_CYCLE

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._blocked_heads: dict[PendingClass, tuple[GroupEntry, PlacementAttempt, str]] = {}
        """Pending class → its first group, which waits for reserved capacity while others may pass."""
        self._tried_owners: set[str] = set()
        """Owners of reservations that were tried in this cycle and need no second attempt."""

    def run(self, cycle: CycleContext) -> None:
        reservations, state = self._context.reservations, self._context.state
        if (
            reservations.in_use
            or state.early
            or reservations.planned_shape != state.table.shape
            or state.ledger.expected_ends.left is not None
        ):
            statement, served = self._context.statement, self._context.queue_heap.waiting
            reservations.start_action(statement, cycle.now, cycle.touched.values(), served=served)
            cycle.touched.update(reservations.early.take_changed())
        self._serve(cycle)
        if reservations.in_use:
            reservations.finish_action(self._context.statement, cycle.now)
            cycle.wake(reservations.next_change(cycle.now))

    def _serve(self, cycle: CycleContext) -> None:
        context = self._context
        queue_heap, bound = context.queue_heap, context.state.config.binds_per_cycle
        out, touched = cycle.out, cycle.touched
        self._blocked_heads = {}
        self._tried_owners.clear()
        while (turn := queue_heap.pop()) is not None:
            pending_class, group = turn
            if bound and len(out.binds) >= bound:
                self._defer(cycle, pending_class)
                return
            if group.step is None:
                raise RuntimeError(f"{pending_class!r} has nothing to try")
            step = group.step
            alone = bool(pending_class.owners) and not pending_class.mark_tried(group)
            attempt, kept_for = self._allocate_group(group, step, cycle.now, alone=alone)
            if attempt.done or not alone:
                touched[group.key] = group
            if context.permit.is_active and attempt.done and not cycle.is_permitted(group):
                if group.rejection is not None:
                    context.enqueuer.reject(group, cycle.now)
                if cycle.unfinished:
                    self._defer(cycle, pending_class)
                    return
                self._requeue(cycle, pending_class)
            elif attempt.done or len(context.statement):  # broken nominations may be withdrawn
                self._commit(cycle, group)
                if attempt.done and not attempt.pipelined and context.reservations.in_use:
                    context.reservations.aging.forget(group.key)
                if attempt.pipelined and not step.extra:
                    self._park(cycle, group, attempt)
                if alone:
                    self._retry_head(pending_class)
                self._requeue(cycle, pending_class)
            elif alone:
                self._requeue(cycle, pending_class)
            else:
                self._failed(cycle, group, attempt, kept_for)

    def _allocate_group(
        self, group: GroupEntry, step: NextTasks, now: float, *, alone: bool
    ) -> tuple[PlacementAttempt, str]:
        """Place the next tasks of a group.

        Returns the attempt and the group that reserves the free capacity, if the tasks
        failed for that reason. ``alone``: groups before this one in its class may not
        use its reservation.
        """
        context = self._context
        if alone:
            self._tried_owners.add(group.key)
            return context.reservations.allocate_now(context.statement, group, step, now), ""
        if context.reservations.in_use and context.reservations.affects_placement:
            return context.reservations.allocate_group(context.statement, group, step, now)
        return context.gang_allocator.allocate_group(context.statement, group, step), ""

    def _commit(self, cycle: CycleContext, group: GroupEntry) -> None:
        """Commit the statement for the group and update its next tasks."""
        context = self._context
        context.statement.commit(cycle.out)
        context.enqueuer.update(group, cycle.now)
        context.state.ledger.dirty.pop(group.key, None)

    def _requeue(self, cycle: CycleContext, pending_class: PendingClass) -> None:
        """Requeue the pending class for its next group.

        If none of the remaining groups may pass a reservation, the class is parked.
        """
        if not pending_class.members or pending_class.parked:
            return
        if not self._context.queue_heap.push(pending_class):
            self._park(cycle, *self._blocked_heads.pop(pending_class))

    def _defer(self, cycle: CycleContext, pending_class: PendingClass) -> None:
        """Defer the pending class, and the classes with a blocked head, to the next cycle."""
        cycle.unfinished = True
        for other in (pending_class, *self._blocked_heads):
            other.reset_passing()
            if other.members and not other.parked:
                self._context.queue_heap.push(other)

    def _failed(
        self, cycle: CycleContext, group: GroupEntry, attempt: PlacementAttempt, kept_for: str
    ) -> None:
        """Park the pending class of a group that does not fit, or let groups behind it pass."""
        context, pending_class, step = self._context, group.pending_class, group.step
        if pending_class is None or step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        if pending_class not in self._blocked_heads:
            context.reservations.consider(context.statement, group, attempt, cycle.now)
        if kept_for and self._others_may_pass(pending_class, group, cycle.now):
            self._blocked_heads.setdefault(pending_class, (group, attempt, kept_for))
            context.queue_heap.push(pending_class)
            return
        self._park(cycle, *self._blocked_heads.pop(pending_class, (group, attempt, kept_for)))
        if not context.state.timed and not context.state.ledger.terminating:
            self._park_alike(cycle, step)

    def _others_may_pass(self, pending_class: PendingClass, group: GroupEntry, now: float) -> bool:
        """Return whether a group behind this one may be tried, and make it the head of its class.

        It may if it ends before the reserved capacity is needed, or if it owns a
        reservation. Under a policy that orders groups otherwise, such an owner may
        stand behind groups that may not use its capacity. Without this rule it would
        never be tried.
        """
        reservations, tried = self._context.reservations, self._tried_owners
        tried.add(group.key)
        owners = [owner for owner in reservations.planned_groups_in(pending_class) if owner.key not in tried]
        pending_class.allow_passing(
            None if pending_class.is_strict else reservations.max_seconds_to_pass(group, now), owners
        )
        head = pending_class.head()
        return head is not None and head is not group

    def _retry_head(self, pending_class: PendingClass) -> None:
        """Retry the blocked head of a class after the owner of a reservation has started.

        A head that owns a reservation itself is not retried, since it can only move
        forward.
        """
        first = self._blocked_heads.get(pending_class)
        if first is not None and not self._context.reservations.is_planned(first[0]):
            del self._blocked_heads[pending_class]
            pending_class.reset_passing()

    def _park_alike(self, cycle: CycleContext, step: NextTasks) -> None:
        """Park all pending classes that wait for one task of an exhausted class.

        Nothing returns capacity during the action, so none of them can be placed.
        """
        cls = step.batches[0].cls
        if len(step.batches) > 1 or cls.total or cls in cycle.exhausted:
            return
        cycle.exhausted.add(cls)
        for pending_class in list(self._context.scheduling_queue.pending_classes.values()):
            if pending_class.parked:
                continue
            head = pending_class.head()
            if head is None or head.step is None or head.nominations:
                continue
            next_tasks = head.step
            if len(next_tasks.batches) == 1 and next_tasks.batches[0].cls is cls and next_tasks.root is None:
                cycle.touched[head.key] = head
                self._park(cycle, head, PlacementAttempt(False))
                self._context.queue_heap.remove(pending_class)
                self._context.reservations.consider(
                    self._context.statement, head, PlacementAttempt(False), cycle.now
                )

    def _park(
        self, cycle: CycleContext, group: GroupEntry, attempt: PlacementAttempt, kept_for: str = ""
    ) -> None:
        """Park the pending class of the group."""
        context, pending_class = self._context, group.pending_class
        if pending_class is None or group.step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        rejections = attempt.rejections
        if pending_class.nominated:
            rejections = [*rejections, *self._bind_nominated(cycle, pending_class, group)]
            if pending_class.head() is not group:  # a group with free nominated capacity comes first now
                context.queue_heap.push(pending_class)
                return
        for batch in group.step.batches:
            context.state.classes.touch(batch.cls)
        waits = wake_conditions(group, group.step, rejections, context.placer)
        waits.reserved_for = kept_for
        context.scheduling_queue.park(pending_class, waits)
        cycle.parked[pending_class] = None

    def _bind_nominated(
        self, cycle: CycleContext, pending_class: PendingClass, first: GroupEntry
    ) -> list[Rejection]:
        """Bind groups behind the head of a strict queue as far as their nominated capacity is free.

        They were nominated before the group became the head, or when tasks of theirs
        were moved. Returns the rejections of plugins.
        """
        context, rejections = self._context, list[Rejection]()
        for group in list(pending_class.nominated.values()):
            if group is first or group.step is None:
                continue
            rejections += context.gang_allocator.place_nominated(context.statement, group, group.step)
            if not len(context.statement):
                continue
            cycle.touched[group.key] = group
            if context.permit.is_active and context.statement.placed(0) and not cycle.is_permitted(group):
                if group.rejection is not None:
                    context.enqueuer.reject(group, cycle.now)
                context.state.table.improved.update(
                    entry.nominated_row for entry in nominated(group)
                )  # tried again at once
            else:
                self._commit(cycle, group)
        return rejections

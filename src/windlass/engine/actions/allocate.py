"""The action ``allocate``: let groups take steps, in turn, until none can.

A step that cannot be had now, but once something that terminates is gone, is promised that room. Where
run times are known, room is kept for the first that finds none (:mod:`windlass.engine.backfill.reservations`).
``binds_per_cycle`` of the configuration bounds it; what is left then runs in the next cycle.
"""

from __future__ import annotations

from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.groups.entries import GroupEntry, nominated
from windlass.engine.groups.next_step import NextTasks
from windlass.engine.pending.scheduling_queue import PendingClass
from windlass.engine.placement.gang_allocator import PlacementAttempt, waits_for
from windlass.spi.plugins import Rejection


class Allocate:
    name = "allocate"

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._held_up: dict[PendingClass, tuple[GroupEntry, PlacementAttempt, str]] = {}
        """Bucket → its first group, that has to wait for somebody else's room, while others are let pass."""
        self._owners_tried: set[str] = set()
        """In this cycle, those who need not be tried again, though others of their bucket may not have their room."""

    def run(self, cycle: CycleContext) -> None:
        reservations = self._context.reservations
        statement, served = self._context.statement, self._context.queue_heap.waiting
        reservations.start_action(statement, cycle.now, cycle.touched.values(), served=served)
        self._serve(cycle)
        reservations.finish_action(statement, cycle.now)
        cycle.wake(reservations.next_change(cycle.now))

    def _serve(self, cycle: CycleContext) -> None:
        context = self._context
        queue_heap, bound = context.queue_heap, context.state.config.binds_per_cycle
        out, touched = cycle.out, cycle.touched
        self._held_up = {}
        self._owners_tried.clear()
        while (turn := queue_heap.pop()) is not None:
            pending_class, group = turn
            if bound and len(out.binds) >= bound:
                self._put_off(cycle, pending_class)
                return
            if group.step is None:
                raise RuntimeError(f"{pending_class!r} has nothing to try")
            step = group.step
            alone = bool(pending_class.owners) and not pending_class.mark_tried(group)
            attempt, kept_for = self._advance(group, step, cycle.now, alone=alone)
            if attempt.done or not alone:
                touched[group.key] = group
            if context.permit.is_active and attempt.done and not cycle.is_permitted(group):
                if group.refusal is not None:
                    context.enqueuer.reject(group, cycle.now)
                if cycle.unfinished:
                    self._put_off(cycle, pending_class)
                    return
                self._go_on(cycle, pending_class)
            elif attempt.done or len(context.statement):  # promises that do not hold may have been given up
                self._decide(cycle, group)
                if attempt.done and not attempt.pipelined:
                    context.reservations.aging.forget(group.key)
                if attempt.pipelined and not step.extra:
                    self._park(cycle, group, attempt)
                if alone:
                    self._look_again(pending_class)
                self._go_on(cycle, pending_class)
            elif alone:
                self._go_on(cycle, pending_class)
            else:
                self._failed(cycle, group, attempt, kept_for)

    def _advance(
        self, group: GroupEntry, step: NextTasks, now: float, *, alone: bool
    ) -> tuple[PlacementAttempt, str]:
        """One step of a group, and for whom the room is kept that it could have had. ``alone``: others before it may
        not have what is kept for it."""
        context = self._context
        if alone:
            self._owners_tried.add(group.key)
            return context.reservations.allocate_now(context.statement, group, step, now), ""
        if context.reservations.affects_placement:
            return context.reservations.allocate_step(context.statement, group, step, now)
        return context.gang_allocator.allocate_step(context.statement, group, step), ""

    def _decide(self, cycle: CycleContext, group: GroupEntry) -> None:
        """What the statement holds for the group is so from now on."""
        context = self._context
        context.statement.commit(cycle.out)
        context.enqueuer.update(group, cycle.now)
        context.state.ledger.dirty.pop(group.key, None)

    def _go_on(self, cycle: CycleContext, pending_class: PendingClass) -> None:
        """Whoever is next in the bucket has his turn; if none of those may pass who are left, it is parked."""
        if not pending_class.members or pending_class.parked:
            return
        if not self._context.queue_heap.push(pending_class):
            self._park(cycle, *self._held_up.pop(pending_class))

    def _put_off(self, cycle: CycleContext, pending_class: PendingClass) -> None:
        """The bucket, and those of whom some may still pass, have their turns in the next cycle."""
        cycle.unfinished = True
        for other in (pending_class, *self._held_up):
            other.reset_passing()
            if other.members and not other.parked:
                self._context.queue_heap.push(other)

    def _failed(
        self, cycle: CycleContext, group: GroupEntry, attempt: PlacementAttempt, kept_for: str
    ) -> None:
        """The group found no room: its bucket waits, but for those who may pass somebody's reservation."""
        context, pending_class, step = self._context, group.bucket, group.step
        if pending_class is None or step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        if pending_class not in self._held_up:
            context.reservations.consider(context.statement, group, attempt, cycle.now)
        if kept_for and self._others_may_pass(pending_class, group, cycle.now):
            self._held_up.setdefault(pending_class, (group, attempt, kept_for))
            context.queue_heap.push(pending_class)
            return
        self._park(cycle, *self._held_up.pop(pending_class, (group, attempt, kept_for)))
        if not context.state.timed and not context.state.ledger.leaving:
            self._park_alike(cycle, step)

    def _others_may_pass(self, pending_class: PendingClass, group: GroupEntry, now: float) -> bool:
        """Whether there is one behind the group that ends before the kept room is needed, or for whom some is kept
        himself; the first of them is next. Of the latter nobody else would ever have one tried where policies have it
        that he stands behind others, who may not take his room."""
        reservations, tried = self._context.reservations, self._owners_tried
        tried.add(group.key)
        owners = [owner for owner in reservations.planned_groups_in(pending_class) if owner.key not in tried]
        pending_class.allow_passing(
            None if pending_class.is_strict else reservations.max_seconds_to_pass(group, now), owners
        )
        head = pending_class.head()
        return head is not None and head is not group

    def _look_again(self, pending_class: PendingClass) -> None:
        """Somebody has begun for whom room was kept from the first of his bucket. That one is tried once more unless
        some is kept for him, too: then he moves forward where he can."""
        first = self._held_up.get(pending_class)
        if first is not None and not self._context.reservations.is_planned(first[0]):
            del self._held_up[pending_class]
            pending_class.reset_passing()

    def _park_alike(self, cycle: CycleContext, step: NextTasks) -> None:
        """Where no node takes a task of the step's class any more, all that wait for one need not be tried:
        nothing gives room back while groups take their turns."""
        cls = step.batches[0].cls
        if len(step.batches) > 1 or cls.total or cls in cycle.exhausted:
            return
        cycle.exhausted.add(cls)
        for pending_class in list(self._context.scheduling_queue.pending_classes.values()):
            if pending_class.parked:
                continue
            head = pending_class.head()
            if head is None or head.step is None or head.promises:
                continue
            asked = head.step
            if len(asked.batches) == 1 and asked.batches[0].cls is cls and asked.root is None:
                cycle.touched[head.key] = head
                self._park(cycle, head, PlacementAttempt(False))
                self._context.queue_heap.remove(pending_class)
                self._context.reservations.consider(
                    self._context.statement, head, PlacementAttempt(False), cycle.now
                )

    def _park(
        self, cycle: CycleContext, group: GroupEntry, attempt: PlacementAttempt, kept_for: str = ""
    ) -> None:
        """The group waits from now on, and with it all that wait for the same."""
        context, pending_class = self._context, group.bucket
        if pending_class is None or group.step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        rejections = attempt.rejections
        if pending_class.nominated:
            rejections = [*rejections, *self._redeem(cycle, pending_class, group)]
            if pending_class.head() is not group:  # who has what he was promised comes before it now
                context.queue_heap.push(pending_class)
                return
        for batch in group.step.batches:
            context.state.classes.touch(batch.cls)
        waits = waits_for(group, group.step, rejections, context.placer)
        waits.reserved_for = kept_for
        context.scheduling_queue.park(pending_class, waits)
        cycle.parked[pending_class] = None

    def _redeem(self, cycle: CycleContext, pending_class: PendingClass, first: GroupEntry) -> list[Rejection]:
        """Those behind the first of a strict line have what they were promised before it came first, or when others
        of theirs were moved. Returns what policies say against that."""
        context, rejections = self._context, list[Rejection]()
        for group in list(pending_class.nominated.values()):
            if group is first or group.step is None:
                continue
            rejections += context.gang_allocator.redeem(context.statement, group, group.step)
            if not len(context.statement):
                continue
            cycle.touched[group.key] = group
            if context.permit.is_active and context.statement.placed(0) and not cycle.is_permitted(group):
                if group.refusal is not None:
                    context.enqueuer.reject(group, cycle.now)
                context.state.table.improved.update(
                    entry.promised for entry in nominated(group)
                )  # asked again at once
            else:
                self._decide(cycle, group)
        return rejections

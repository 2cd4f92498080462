"""The action ``allocate``: let groups take steps, in turn, until none can.

A step that cannot be had now, but once something that terminates is gone, is promised that room. Where
run times are known, room is kept for the first that finds none (:mod:`windlass.engine.backfill.reservations`).
``binds_per_cycle`` of the configuration bounds it; what is left then runs in the next cycle.
"""

from __future__ import annotations

from windlass.engine.actions.context import CycleContext, Machinery
from windlass.engine.groups.entries import GroupEntry, promised
from windlass.engine.groups.next_step import Step
from windlass.engine.pending.scheduling_queue import Bucket
from windlass.engine.placement.gang_allocator import Attempt, waits_for
from windlass.spi.plugins import Refusal


class Allocate:
    name = "allocate"

    def __init__(self, machinery: Machinery) -> None:
        self._machinery = machinery
        self._held_up: dict[Bucket, tuple[GroupEntry, Attempt, str]] = {}
        """Bucket → its first group, that has to wait for somebody else's room, while others are let pass."""
        self._owners_tried: set[str] = set()
        """In this cycle, those who need not be tried again, though others of their bucket may not have their room."""

    def run(self, ctx: CycleContext) -> None:
        reservations = self._machinery.reservations
        statement, served = self._machinery.statement, self._machinery.turns.waiting
        reservations.open(statement, ctx.now, ctx.touched.values(), served=served)
        self._serve(ctx)
        reservations.close(statement, ctx.now)
        ctx.wake(reservations.next_change(ctx.now))

    def _serve(self, ctx: CycleContext) -> None:
        m = self._machinery
        turns, bound = m.turns, m.world.config.binds_per_cycle
        out, touched = ctx.out, ctx.touched
        self._held_up = {}
        self._owners_tried.clear()
        while (turn := turns.pop()) is not None:
            bucket, group = turn
            if bound and len(out.binds) >= bound:
                self._put_off(ctx, bucket)
                return
            if group.step is None:
                raise RuntimeError(f"{bucket!r} has nothing to try")
            step = group.step
            alone = bool(bucket.owners) and not bucket.takes_turn(group)
            attempt, kept_for = self._advance(group, step, ctx.now, alone=alone)
            if attempt.done or not alone:
                touched[group.key] = group
            if m.consent.asked and attempt.done and not ctx.consents(group):
                if group.refusal is not None:
                    m.enrolment.refuse(group, ctx.now)
                if ctx.unfinished:
                    self._put_off(ctx, bucket)
                    return
                self._go_on(ctx, bucket)
            elif attempt.done or len(m.statement):  # promises that do not hold may have been given up
                self._decide(ctx, group)
                if attempt.done and not attempt.pipelined:
                    m.reservations.aging.forget(group.key)
                if attempt.pipelined and not step.extra:
                    self._park(ctx, group, attempt)
                if alone:
                    self._look_again(bucket)
                self._go_on(ctx, bucket)
            elif alone:
                self._go_on(ctx, bucket)
            else:
                self._failed(ctx, group, attempt, kept_for)

    def _advance(self, group: GroupEntry, step: Step, now: float, *, alone: bool) -> tuple[Attempt, str]:
        """One step of a group, and for whom the room is kept that it could have had. ``alone``: others before it may
        not have what is kept for it."""
        m = self._machinery
        if alone:
            self._owners_tried.add(group.key)
            return m.reservations.at_once(m.statement, group, step, now), ""
        if m.reservations.concern:
            return m.reservations.advance(m.statement, group, step, now)
        return m.allocation.advance(m.statement, group, step), ""

    def _decide(self, ctx: CycleContext, group: GroupEntry) -> None:
        """What the statement holds for the group is so from now on."""
        m = self._machinery
        m.statement.commit(ctx.out)
        m.enrolment.settle(group, ctx.now)
        m.world.ledger.dirty.pop(group.key, None)

    def _go_on(self, ctx: CycleContext, bucket: Bucket) -> None:
        """Whoever is next in the bucket has his turn; if none of those may pass who are left, it is parked."""
        if not bucket.members or bucket.parked:
            return
        if not self._machinery.turns.push(bucket):
            self._park(ctx, *self._held_up.pop(bucket))

    def _put_off(self, ctx: CycleContext, bucket: Bucket) -> None:
        """The bucket, and those of whom some may still pass, have their turns in the next cycle."""
        ctx.unfinished = True
        for other in (bucket, *self._held_up):
            other.let_nobody_pass()
            if other.members and not other.parked:
                self._machinery.turns.push(other)

    def _failed(self, ctx: CycleContext, group: GroupEntry, attempt: Attempt, kept_for: str) -> None:
        """The group found no room: its bucket waits, but for those who may pass somebody's reservation."""
        m, bucket, step = self._machinery, group.bucket, group.step
        if bucket is None or step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        if bucket not in self._held_up:
            m.reservations.offer(m.statement, group, attempt, ctx.now)
        if kept_for and self._others_may_pass(bucket, group, ctx.now):
            self._held_up.setdefault(bucket, (group, attempt, kept_for))
            m.turns.push(bucket)
            return
        self._park(ctx, *self._held_up.pop(bucket, (group, attempt, kept_for)))
        if not m.world.timed and not m.world.ledger.leaving:
            self._park_alike(ctx, step)

    def _others_may_pass(self, bucket: Bucket, group: GroupEntry, now: float) -> bool:
        """Whether there is one behind the group that ends before the kept room is needed, or for whom some is kept
        himself; the first of them is next. Of the latter nobody else would ever have one tried where policies have it
        that he stands behind others, who may not take his room."""
        reservations, tried = self._machinery.reservations, self._owners_tried
        tried.add(group.key)
        owners = [owner for owner in reservations.owners_in(bucket) if owner.key not in tried]
        bucket.let_pass(None if bucket.strict else reservations.limit(group, now), owners)
        head = bucket.head()
        return head is not None and head is not group

    def _look_again(self, bucket: Bucket) -> None:
        """Somebody has begun for whom room was kept from the first of his bucket. That one is tried once more unless
        some is kept for him, too: then he moves forward where he can."""
        first = self._held_up.get(bucket)
        if first is not None and not self._machinery.reservations.is_planned(first[0]):
            del self._held_up[bucket]
            bucket.let_nobody_pass()

    def _park_alike(self, ctx: CycleContext, step: Step) -> None:
        """Where no node takes a task of the step's class any more, all that wait for one need not be tried:
        nothing gives room back while groups take their turns."""
        cls = step.runs[0].cls
        if len(step.runs) > 1 or cls.total or cls in ctx.exhausted:
            return
        ctx.exhausted.add(cls)
        for bucket in list(self._machinery.lot.buckets.values()):
            if bucket.parked:
                continue
            head = bucket.head()
            if head is None or head.step is None or head.promises:
                continue
            asked = head.step
            if len(asked.runs) == 1 and asked.runs[0].cls is cls and asked.root is None:
                ctx.touched[head.key] = head
                self._park(ctx, head, Attempt(False))
                self._machinery.turns.left(bucket)
                self._machinery.reservations.offer(self._machinery.statement, head, Attempt(False), ctx.now)

    def _park(self, ctx: CycleContext, group: GroupEntry, attempt: Attempt, kept_for: str = "") -> None:
        """The group waits from now on, and with it all that wait for the same."""
        m, bucket = self._machinery, group.bucket
        if bucket is None or group.step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        refusals = attempt.refusals
        if bucket.promised:
            refusals = [*refusals, *self._redeem(ctx, bucket, group)]
            if bucket.head() is not group:  # who has what he was promised comes before it now
                m.turns.push(bucket)
                return
        for run in group.step.runs:
            m.world.classes.touch(run.cls)
        waits = waits_for(group, group.step, refusals, m.placer)
        waits.kept_for = kept_for
        m.lot.park(bucket, waits)
        ctx.parked[bucket] = None

    def _redeem(self, ctx: CycleContext, bucket: Bucket, first: GroupEntry) -> list[Refusal]:
        """Those behind the first of a strict line have what they were promised before it came first, or when others
        of theirs were moved. Returns what policies say against that."""
        m, refusals = self._machinery, list[Refusal]()
        for group in list(bucket.promised.values()):
            if group is first or group.step is None:
                continue
            refusals += m.allocation.redeem(m.statement, group, group.step)
            if not len(m.statement):
                continue
            ctx.touched[group.key] = group
            if m.consent.asked and m.statement.placed(0) and not ctx.consents(group):
                if group.refusal is not None:
                    m.enrolment.refuse(group, ctx.now)
                m.world.table.improved.update(
                    entry.promised for entry in promised(group)
                )  # asked again at once
            else:
                self._decide(ctx, group)
        return refusals

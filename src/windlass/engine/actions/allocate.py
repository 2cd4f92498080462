"""The action ``allocate``: let groups take steps, in turn, until none can.

A step that cannot be had now, but once something that terminates is gone, is promised that room. Where
run times are known, room is kept for the first that finds none (:mod:`windlass.engine.promises.reservations`).
``binds_per_cycle`` of the configuration bounds it; what is left then runs in the next cycle.
"""

from __future__ import annotations

from windlass.engine.actions.cycle import CycleContext, Machinery
from windlass.engine.groups.entries import GroupEntry, promised
from windlass.engine.groups.steps import Step
from windlass.engine.placing.allocate import Attempt, waits_for
from windlass.engine.waiting.parking import Bucket
from windlass.spi.plugins import Refusal


class Allocate:
    name = "allocate"

    def __init__(self, machinery: Machinery) -> None:
        self._machinery = machinery
        self._held_up: dict[Bucket, tuple[GroupEntry, Attempt, str]] = {}
        """Bucket → its first group, that has to wait for somebody else's room, while others are let pass."""
        self._owners_tried: set[str] = set()
        """In this cycle, of those who stand behind others from whom their room is kept."""

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
            touched[group.key] = group
            step = group.step
            kept_for = ""
            if m.reservations.slots:
                attempt, kept_for = m.reservations.advance(m.statement, group, step, ctx.now)
            else:
                attempt = m.allocation.advance(m.statement, group, step)
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
                self._go_on(ctx, bucket)
            else:
                self._failed(ctx, group, attempt, kept_for)

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
            other.limit = None
            if other.members and not other.parked:
                self._machinery.turns.push(other)

    def _failed(self, ctx: CycleContext, group: GroupEntry, attempt: Attempt, kept_for: str) -> None:
        """The group found no room: its bucket waits, but for those who may pass somebody's reservation."""
        m, bucket, step = self._machinery, group.bucket, group.step
        if bucket is None or step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        if kept_for and bucket not in self._held_up and self._owner_begins(ctx, bucket):
            self._go_on(ctx, bucket)
            return
        if bucket not in self._held_up:
            m.reservations.offer(m.statement, group, attempt, ctx.now)
        if kept_for and self._others_may_pass(bucket, group, ctx.now):
            self._held_up.setdefault(bucket, (group, attempt, kept_for))
            m.turns.push(bucket)
            return
        self._park(ctx, *self._held_up.pop(bucket, (group, attempt, kept_for)))
        if not m.world.timed and not m.world.ledger.leaving:
            self._park_alike(ctx, step)

    def _owner_begins(self, ctx: CycleContext, bucket: Bucket) -> bool:
        """Room is kept from the first of a bucket. Where policies have it that one for whom some is kept stands behind
        him, whether that one begins now: nobody else would ever have him tried."""
        m = self._machinery
        for owner in m.reservations.owners_in(bucket):
            step = owner.step
            if step is None or owner.key in self._owners_tried:
                continue
            self._owners_tried.add(owner.key)
            if not m.reservations.at_once(m.statement, owner, step, ctx.now):
                continue
            ctx.touched[owner.key] = owner
            if ctx.consents(owner):
                self._decide(ctx, owner)
                m.reservations.aging.forget(owner.key)
                return True
            if owner.refusal is not None:
                m.enrolment.refuse(owner, ctx.now)
        return False

    def _others_may_pass(self, bucket: Bucket, group: GroupEntry, now: float) -> bool:
        """Whether there is one behind the group that ends before the kept room is needed; he is next."""
        bucket.limit = None if bucket.strict else self._machinery.reservations.limit(group, now)
        if bucket.limit is None:
            return False
        head = bucket.head()
        return head is not None and head is not group

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

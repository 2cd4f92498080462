"""The action ``allocate``: let groups take steps, in turn, until none can.

A step that cannot be had now, but once something that terminates is gone, is promised that room. Where
run times are known, room is kept for the first that finds none (:mod:`windlass.engine.reservations`).
``binds_per_cycle`` of the configuration bounds it; what is left then runs in the next cycle.
"""

from __future__ import annotations

from windlass.engine.allocate import Attempt, waits_for
from windlass.engine.cycle import CycleContext, Machinery
from windlass.engine.groups import GroupEntry


class Allocate:
    name = "allocate"

    def __init__(self, machinery: Machinery) -> None:
        self._machinery = machinery

    def run(self, ctx: CycleContext) -> None:
        reservations = self._machinery.reservations
        reservations.open(self._machinery.statement, ctx.now)
        try:
            self._serve(ctx)
        finally:
            reservations.close()
        ctx.wake(reservations.next_start())

    def _serve(self, ctx: CycleContext) -> None:
        m = self._machinery
        world, turns = m.world, m.turns
        bound = world.config.binds_per_cycle
        out, touched = ctx.out, ctx.touched
        while (turn := turns.pop()) is not None:
            bucket, group = turn
            if bound and len(out.binds) >= bound:
                turns.push(bucket)
                ctx.unfinished = True
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
            if attempt.done or len(m.statement):  # promises that do not hold may have been given up
                m.statement.commit(out)
                m.enrolment.settle(group, ctx.now)
                if attempt.pipelined and not step.extra:
                    self._park(ctx, group, attempt)
                if bucket.members and not bucket.parked:
                    turns.push(bucket)
            else:
                self._park(ctx, group, attempt, kept_for)
                if world.timed:
                    m.reservations.offer(m.statement, group, attempt, ctx.now)

    def _park(self, ctx: CycleContext, group: GroupEntry, attempt: Attempt, kept_for: str = "") -> None:
        """The group waits from now on, and with it all that wait for the same."""
        m = self._machinery
        if group.bucket is None or group.step is None:
            raise RuntimeError(f"group {group.key} has nothing to wait for")
        for run in group.step.runs:
            m.world.classes.touch(run.cls)
        waits = waits_for(group, group.step, attempt.refusals, m.placer)
        waits.kept_for = kept_for
        m.lot.park(group.bucket, waits)
        ctx.parked[group.bucket] = None

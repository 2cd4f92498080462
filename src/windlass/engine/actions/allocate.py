"""The action ``allocate``: let groups take steps, in turn, until none can.

``binds_per_cycle`` of the configuration bounds it; what is left then runs in the next cycle.
"""

from __future__ import annotations

from windlass.engine.allocate import waits_for
from windlass.engine.cycle import CycleContext, Machinery


class Allocate:
    name = "allocate"

    def __init__(self, machinery: Machinery) -> None:
        self._machinery = machinery

    def run(self, ctx: CycleContext) -> None:
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
            attempt = m.allocation.attempt(m.statement, group, group.step)
            if attempt.done:
                m.statement.commit(out)
                m.enrolment.settle(group, ctx.now)
                if bucket.members:
                    turns.push(bucket)
            else:
                for run in group.step.runs:
                    world.classes.touch(run.cls)
                m.lot.park(bucket, waits_for(group, group.step, attempt.refusals, m.placer))
                ctx.parked[bucket] = None

"""The action ``shuffle`` of a tiered configuration (Volcano's): pods that are to go for their own sake.

The voters name them (``tdm``: those on nodes whose time is over); they are asked when they wanted to be.
"""

from __future__ import annotations

from windlass.engine.actions.cycle import CycleContext, Machinery
from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.admission.looks import GangLook, TaskLook
from windlass.spi.objects import TaskState
from windlass.spi.tiers import Tiers


class VolcanoShuffle:
    name = "volcano-shuffle"

    def __init__(self, machinery: Machinery) -> None:
        self._m = machinery
        self._tiers = tiers_of(machinery.policies)
        self._due: float | None = 0.0
        """When the voters are to be asked next; ``None`` for never."""

    def run(self, ctx: CycleContext) -> None:
        tiers = self._tiers
        if tiers is None or self._due is None:
            return
        if ctx.now >= self._due:
            self._ask(tiers, ctx)
            self._due = tiers.next_due(ctx.now)
        ctx.wake(self._due)

    def _ask(self, tiers: Tiers, ctx: CycleContext) -> None:
        m = self._m
        m.running.update(ctx.touched.values())
        looks: dict[str, TaskLook] = {}
        for name in m.running.queues():
            queue = m.world.queues.get(name)
            if not tiers.serves(queue):
                continue
            for group in m.running.of(queue).values():
                if group.spec.guest:
                    continue
                gang = GangLook(group)
                for entry in group.tasks.values():
                    if entry.state is TaskState.RUNNING:
                        looks[entry.key] = TaskLook(entry, gang, ctx.now, m.world.table.nodes[entry.row])
        for named in tiers.due(list(looks.values()), ctx.now):
            m.statement.evict(looks[named.task.key].entry, "shuffle")
        if len(m.statement):
            ctx.commit()

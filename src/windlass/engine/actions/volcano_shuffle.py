"""The action ``shuffle`` of a tiered configuration (Volcano's): pods that are to go for their own sake.

The voters name them: those on nodes whose time is over (``tdm``), those that other, less loaded nodes take
(``rescheduling``). Each is asked when it wanted to be.
"""

from __future__ import annotations

from windlass.engine.actions.context import CycleContext, Machinery
from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.nodes.view import TableView
from windlass.engine.preemption.load_rescheduling import Reliever
from windlass.engine.queueing.tier_views import GangLook, TaskLook
from windlass.spi.objects import TaskState
from windlass.spi.tiers import Evicts, Relieves, SaysWhy, Tiers

SHUFFLE = "shuffle"


class VolcanoShuffle:
    name = "volcano-shuffle"

    def __init__(self, machinery: Machinery) -> None:
        self._m = machinery
        self._tiers = tiers_of(machinery.policies)
        self._due: dict[int, float | None] = {}
        """Voter, by its place → when it is to be asked next; ``None`` for never. Of who is not here: now."""

    def run(self, ctx: CycleContext) -> None:
        if self._tiers is None:
            return
        looks: dict[str, TaskLook] | None = None
        for at, voter in enumerate(self._tiers.evicting):
            due = self._due.get(at, ctx.now)
            if due is not None and due <= ctx.now:
                if looks is None:
                    looks = self._running(self._tiers, ctx)
                if isinstance(voter, Relieves):
                    self._relieve(voter, looks, ctx)
                else:
                    self._evict(voter, looks, ctx)
                due = self._due[at] = voter.next_due(ctx.now)
            ctx.wake(due)
        if len(self._m.statement):
            ctx.commit()

    def _evict(self, voter: Evicts, looks: dict[str, TaskLook], ctx: CycleContext) -> None:
        for named in voter.due(list(looks.values()), ctx.now):
            entry = looks[named.task.key].entry
            if entry.state is TaskState.RUNNING:
                why = voter.why(named) if isinstance(voter, SaysWhy) else ""
                self._m.statement.evict(entry, SHUFFLE, why=why)

    def _relieve(self, voter: Relieves, looks: dict[str, TaskLook], ctx: CycleContext) -> None:
        m = self._m
        relief = voter.relief(list(looks.values()), TableView(m.world.table), ctx.now)
        if relief is None:
            return
        reliever = Reliever(m.world, m.placer, m.statement, m.allocation.nearness, relief, looks)
        for candidate in relief.candidates:
            look = looks[candidate.task.key]
            with m.reservations.kept_from(look.gang.entry, ctx.now):
                reliever.relieve(look, SHUFFLE)

    def _running(self, tiers: Tiers, ctx: CycleContext) -> dict[str, TaskLook]:
        """The pods that run in the queues of the configuration, guests left out."""
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
        return looks

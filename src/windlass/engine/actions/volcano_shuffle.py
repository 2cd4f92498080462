"""Action ``shuffle`` of a tiered configuration (Volcano's): evicts pods without a preemptor.

Plugins name the pods: those on nodes outside their time window (``tdm``), and those
that less loaded nodes can take (``rescheduling``). Each plugin is called at the time
that it requested.
"""

from __future__ import annotations

from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.nodes.view import TableView
from windlass.engine.preemption.load_rescheduling import LoadRescheduler
from windlass.engine.queueing.tier_views import EngineGangView, EngineTaskView
from windlass.spi.objects import TaskState
from windlass.spi.tiers import EvictionReason, RelievesLoad, Tiers, VictimTasks

SHUFFLE = "shuffle"


class VolcanoShuffle:
    name = "volcano-shuffle"

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._tiers = tiers_of(context.plugins)
        self._due: dict[int, float | None] = {}
        """Position of the plugin → time of its next call.

        ``None`` for never. A missing entry means now.
        """

    def run(self, cycle: CycleContext) -> None:
        if self._tiers is None:
            return
        looks: dict[str, EngineTaskView] | None = None
        for at, voter in enumerate(self._tiers.evicting):
            due = self._due.get(at, cycle.now)
            if due is not None and due <= cycle.now:
                if looks is None:
                    looks = self._running(self._tiers, cycle)
                if isinstance(voter, RelievesLoad):
                    self._relieve(voter, looks, cycle)
                else:
                    self._evict(voter, looks, cycle)
                due = self._due[at] = voter.next_due(cycle.now)
            cycle.wake(due)
        if len(self._context.statement):
            cycle.commit()

    def _evict(self, voter: VictimTasks, looks: dict[str, EngineTaskView], cycle: CycleContext) -> None:
        for named in voter.due(list(looks.values()), cycle.now):
            entry = looks[named.task.key].entry
            if entry.state is TaskState.RUNNING:
                why = voter.why(named) if isinstance(voter, EvictionReason) else ""
                self._context.statement.evict(entry, SHUFFLE, why=why)

    def _relieve(self, voter: RelievesLoad, looks: dict[str, EngineTaskView], cycle: CycleContext) -> None:
        context = self._context
        relief = voter.relief(list(looks.values()), TableView(context.state.table), cycle.now)
        if relief is None:
            return
        reliever = LoadRescheduler(
            context.state,
            context.placer,
            context.statement,
            context.gang_allocator.domain_selector,
            relief,
            looks,
        )
        for candidate in relief.candidates:
            look = looks[candidate.task.key]
            with context.reservations.reserved_from(look.gang.entry, cycle.now):
                reliever.try_evict(look, SHUFFLE)

    def _running(self, tiers: Tiers, cycle: CycleContext) -> dict[str, EngineTaskView]:
        """Return the pods that run in the queues of the configuration, without guests."""
        context = self._context
        context.running.update(cycle.touched.values())
        looks: dict[str, EngineTaskView] = {}
        for name in context.running.queues():
            queue = context.state.queues.get(name)
            if not tiers.serves(queue):
                continue
            for group in context.running.of(queue).values():
                if group.spec.guest:
                    continue
                gang = EngineGangView(group)
                for entry in group.tasks.values():
                    if entry.state is TaskState.RUNNING:
                        looks[entry.key] = EngineTaskView(
                            entry, gang, cycle.now, context.state.table.nodes[entry.row]
                        )
        return looks

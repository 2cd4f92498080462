"""Action ``shuffle`` of a tiered configuration (Volcano's): evicts pods without a preemptor.

Plugins name the pods: those on nodes outside their time window (``tdm``), and those
that less loaded nodes can take (``rescheduling``). Each plugin is called at the time
that it requested.
"""

from __future__ import annotations

from windlass.engine.actions.context import EVERY_CYCLE, ActionContext, CycleContext
from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.nodes.view import TableView
from windlass.engine.preemption.load_rescheduling import LoadRescheduler
from windlass.engine.queueing.tier_views import EngineGangView, EngineTaskView
from windlass.spi.objects import TaskState
from windlass.spi.tiers import EvictionReason, RelievesLoad, Tiers, VictimTasks

SHUFFLE = "shuffle"


class VolcanoShuffle:
    name = "volcano-shuffle"
    subjects = EVERY_CYCLE

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
        views: dict[str, EngineTaskView] | None = None
        for index, plugin in enumerate(self._tiers.evicting):
            due = self._due.get(index, cycle.now)
            if due is not None and due <= cycle.now:
                if views is None:
                    views = self._running(self._tiers, cycle)
                if isinstance(plugin, RelievesLoad):
                    self._relieve(plugin, views, cycle)
                else:
                    self._evict(plugin, views, cycle)
                due = self._due[index] = plugin.next_due(cycle.now)
            cycle.wake(due)
        if len(self._context.statement):
            cycle.commit()

    def _evict(self, plugin: VictimTasks, views: dict[str, EngineTaskView], cycle: CycleContext) -> None:
        for victim in plugin.due(list(views.values()), cycle.now):
            entry = views[victim.task.key].entry
            if entry.state is TaskState.RUNNING:
                reason = plugin.why(victim) if isinstance(plugin, EvictionReason) else ""
                self._context.statement.evict(entry, SHUFFLE, reason=reason)

    def _relieve(self, plugin: RelievesLoad, views: dict[str, EngineTaskView], cycle: CycleContext) -> None:
        context = self._context
        relief = plugin.relief(list(views.values()), TableView(context.state.table), cycle.now)
        if relief is None:
            return
        rescheduler = LoadRescheduler(
            context.state,
            context.plugins,
            context.placer,
            context.gang_allocator,
            context.statement,
            relief,
            views,
        )
        for candidate in relief.candidates:
            view = views[candidate.task.key]
            with context.reservations.reserved_from(view.gang.entry, cycle.now):
                rescheduler.try_evict(view, SHUFFLE)

    def _running(self, tiers: Tiers, cycle: CycleContext) -> dict[str, EngineTaskView]:
        """Return the pods that run in the queues of the configuration, without guests."""
        context = self._context
        context.running.update(cycle.touched.values())
        views: dict[str, EngineTaskView] = {}
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
                        views[entry.key] = EngineTaskView(
                            entry, gang, cycle.now, context.state.table.nodes[entry.row]
                        )
        return views

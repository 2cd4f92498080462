"""The action ``backfill`` of a tiered configuration (Volcano's): pods that ask for nothing.

Each is placed by itself: it does not wait for its gang, and no queue's share is asked; only limits are,
since such a pod counts as a pod. It is no backfill around work that waits for room: that is the business
of ``allocate`` and its reservations.
"""

from __future__ import annotations

from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.view import TableView
from windlass.engine.queueing.enqueue import closed_reason
from windlass.spi.plugins import StepView


class VolcanoBackfill:
    name = "volcano-backfill"

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._tiers = tiers_of(context.plugins)
        self._waiting: dict[str, GroupEntry] = {}
        """Groups with pods that ask for nothing and wait."""
        self._tried: set[str] = set()
        """Those of them that got nothing, and for which nothing has changed since."""
        self._fresh = True

    def run(self, cycle: CycleContext) -> None:
        if self._tiers is None:
            return
        state = self._context.state
        for group in state.groups.values() if self._fresh else list(cycle.touched.values()):
            self._follow(group)
        self._fresh = False
        if cycle.improved:
            self._tried.clear()
        due = [group for key, group in self._waiting.items() if key not in self._tried]
        for group in sorted(due, key=state.group_order):
            self._serve(cycle, group)

    def _follow(self, group: GroupEntry) -> None:
        """Take in what has become of a group."""
        known = self._context.state.groups.get(group.key) is group and group.group is not None
        self._tried.discard(group.key)
        if known and group.apart and group.asking_nothing:
            self._waiting[group.key] = group
        else:
            self._waiting.pop(group.key, None)

    def _serve(self, cycle: CycleContext, group: GroupEntry) -> None:
        context = self._context
        self._tried.add(group.key)
        if group.spec.held or group.queue is None or closed_reason(group.queue) is not None:
            return
        if context.state.gate.closed(group) or group.not_before > cycle.now:
            return
        failed: set[int] = set()
        for entry in [entry for entry in group.waiting() if entry.cls.asks_nothing]:
            if entry.cls.number in failed:
                continue
            scope = (
                context.gang_allocator.domain_selector.allowed(group, entry.task.subgroup)
                if group.near
                else None
            )
            with context.placer.within(scope):
                placed = not self._refused(group, entry) and context.placer.place_class(
                    context.statement, group, entry.cls, [entry]
                )
            if not placed:
                failed.add(entry.cls.number)
        if len(context.statement) and cycle.consents(group):
            context.statement.commit(cycle.out)
            cycle.touched[group.key] = group
            context.enqueuer.settle(group, cycle.now)
            self._follow(group)

    def _refused(self, group: GroupEntry, entry: TaskEntry) -> bool:
        """Whether a limit stands against the pod."""
        queue = group.queue
        step = StepView(group.spec, entry.cls.request, 1, extra=True, needs=(entry.cls.needs,))
        nodes = TableView(self._context.state.table)
        return queue is not None and any(
            plugin.admits(step, queue.path, nodes) is not None
            for plugin in self._context.plugins.admissions
            if not getattr(plugin, "turns_only", False)
        )

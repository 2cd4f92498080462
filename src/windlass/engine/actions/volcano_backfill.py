"""Action ``backfill`` of a tiered configuration (Volcano's): places best-effort pods.

Each pod is placed by itself, and no fair share applies to it. Only limits apply, because
such a pod counts as a pod. The other pods of a gang do not wait for it. A gang of which
nothing runs yet starts only if its minimum fits. This is not backfill around
reservations, which belongs to ``allocate``.
"""

from __future__ import annotations

from windlass.engine.actions.context import EVERY_CYCLE, ActionContext, CycleContext
from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.view import TableView
from windlass.engine.queueing.enqueue import closed_reason
from windlass.spi.plugins import StepView


class VolcanoBackfill:
    name = "volcano-backfill"
    subjects = EVERY_CYCLE

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._tiers = tiers_of(context.plugins)
        self._waiting: dict[str, GroupEntry] = {}
        """Groups with pending best-effort pods."""
        self._tried: set[str] = set()
        """Groups that got nothing and have not changed since."""
        self._is_new = True

    def run(self, cycle: CycleContext) -> None:
        if self._tiers is None:
            return
        state = self._context.state
        for group in state.groups.values() if self._is_new else list(cycle.touched.values()):
            self._update(group)
        self._is_new = False
        if cycle.improved:
            self._tried.clear()
        due = [group for key, group in self._waiting.items() if key not in self._tried]
        for group in sorted(due, key=state.group_order):
            self._place(cycle, group)

    def _update(self, group: GroupEntry) -> None:
        """Update what is known of a group."""
        known = self._context.state.groups.get(group.key) is group and group.group is not None
        self._tried.discard(group.key)
        if known and group.best_effort_separate and group.best_effort_pending:
            self._waiting[group.key] = group
        else:
            self._waiting.pop(group.key, None)

    def _place(self, cycle: CycleContext, group: GroupEntry) -> None:
        context = self._context
        self._tried.add(group.key)
        if group.spec.held or group.queue is None or closed_reason(group.queue) is not None:
            return
        if context.state.gate.is_closed(group) or group.not_before > cycle.now:
            return
        failed: set[int] = set()
        starts = not group.active
        for entry in [entry for entry in group.waiting() if entry.cls.is_best_effort]:
            if entry.cls.number in failed:
                continue
            scope = (
                context.gang_allocator.domain_selector.allowed(group, entry.task.subgroup)
                if group.has_topology
                else None
            )
            with context.placer.within(scope):
                placed = not self._is_rejected(group, entry) and context.placer.place_class(
                    context.statement, group, entry.cls, [entry]
                )
            if not placed:
                failed.add(entry.cls.number)
        if starts and not _holds_minimum(group):
            context.statement.rollback()
        if len(context.statement) and cycle.is_permitted(group):
            context.statement.commit(cycle.out)
            cycle.touched[group.key] = group
            context.enqueuer.update(group, cycle.now)
            self._update(group)

    def _is_rejected(self, group: GroupEntry, entry: TaskEntry) -> bool:
        """Return whether a limit rejects the pod."""
        queue = group.queue
        step = StepView(group.spec, entry.cls.request, 1, elastic=True, needs=(entry.cls.needs,))
        nodes = TableView(self._context.state.table)
        return queue is not None and any(
            plugin.admits(step, queue.path, nodes) is not None
            for plugin in self._context.plugins.admissions
            if not getattr(plugin, "turns_only", False)
        )


def _holds_minimum(group: GroupEntry) -> bool:
    """Return whether the group holds its minimum without pods that are still pending."""
    roles = group.roles_enforced.items()
    return group.active + group.succeeded >= group.minimum and all(
        group.active_roles.get(role, 0) >= n for role, n in roles
    )

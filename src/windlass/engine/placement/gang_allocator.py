"""Placement of the next tasks of a group (level: gang).

An attempt concerns the next tasks of one group inside one statement: the missing
minimum of a gang, all or nothing, or one more task of an elastic group. A gang of
several classes that does not fit in task order is tried in other orders: the scarcest
class first, and classes that depend on other pods last. If pods of the gang require one
another's domain, one domain is tried after the other
(:mod:`windlass.engine.placement.gathering_domains`).

Tasks that do not fit now may be nominated to capacity that is being released
(``future``). Then none of them is bound and all are nominated. Nominations last over
cycles until the capacity is free, or until it no longer suffices (a terminating task is
stuck, a node was removed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, NextTasks, TaskBatch, TaskEntry, nominated
from windlass.engine.groups.next_step import next_step, nominated_sets, view_of, whole_step_view
from windlass.engine.groups.pending_class import WakeConditions
from windlass.engine.nodes.table import NodeTable
from windlass.engine.placement.domain_selector import DomainSelector
from windlass.engine.placement.gang_filler import GangFiller, PlacementAttempt
from windlass.engine.placement.gathering_domains import GatheringDomains
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.topology_domains import DomainRows
from windlass.engine.plugin_set import PluginSet
from windlass.engine.state.statement import Statement
from windlass.spi.plugins import Rejection, StepView

__all__ = ["GangAllocator", "PlacementAttempt", "wake_conditions"]


class GangAllocator:
    """Places groups, within the admission by queues and plugins."""

    def __init__(self, table: NodeTable, plugins: PluginSet, placer: Placer) -> None:
        self._placer = placer
        self.domain_selector = DomainSelector(table, plugins.plugins)
        self.gathering = GatheringDomains(self.domain_selector, plugins.domains)
        self._filler = GangFiller(table, plugins.admissions, placer, self.domain_selector)

    def allocate_group(self, statement: Statement, group: GroupEntry, step: NextTasks) -> PlacementAttempt:
        """Place the next tasks of a group now, or nominate them to capacity that is being released.

        Valid nominations are kept, broken ones are withdrawn.
        """
        if not group.nominations:
            if group.has_topology:
                if self._filler.place_within_domain(statement, group, step):
                    return PlacementAttempt(True, step.members)
            elif step.is_single_task:
                simple = self._filler.place_single_task(statement, group, step)
                if simple is not None and (simple.done or not statement.terminating):
                    return simple
        attempt = self.try_group(statement, group, step)
        if attempt.done or not (statement.terminating or group.nominations):
            return attempt
        nominated_tasks = nominated(group)
        if (
            not step.extra
            and nominated_tasks
            and self._gang_as_nominated(statement, group, step, nominated_tasks)
        ):
            return PlacementAttempt(True, len(nominated_tasks))
        self._withdraw_broken(statement, nominated_tasks)
        if not statement.terminating:
            return attempt
        if not step.extra:
            kept = nominated(group)
            if kept and len(kept) >= step.members:
                return attempt
            for entry in kept:
                statement.withdraw_nomination(entry)
        later = self.try_group(statement, group, step, future=True)
        if not later.done:
            return attempt
        later.rejections += attempt.rejections  # they may be what it waits for, not nodes
        return later

    def place_nominated(self, statement: Statement, group: GroupEntry, step: NextTasks) -> list[Rejection]:
        """Place nominated tasks as far as their capacity is free now, and withdraw
        broken nominations.

        Returns the rejections of plugins.
        """
        rejections: list[Rejection] = []
        if not step.extra:
            self._gang_as_nominated(statement, group, step, nominated(group), rejections)
        else:
            for subgroup, entries in nominated_sets(group):
                view = view_of(group, entries, extra=True)
                complete = group.ready if subgroup is None else subgroup.is_complete
                self._as_nominated(statement, group, view, entries, complete, rejections)
        self._withdraw_broken(statement, nominated(group))
        return rejections

    def try_group(
        self, statement: Statement, group: GroupEntry, step: NextTasks, *, future: bool = False
    ) -> PlacementAttempt:
        """Try to place the next tasks of a group. On failure the statement is as before.

        The group may use the capacity of its own nominations. With ``future``, capacity
        that is being released suffices. If any missing member of a gang needs it, all
        of its tasks are nominated and none is bound. An elastic group gets one more
        nomination.
        """
        mark = statement.checkpoint()
        nominated_tasks = [] if future and step.extra else nominated(group)
        for entry in nominated_tasks:
            statement.withdraw_nomination(entry)
        if future and step.extra and group.nominations:
            other = next_step(group, unnominated=True)
            if not isinstance(other, NextTasks):
                return PlacementAttempt(False)
            step = other
        start = statement.checkpoint()
        simple = (
            None
            if future or group.has_topology or not step.is_single_task
            else self._filler.place_single_task(statement, group, step)
        )
        attempt = simple or self._try_in_domains(statement, group, step, future)
        if not attempt.done:
            statement.rollback(mark)
            return attempt
        if future and (attempt.pipelined or statement.pipelined(start)):
            if statement.placed(start):
                self._nominate_all(statement, start)
            attempt.pipelined = True
        elif step.extra and nominated_tasks:
            self._nominate_again(statement, nominated_tasks)
        return attempt

    def nominate_at(self, statement: Statement, group: GroupEntry, step: NextTasks, row: int) -> bool:
        """Nominate one task to the only row that can take it after terminating tasks are gone.

        A shortcut for :meth:`try_group` with ``future``. A false result decides nothing.
        """
        if (
            step.members != 1
            or not self.is_by_resources(group, step)
            or not step.batches[0].cls.fit.fits_after_release(row)
        ):
            return False
        statement.pipeline(step.batches[0].entries[0], row)
        return True

    def is_by_resources(self, group: GroupEntry, step: NextTasks) -> bool:
        """Return whether only free resources decide on the placement of the tasks.

        They then have one class and no constraint by other pods, domains, devices or
        queues.
        """
        if len(step.batches) != 1 or step.extra or step.roles or step.options or step.root is not None:
            return False
        cls = step.batches[0].cls
        return (
            not group.has_topology
            and not group.nominations
            and cls.fit.evaluator.plain_future
            and self._placer.is_by_resources(group, cls)
            and not self._filler.admissions_of(group.queue)
        )

    def _gang_as_nominated(
        self,
        statement: Statement,
        group: GroupEntry,
        step: NextTasks,
        entries: Sequence[TaskEntry],
        rejections: list[Rejection] | None = None,
    ) -> bool:
        """Place the missing tasks of a gang on their nominated rows, if all capacity is free now."""
        view = whole_step_view(group, step)
        return len(entries) >= step.members and self._as_nominated(
            statement, group, view, entries, group.ready, rejections
        )

    def _as_nominated(
        self,
        statement: Statement,
        group: GroupEntry,
        view: StepView,
        entries: Sequence[TaskEntry],
        complete: Callable[[], bool],
        rejections: list[Rejection] | None = None,
    ) -> bool:
        """Place tasks on their nominated rows, if all capacity is free now and
        ``complete`` holds then.

        Rejections of plugins are added to ``rejections``.
        """
        mark = statement.checkpoint()
        rows = [(entry, entry.nominated_row, entry.nominated_shares) for entry in entries]
        for entry in entries:
            statement.withdraw_nomination(entry)
        found = self._filler.rejections_of(group, view)
        done = (
            not found
            and all(
                self._placer.place_at(statement, group, entry, row, shares) for entry, row, shares in rows
            )
            and complete()
            and self.domain_selector.is_satisfied(group)
        )
        if not done:
            statement.rollback(mark)
        if rejections is not None:
            rejections += found
        return done

    def _withdraw_broken(self, statement: Statement, entries: Sequence[TaskEntry]) -> None:
        """Withdraw nominations to capacity that will not become free."""
        for entry in entries:
            if not (statement.terminating and self._placer.will_hold(statement, entry)):
                statement.withdraw_nomination(entry)

    @staticmethod
    def _nominate_all(statement: Statement, start: int) -> None:
        """Turn placements since ``start`` into nominations of the same capacity."""
        placements = statement.device_placements(start)
        statement.rollback(start)
        for entry, row, shares in placements:
            statement.pipeline(entry, row, shares)

    def _nominate_again(self, statement: Statement, entries: Sequence[TaskEntry]) -> None:
        """Nominate the remaining elastic tasks again after one of them was placed."""
        remaining: dict[tuple[TaskClass, str], list[TaskEntry]] = {}
        for entry in entries:
            if entry.row < 0:
                subgroup = (
                    entry.task.subgroup if entry.group is not None and entry.group.subgroup_topologies else ""
                )
                remaining.setdefault((entry.cls, subgroup), []).append(entry)
        for (cls, subgroup), waiting in remaining.items():
            group = waiting[0].group
            has_topology = group is not None and group.has_topology
            scope = (
                self.domain_selector.allowed(group, subgroup) if group is not None and has_topology else None
            )
            with self._placer.within(scope):
                self._placer.nominate(statement, cls, waiting)

    def _try_in_domains(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        """Place the tasks in the best domain that takes them, if a domain is requested."""
        if not group.has_topology:
            return self._try_in_domain(statement, group, step, future)
        best = PlacementAttempt(False)
        for scope in self._domains(group, step, future):
            mark = statement.checkpoint()
            with self._placer.within(scope):
                attempt = self._try_in_domain(statement, group, step, future)
            if attempt.done and (not group.subgroup_topologies or self.domain_selector.is_satisfied(group)):
                return attempt
            statement.rollback(mark)
            if attempt.reached > best.reached or (attempt.rejections and not best.rejections):
                best = PlacementAttempt(
                    False, max(attempt.reached, best.reached), attempt.rejections or best.rejections
                )
            if attempt.rejections:
                return best  # queues reject it in every domain
        if not best.reached:
            best.reached = self.domain_selector.max_members(group, step, future=future)
        return best

    def _domains(self, group: GroupEntry, step: NextTasks, future: bool) -> Iterable[DomainRows | None]:
        if group.spec.topology is None:
            return (None,)
        return self.domain_selector.step_candidates(group, step, future=future)

    def _try_in_domain(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        filler = self._filler
        if step.options:
            return filler.place_option(statement, group, step, future)
        simple = step.members == 1 and len(step.batches) == 1 and not step.roles and step.root is None
        if step.extra or simple:
            return filler.place_task(statement, group, step, future)
        if len(step.batches) == 1:
            capacity = self._capacity(step.batches[0].cls, future)
            if capacity < step.members:
                rejections = filler.rejections(group, step.batches[0], step.members, step, future)
                return PlacementAttempt(False, min(capacity, step.members), rejections)
        mark = statement.checkpoint()
        first = filler.place_gang(statement, group, step, step.batches, future)
        if first.done:
            return first
        statement.rollback(mark)
        for order in self._other_orders(step):
            other = filler.place_gang(statement, group, step, order, future)
            if other.done:
                return other
            statement.rollback(mark)
            first.reached = max(first.reached, other.reached)
        for classes, scope in self.gathering.candidates(step, self._placer.scope, future=future):
            for order in (step.batches, *self._other_orders(step)):
                with self._placer.keeping(classes, scope):
                    gathered = filler.place_gang(statement, group, step, order, future)
                if gathered.done:
                    return gathered
                statement.rollback(mark)
                first.reached = max(first.reached, gathered.reached)
        return first

    def _other_orders(self, step: NextTasks) -> list[list[TaskBatch]]:
        """Return orders of the batches other than task order in which the gang may fit."""
        if step.single_class:
            return []
        for batch in step.batches:
            batch.cls.refresh()
        scarcest = sorted(step.batches, key=lambda run: run.cls.total)
        dependent_last = sorted(scarcest, key=lambda run: bool(self._placer.constraints(run.cls)))
        orders: list[list[TaskBatch]] = []
        for order in (scarcest, dependent_last):
            if order != step.batches and order not in orders:
                orders.append(order)
        return orders

    def _capacity(self, cls: TaskClass, future: bool) -> int:
        """Return the number of tasks of a class that nodes can take: an upper bound for the gang."""
        if future:
            return cls.future_total()
        cls.refresh()
        return cls.total

    def rejections_of(self, group: GroupEntry, view: StepView) -> list[Rejection]:
        """Return the rejections of the tasks by plugins in the present state of queues."""
        return self._filler.rejections_of(group, view)


def wake_conditions(
    group: GroupEntry, step: NextTasks, rejections: Sequence[Rejection], placer: Placer
) -> WakeConditions:
    """Return the conditions under which tasks that did not fit are tried again.

    In a strict queue, conditions of nominated groups behind the head are included.
    """
    waits = WakeConditions(rows={entry.nominated_row for entry in nominated(group)})
    for other in group.pending_class.nominated.values() if group.pending_class is not None else ():
        for entry in nominated(other):
            waits.rows.add(entry.nominated_row)
            if placer.constraints(entry.cls):
                waits.domains.add(entry.cls)
    if waits.rows and group.queue is not None:
        # The queue may be what is being released, not the node.
        waits.queues.update(ancestor.name for ancestor in group.queue.path)
    if group.queue is not None:
        waits.queues |= {queue.name for queue in group.queue.path if queue.flavored}
        waits.queues |= group.queue.tree.entitled_by_queue.keys()  # its reserved capacity
    for rejection in rejections:
        if rejection.queue:
            waits.queues.add(rejection.queue)
        if rejection.elsewhere or not (rejection.queue or rejection.permanent):
            waits.anything = True
    classes = {batch.cls for batch in step.batches}
    for cls in classes:
        if placer.constraints(cls):
            waits.domains.add(cls)
    (first, *others) = classes
    if others or not classes.isdisjoint(waits.domains) or (step.members == 1 and not rejections):
        waits.any_capacity |= classes  # a single task needs no count
        return waits
    first.refresh()
    if first.total < step.members:
        waits.capacity[first] = step.members
    elif not rejections:
        waits.any_capacity |= classes
    return waits

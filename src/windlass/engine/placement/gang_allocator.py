"""The action ``allocate``: give waiting groups what they ask for next, as long as it can be had.

One attempt is one group's next step inside one statement: a gang's missing minimum, all or nothing,
or one more task of an elastic group. A gang of several classes that does not fit in task order is
tried in a few other orders: the scarcest class first, and what depends on other pods last.

A step that cannot be had now may be promised room that is being vacated (``future``): then nothing of it
is bound, all of it is promised, and what is promised stays so over cycles until it is free, or until it
no longer fits (the one who leaves is stuck, a node went away).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry, nominated
from windlass.engine.groups.next_step import (
    NextTasks,
    TaskBatch,
    next_step,
    nominated_units,
    view_of,
    whole_step,
)
from windlass.engine.nodes.table import NodeTable
from windlass.engine.pending.scheduling_queue import WakeConditions
from windlass.engine.placement.domain_selector import DomainSelector
from windlass.engine.placement.gang_filler import GangFiller, PlacementAttempt
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.topology_domains import DomainRows
from windlass.engine.plugin_set import PluginSet
from windlass.engine.state.statement import Statement
from windlass.spi.plugins import Rejection, StepView

__all__ = ["GangAllocator", "PlacementAttempt", "waits_for"]


class GangAllocator:
    """``gated`` is false for a trial that asks no queue and no policy for its consent."""

    def __init__(self, table: NodeTable, plugins: PluginSet, placer: Placer, *, gated: bool = True) -> None:
        self._placer = placer
        self.domain_selector = DomainSelector(table, plugins.plugins)
        self._filler = GangFiller(table, plugins.admissions if gated else [], placer, self.domain_selector)

    def allocate_step(self, statement: Statement, group: GroupEntry, step: NextTasks) -> PlacementAttempt:
        """Let a group have its step now, or else promise it room that is being vacated.

        Promises that it has and that still hold are left alone; those that do not are given up.
        """
        if not group.promises:
            if group.near:
                if self._filler.place_within_domain(statement, group, step):
                    return PlacementAttempt(True, step.members)
            elif step.alone:
                found = self._filler.place_single_task(statement, group, step)
                if found is not None and (found.done or not statement.leaving):
                    return found
        attempt = self.try_step(statement, group, step)
        if attempt.done or not (statement.leaving or group.promises):
            return attempt
        mine = nominated(group)
        if not step.extra and mine and self._gang_as_nominated(statement, group, step, mine):
            return PlacementAttempt(True, len(mine))
        self._give_up_broken(statement, mine)
        if not statement.leaving:
            return attempt
        if not step.extra:
            kept = nominated(group)
            if kept and len(kept) >= step.members:
                return attempt
            for entry in kept:
                statement.withdraw_nomination(entry)
        later = self.try_step(statement, group, step, future=True)
        if not later.done:
            return attempt
        later.rejections += attempt.rejections  # it may wait for them rather than for its nodes
        return later

    def redeem(self, statement: Statement, group: GroupEntry, step: NextTasks) -> list[Rejection]:
        """Let a group have what it is promised and nothing else, as far as that is free by now; what does not hold
        is given up. Returns what policies say against what is free."""
        rejections: list[Rejection] = []
        if not step.extra:
            self._gang_as_nominated(statement, group, step, nominated(group), rejections)
        else:
            for part, entries in nominated_units(group):
                view = view_of(group, entries, extra=True)
                complete = group.ready if part is None else part.complete
                self._as_nominated(statement, group, view, entries, complete, rejections)
        self._give_up_broken(statement, nominated(group))
        return rejections

    def try_step(
        self, statement: Statement, group: GroupEntry, step: NextTasks, *, future: bool = False
    ) -> PlacementAttempt:
        """Try a group's step. On failure the statement is as it was before.

        What is promised to the group's own tasks is theirs to use. ``future``: room that is being vacated
        will do. If any member of a gang's minimum needs it, all of the step is promised and nothing is
        bound; of an elastic group one more task, beside those that are promised room already.
        """
        mark = statement.checkpoint()
        mine = [] if future and step.extra else nominated(group)
        for entry in mine:
            statement.withdraw_nomination(entry)
        if future and step.extra and group.promises:
            other = next_step(group, unpromised=True)
            if not isinstance(other, NextTasks):
                return PlacementAttempt(False)
            step = other
        start = statement.checkpoint()
        found = (
            None
            if future or group.near or not step.alone
            else self._filler.place_single_task(statement, group, step)
        )
        attempt = found or self._try_in_domains(statement, group, step, future)
        if not attempt.done:
            statement.rollback(mark)
            return attempt
        if future and (attempt.pipelined or statement.pipelined(start)):
            if statement.placed(start):
                self._nominate_all(statement, start)
            attempt.pipelined = True
        elif step.extra and mine:
            self._nominate_again(statement, mine)
        return attempt

    def nominate_at(self, statement: Statement, group: GroupEntry, step: NextTasks, row: int) -> bool:
        """:meth:`try_step` with ``future`` of one task, on a row that is the only one to take it once all that
        terminates is gone, without the ceremony. Not done is not a no."""
        if (
            step.members != 1
            or not self.by_amounts(group, step)
            or not step.batches[0].cls.fit.fits_after_release(row)
        ):
            return False
        statement.pipeline(step.batches[0].entries[0], row)
        return True

    def by_amounts(self, group: GroupEntry, step: NextTasks) -> bool:
        """Whether nothing but what nodes have left decides where and when the step goes: tasks of one class, of which
        no other pod, no domain, no card and no queue has a say."""
        if len(step.batches) != 1 or step.extra or step.roles or step.options or step.root is not None:
            return False
        cls = step.batches[0].cls
        return (
            not group.near
            and not group.promises
            and cls.fit.evaluator.plain_future
            and self._placer.by_amounts(group, cls)
            and not self._filler.asked(group.queue)
        )

    def _gang_as_nominated(
        self,
        statement: Statement,
        group: GroupEntry,
        step: NextTasks,
        mine: Sequence[TaskEntry],
        rejections: list[Rejection] | None = None,
    ) -> bool:
        """Place what a gang lacks exactly where it was promised room, if all of it is free by now."""
        view = whole_step(group, step)
        return len(mine) >= step.members and self._as_nominated(
            statement, group, view, mine, group.ready, rejections
        )

    def _as_nominated(
        self,
        statement: Statement,
        group: GroupEntry,
        view: StepView,
        mine: Sequence[TaskEntry],
        complete: Callable[[], bool],
        rejections: list[Rejection] | None = None,
    ) -> bool:
        """Place tasks exactly where they were promised room, if all of it is free by now and they make ``complete``
        what needs them. What policies say against it is added to ``refusals``."""
        mark = statement.checkpoint()
        rows = [(entry, entry.promised, entry.kept) for entry in mine]
        for entry in mine:
            statement.withdraw_nomination(entry)
        said = self._filler.refusals_of(group, view)
        done = (
            not said
            and all(self._placer.place_at(statement, group, entry, row, cuts) for entry, row, cuts in rows)
            and complete()
            and self.domain_selector.keeps(group)
        )
        if not done:
            statement.rollback(mark)
        if rejections is not None:
            rejections += said
        return done

    def _give_up_broken(self, statement: Statement, entries: Sequence[TaskEntry]) -> None:
        """Take those promises back that will not be kept."""
        for entry in entries:
            if not (statement.leaving and self._placer.holds(statement, entry)):
                statement.withdraw_nomination(entry)

    @staticmethod
    def _nominate_all(statement: Statement, start: int) -> None:
        """Turn what was placed since ``start`` into promises of the same room."""
        seats = statement.device_placements(start)
        statement.rollback(start)
        for entry, row, cuts in seats:
            statement.pipeline(entry, row, cuts)

    def _nominate_again(self, statement: Statement, entries: Sequence[TaskEntry]) -> None:
        """One of several elastic tasks got a place: the others keep waiting for what is being vacated."""
        left: dict[tuple[TaskClass, str], list[TaskEntry]] = {}
        for entry in entries:
            if entry.row < 0:
                part = entry.task.subgroup if entry.group is not None and entry.group.near_parts else ""
                left.setdefault((entry.cls, part), []).append(entry)
        for (cls, part), waiting in left.items():
            group = waiting[0].group
            near = group is not None and group.near
            scope = self.domain_selector.allowed(group, part) if group is not None and near else None
            with self._placer.within(scope):
                self._placer.nominate(statement, cls, waiting)

    def _try_in_domains(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        """The step, in the best domain that takes it where one is asked for."""
        if not group.near:
            return self._try_in_domain(statement, group, step, future)
        best = PlacementAttempt(False)
        for scope in self._scopes(group, step, future):
            mark = statement.checkpoint()
            with self._placer.within(scope):
                found = self._try_in_domain(statement, group, step, future)
            if found.done and (not group.near_parts or self.domain_selector.keeps(group)):
                return found
            statement.rollback(mark)
            if found.reached > best.reached or (found.rejections and not best.rejections):
                best = PlacementAttempt(
                    False, max(found.reached, best.reached), found.rejections or best.rejections
                )
            if found.rejections:
                return best  # the queues say the same everywhere
        if not best.reached:
            best.reached = self.domain_selector.most(group, step, future=future)
        return best

    def _scopes(self, group: GroupEntry, step: NextTasks, future: bool) -> Iterable[DomainRows | None]:
        if group.spec.topology is None:
            return (None,)
        return self.domain_selector.of_step(group, step, future=future)

    def _try_in_domain(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        filler = self._filler
        if step.options:
            return filler.options(statement, group, step, future)
        simple = step.members == 1 and len(step.batches) == 1 and not step.roles and step.root is None
        if step.extra or simple:
            return filler.place_task(statement, group, step, future)
        if len(step.batches) == 1:
            room = self._room(step.batches[0].cls, future)
            if room < step.members:
                rejections = filler.rejections(group, step.batches[0], step.members, step, future)
                return PlacementAttempt(False, min(room, step.members), rejections)
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
        return first

    def _other_orders(self, step: NextTasks) -> list[list[TaskBatch]]:
        """Orders of a gang's runs, beside task order, in which it may fit where it else would not."""
        if step.single_class:
            return []
        for batch in step.batches:
            batch.cls.refresh()
        scarcest = sorted(step.batches, key=lambda run: run.cls.total)
        dependent_last = sorted(scarcest, key=lambda run: bool(self._placer.constraints(run.cls)))
        found: list[list[TaskBatch]] = []
        for order in (scarcest, dependent_last):
            if order != step.batches and order not in found:
                found.append(order)
        return found

    def _room(self, cls: TaskClass, future: bool) -> int:
        """How many of a class the nodes hold, taken one by one: if too few, nothing needs to be tried."""
        if future:
            return cls.future_total()
        cls.refresh()
        return cls.total

    def refusals_of(self, group: GroupEntry, view: StepView) -> list[Rejection]:
        """What the policies say against a step, the queues being as they are."""
        return self._filler.refusals_of(group, view)


def waits_for(
    group: GroupEntry, step: NextTasks, rejections: Sequence[Rejection], placer: Placer
) -> WakeConditions:
    """What would help a step that failed, and in a strict line those behind it to what is promised to them."""
    waits = WakeConditions(rows={entry.promised for entry in nominated(group)})
    for other in group.bucket.nominated.values() if group.bucket is not None else ():
        for entry in nominated(other):
            waits.rows.add(entry.promised)
            if placer.constraints(entry.cls):
                waits.domains.add(entry.cls)
    if waits.rows and group.queue is not None:
        # It may be the queue, not the node, that is being vacated.
        waits.queues.update(ancestor.name for ancestor in group.queue.path)
    if group.queue is not None:
        waits.queues |= {queue.name for queue in group.queue.path if queue.flavored}
        waits.queues |= group.queue.tree.entitled_by_queue.keys()  # what is kept for them
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
        waits.any_capacity |= (
            classes  # for a single task the same as room for one: nobody needs to count how much there is
        )
        return waits
    first.refresh()
    if first.total < step.members:
        waits.capacity[first] = step.members
    elif not rejections:
        waits.any_capacity |= classes
    return waits

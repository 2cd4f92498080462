"""Actions that evict for a preemptor: ``consolidation``, ``reclaim``, ``preempt``.

They differ only in their name. Plugins define what a preemption may do under that name
(:mod:`windlass.spi.victims`). One preemption is one transaction. All evictions,
nominations and moves for a group are decided together, after its whole step is proven
to fit. Otherwise nothing happens.

A failed group is not tried again until something that could matter has changed:
resources of nodes, sums or rules of queues, nodes themselves, or a time that a plugin
named. There may be an easily checked reason for the failure: too little left in total,
no victims of lower priority, the share of the queue. Then only this reason is checked.
The number of repeated tries per cycle is bounded. In a cluster with constant changes,
groups that failed often pause between their tries.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from windlass.api.reasons import Reason
from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.actions.preemptor_order import PreemptorOrder
from windlass.engine.actions.retry_backoff import BackoffRecord, Obstacle, RetryBackoff
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, NextTasks, TaskEntry
from windlass.engine.groups.next_step import is_nominated, whole_step_view
from windlass.engine.groups.pending_class import BudgetBlocker, PendingClass
from windlass.engine.nodes.table import NodeTable
from windlass.engine.placement.gang_allocator import wake_conditions
from windlass.engine.preemption.retake_guard import CompetingGroups, exceeded_resources, nothing_free
from windlass.engine.preemption.solver import Fragmented, InsufficientTotal, PreemptionSolver
from windlass.engine.preemption.victim_candidates import NoVictims, VictimCandidates
from windlass.engine.queueing.never_fits import NeverFits
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.engine.queues.flavors import with_required_flavors
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.victims.budget_blockers import blockers_of, grants
from windlass.engine.victims.victim_pool import VictimPool
from windlass.spi.victims import CompetingGroup, Preemption, PreemptionDenied, PreemptionTerms

MAX_REPEATED = 16
"""Maximum number of failed pending classes that are tried again in one cycle."""
MAX_PREEMPTIONS = 256
"""Maximum number of preemptions of one action in one cycle."""
MAX_BUDGET_CHECKS = 16
"""Maximum number of groups per cycle for which blocking disruption budgets are determined."""
RECLAIM = "reclaim"
MAX_MEMBERS = 8
"""Maximum number of groups of a pending class that are tried as preemptor."""


class PreemptActionRecord(msgspec.Struct, frozen=True):
    """State of an action.

    ``moved``: something has changed since the last pass, which was at ``at`` (Unix
    seconds).
    """

    new: bool
    moved: bool
    pending_classes: list[BackoffRecord] = msgspec.field(name="buckets")
    at: float = 0.0


class PreemptAction:
    """One of the actions. It remembers which pending classes failed."""

    def __init__(self, name: str, context: ActionContext) -> None:
        self.name = name
        self._context = context
        self.subjects: Collection[object] = context.scheduling_queue.pending_classes
        self._solver = PreemptionSolver(
            context.state, context.plugins, context.placer, context.gang_allocator, context.statement
        )
        self.retries = RetryBackoff(context.scheduling_queue, context.state.config.claim_pause_seconds)
        self._never_fits = NeverFits(context.state.table)
        self._is_new = True
        self._pool = VictimPool()
        self._seen: tuple[object, ...] = ()
        self._budget_queries = 0
        """Number of budget queries when the pass began."""
        self._budget_checks_left = MAX_BUDGET_CHECKS

    # ------------------------------------------------------------------ pass

    def run(self, cycle: CycleContext) -> None:
        if self._context.plugins.preemption_policies:
            self.serve(cycle)

    def serve(self, cycle: CycleContext) -> None:
        """Try all groups that may succeed now, in order."""
        context = self._context
        retries = self.retries
        if not context.scheduling_queue.pending_classes:
            return  # no group is pending
        if retries.idle and not (
            self._is_new or context.queue_heap.waiting or any(map(self._applies_to, cycle.parked))
        ):
            return
        stamp = context.statement.commits, len(cycle.touched)
        if cycle.running_stamp != stamp:
            cycle.running_stamp = stamp
            context.running.update(cycle.touched.values())
        self._pool.renew(self._candidate_state(cycle.now))
        self._solver.time = cycle.now
        due = self._due(cycle)
        if due:
            self._budget_queries, self._budget_checks_left = context.state.budgets.queries, MAX_BUDGET_CHECKS
            self._serve(cycle, due)
        if retries.times:
            cycle.wake(retries.times[0][0])

    def _serve(self, cycle: CycleContext, due: list[PendingClass]) -> None:
        """Try pending classes in queue order, which is computed again after a success.

        After :data:`MAX_PREEMPTIONS` successes, the rest follows in the next cycle, which starts
        at once.
        """
        successes = 0
        while due:
            if successes >= MAX_PREEMPTIONS:
                self.retries.defer(due)
                cycle.unfinished = True
                return
            successes += 1
            order = PreemptorOrder(due, self._context.plugins.queue_orders)
            if not any(self._try(cycle, pending_class) for pending_class in order):
                return
            due = [
                pending_class for pending_class in order.remaining() if self.retries.is_pending(pending_class)
            ]

    def _candidate_state(self, now: float) -> Hashable:
        """Return the state that decides on candidates, besides groups and named times."""
        state, is_cacheable = self._context.state, self._context.plugins.victims_are_lasting
        if not is_cacheable or state.budgets.any or state.queues.flavors:
            return object()
        return state.queues.version

    # ------------------------------------------------------------------ due classes

    def _due(self, cycle: CycleContext) -> list[PendingClass]:
        """Return the pending classes to try: new ones, and those with possible changes."""
        context, retries, now = self._context, self.retries, cycle.now
        seen, self._seen = self._seen, self._revision_key()
        if cycle.state_changed or self._seen != seen:
            retries.new_revision()
        retries.clear()
        result = {
            pending_class: None for pending_class in cycle.parked if self._has_to_preempt(pending_class, now)
        }
        if self._is_new:
            # Groups that are pending from before this action started were never tried by it.
            self._is_new = False
            result.update(
                (pending_class, None)
                for pending_class in context.scheduling_queue.pending_classes.values()
                if self._applies_to(pending_class)
            )
        elif context.queue_heap.waiting:
            waiting = (
                b
                for b in context.scheduling_queue.pending_classes.values()
                if not b.parked and self._applies_to(b)
            )
            result.update(
                (pending_class, None)
                for pending_class in waiting
                if not retries.is_pausing(pending_class, now)
            )
        if not retries.idle:
            for pending_class in (*retries.reached(now), *retries.again(now, MAX_REPEATED)):
                result[pending_class] = None
            if retries.has_more:
                cycle.wake(now)
        return list(result)

    def _has_to_preempt(self, pending_class: PendingClass, now: float) -> bool:
        """Return whether a class that just found no capacity has to be tried."""
        retries = self.retries
        if (
            retries.is_stuck(pending_class)
            or not self._applies_to(pending_class)
            or not retries.is_pending(pending_class)
        ):
            return False
        if retries.is_pausing(pending_class, now):
            retries.try_after_pause(pending_class)
            return False
        return True

    def _revision_key(self) -> tuple[int, int, int]:
        """Return a key that changes with decisions, nodes and possible victims. Trials do not count."""
        context = self._context
        return context.statement.commits, context.state.table.shape, context.state.ledger.confirmed

    def _applies_to(self, pending_class: PendingClass) -> bool:
        """Return whether any plugin may grant a preemption to groups of the class."""
        dialect = pending_class.dialect
        return dialect is None or self._context.plugins.may_grant(self.name, dialect)

    # ------------------------------------------------------------------ for ``dump``

    def as_record(self) -> PreemptActionRecord:
        """Return the failed classes and their backoff."""
        buckets = self.retries.as_records(self.name, _describe)
        return PreemptActionRecord(
            self._is_new, self._seen != self._revision_key(), buckets, self._solver.time
        )

    def restore(self, record: PreemptActionRecord) -> None:
        """Restore the result of :meth:`as_record`, after all groups are pending again."""
        groups = self._context.state.groups
        self._is_new = record.new
        self.retries.reset()
        self._seen = () if record.moved else self._revision_key()
        self._solver.time = record.at
        for bucket_record in record.pending_classes:
            pending_class = groups[bucket_record.group].pending_class
            if pending_class is not None:
                if bucket_record.budget_blockers:
                    pending_class.budget_blockers[self.name] = bucket_record.budget_blockers
                self.retries.restore(
                    pending_class,
                    bucket_record,
                    self._obstacle(pending_class, bucket_record.obstacle, record.at),
                )

    def _obstacle(
        self, pending_class: PendingClass, description: tuple[str, ...], now: float
    ) -> Obstacle | None:
        """Return the obstacle that :func:`_describe` describes; ``None`` if there is none."""
        context, head = self._context, pending_class.head()
        match description:
            case ("nodes",):
                return NoNodeFits(context.state.table, context.state.table.shape)
            case ("lacking", name, units):
                return self._solver.insufficient_total(name, int(units))
            case ("nobody", name, below, scope):
                queue = context.state.queues.get(name)
                return NoVictims(context.running, queue, int(below) if below else None, own=scope == "own")
            case ():
                return None
            case (kind,):
                not_blocking = NoNodeFits(context.state.table, NO_SHAPE)
                if head is None or head.step is None or head.queue is None:
                    return not_blocking
                preemption = self._preemption_of(head, head.step, head.queue, now)
                terms = self._terms(preemption)
                if isinstance(terms, PreemptionDenied):
                    return terms.stands if kind == "denied" and terms.stands is not None else not_blocking
                candidates = VictimCandidates(
                    context.state, context.running, context.plugins, preemption, terms, self._pool
                )
                result = self._solver.fragmentation(candidates, terms.groups, head.step)
                return result if kind == "scattered" else not_blocking
            case _:
                raise ValueError(f"no obstacle is told by {description}")

    # ------------------------------------------------------------------ one preemption

    def _try(self, cycle: CycleContext, pending_class: PendingClass) -> bool:
        """Evict for the first group of the class that may preempt. Return whether this succeeded."""
        until: float | None = None
        obstacle: Obstacle | None = None
        for index, group in enumerate(_first_members(pending_class)):
            group.rejection = None
            outcome = self._preempt(cycle, group)
            obstacle = None if index else outcome.obstacle
            if outcome.done:
                self.retries.succeeded(pending_class)
                pending_class.budget_blockers.pop(self.name, None)
                return True
            until = _earlier(until, outcome.until)
            if not outcome.try_next or pending_class.is_strict:
                break
        self._record_budget_blockers(cycle, pending_class)
        self.retries.failed(pending_class, cycle.now, until, None if pending_class.is_strict else obstacle)
        return False

    def _record_budget_blockers(self, cycle: CycleContext, pending_class: PendingClass) -> None:
        """Record whether budgets alone blocked the first group of the class.

        Nothing is evaluated unless budgets have been queried in this pass.
        """
        blockers: tuple[BudgetBlocker, ...] = ()
        budgets, head = self._context.state.budgets, pending_class.head()
        if head is not None and budgets.queries != self._budget_queries and self._budget_checks_left > 0:
            self._budget_checks_left -= 1
            blockers = blockers_of(budgets, self._victims_if_granted(cycle, head, None))
            if blockers and not self._victims_if_granted(cycle, head, grants(blockers)):
                blockers = tuple([BudgetBlocker(stop.budget, 0, stop.allowed) for stop in blockers])
        if pending_class.budget_blockers.get(self.name, ()) == blockers:
            return
        pending_class.budget_blockers[self.name] = blockers
        if pending_class.parked:
            pending_class.explanation, pending_class.reported_codes = None, ""
            cycle.parked[pending_class] = None

    def _victims_if_granted(
        self, cycle: CycleContext, group: GroupEntry, granted: Mapping[str, int] | None
    ) -> list[TaskEntry]:
        """Return the victims for a group's step if budgets allowed additional evictions.

        ``granted``: additional evictions by budget; ``None``: any number. Empty if
        nothing helps.
        """
        with self._context.state.budgets.granting(granted):
            victims = self._victims(cycle, group)
            self._context.statement.rollback()
        return victims

    def _victims(self, cycle: CycleContext, group: GroupEntry) -> list[TaskEntry]:
        """Return the victims for a group's step. The statement stays open."""
        prepared = self._preemption(group, cycle.now)
        if isinstance(prepared, PreemptionOutcome):
            return []
        preemption, terms, step = prepared
        candidates = VictimCandidates(
            self._context.state, self._context.running, self._context.plugins, preemption, terms
        )
        with self._context.reservations.reserved_from(group, cycle.now):
            self._solver.solve(preemption, terms, candidates, group, step)
        return self._context.statement.proposed()[1]

    def _preempt(self, cycle: CycleContext, group: GroupEntry) -> PreemptionOutcome:
        """Evict for one group's step."""
        context, prepared = self._context, self._preemption(group, cycle.now)
        if isinstance(prepared, PreemptionOutcome):
            return prepared
        preemption, terms, step = prepared
        candidates = VictimCandidates(
            context.state, context.running, context.plugins, preemption, terms, self._pool
        )
        with context.reservations.reserved_from(group, cycle.now):
            result = self._solver.solve(preemption, terms, candidates, group, step)
            if (
                result is None
                and isinstance(preemption.competitors, CompetingGroups)
                and preemption.competitors.was_used
            ):
                with nothing_free(context.state.table, exceeded_resources(preemption)):
                    result = self._solver.solve(preemption, terms, candidates, group, step)
        if result is None:
            if len(context.statement):
                raise RuntimeError(f"a claim of {group.key} that failed left something behind")
            return PreemptionOutcome(until=candidates.wake_at, obstacle=self._solver.obstacle)
        cycle.touched[group.key] = group
        context.running.mark_changed([group, *(unit.group for unit in result)])
        if not cycle.commit(group):
            return PreemptionOutcome(
                until=cycle.now + (PAUSE_SECONDS if group.rejection is not None else 0.0)
            )
        context.enqueuer.update(group, cycle.now)
        park_nominated(self._context, cycle, group)
        return PreemptionOutcome(done=True)

    def _preemption(
        self, group: GroupEntry, now: float
    ) -> tuple[Preemption, PreemptionTerms, NextTasks] | PreemptionOutcome:
        """Return a group's preemption with its terms and step, or the outcome if it has none."""
        context, step = self._context, group.step
        if step is None or group.queue is None:
            return PreemptionOutcome()
        if not context.plugins.may_grant(self.name, group.spec.dialect):
            return PreemptionOutcome()
        if self._never_fits.never_holds(step):
            return PreemptionOutcome(obstacle=NoNodeFits(context.state.table, context.state.table.shape))
        if group.nominations and is_nominated(group, step):
            return PreemptionOutcome()
        preemption = self._preemption_of(group, step, group.queue, now)
        terms = self._terms(preemption)
        if isinstance(terms, PreemptionDenied):
            obstacle = None if terms.personal else terms.stands
            return PreemptionOutcome(until=terms.until, try_next=terms.personal, obstacle=obstacle)
        return preemption, terms, step

    def _preemption_of(self, group: GroupEntry, step: NextTasks, queue: QueueEntry, now: float) -> Preemption:
        """Return the preemption of a group in a queue."""
        view = whole_step_view(group, step)
        request = with_required_flavors(step, view.request, self._context.state.queues.flavors)
        rivals = CompetingGroups(self._competing_groups(step, queue))
        return Preemption(
            self.name, group.spec, request, view.tasks, queue.path, step.extra, now, competitors=rivals
        )

    def _competing_groups(self, step: NextTasks, queue: QueueEntry) -> Iterator[CompetingGroup]:
        """Yield the first waiting group of each pending class of other queues, if groups reclaim.

        Groups with sufficient nominations are skipped.
        """
        context = self._context
        if RECLAIM not in context.state.config.actions:
            return
        own_classes = {batch.cls for batch in step.batches}
        for pending_class in context.scheduling_queue.pending_classes.values():
            for other in _first_members(pending_class) if pending_class.queue is not queue else ():
                other_step = other.step
                if other_step is None or other.group is None or is_nominated(other, other_step):
                    continue
                if _share_nodes(
                    own_classes, {batch.cls for batch in other_step.batches}
                ) and not self._never_fits.never_holds(other_step):
                    request = whole_step_view(other, other_step).request
                    yield CompetingGroup(other.group, request, pending_class.queue.path)
                break

    def _terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied:
        terms: PreemptionTerms | None = None
        for plugin in self._context.plugins.preemption_policies:
            response = plugin.preemption_terms(preemption)
            if isinstance(response, PreemptionDenied):
                return response
            terms = terms or response
        return terms or PreemptionDenied(Reason.INSUFFICIENT_RESOURCES)


class PreemptionOutcome(msgspec.Struct, frozen=True):
    """Result of a preemption.

    ``try_next``: it tells nothing about the other groups of the class.
    ``obstacle``: easily checked reason for the failure.
    """

    done: bool = False
    until: float | None = None
    try_next: bool = False
    obstacle: Obstacle | None = None


NO_SHAPE = -1
"""Shape that nodes never have."""


class NoNodeFits(msgspec.Struct, frozen=True):
    """Obstacle: not even empty nodes hold the step, until a node is added or changed."""

    table: NodeTable
    shape: int

    def __call__(self) -> bool:
        return self.table.shape == self.shape


def _describe(obstacle: Obstacle) -> tuple[str, ...]:
    """Return an obstacle in its written form.

    ``denied`` and ``scattered``: the preemption itself tells the details.
    ``gone``: it does not hold any more, which was not noticed yet.
    """
    match obstacle:
        case NoNodeFits():
            return ("nodes",) if obstacle() else ("gone",)
        case InsufficientTotal(name=name, units=units):
            return ("lacking", name, str(units))
        case NoVictims(queue=queue, below=below, own=own):
            return ("nobody", queue.name, "" if below is None else str(below), "own" if own else "others")
        case Fragmented():
            return ("scattered",)
        case _:
            return ("denied",) if obstacle() else ("gone",)


def _share_nodes(first: Iterable[TaskClass], second: Iterable[TaskClass]) -> bool:
    """Return whether any node accepts tasks of one of the first and one of the second classes."""
    for cls in (*first, *second):
        cls.refresh()
    return any([bool((cls.static & other.static).any()) for cls in first for other in second])


def _first_members(pending_class: PendingClass) -> Iterator[GroupEntry]:
    """Yield the first groups of a pending class in order.

    The class must not change during the iteration, except for the last one.
    """
    return (pending_class.members[key] for key in islice(pending_class.order, MAX_MEMBERS))


def park_nominated(context: ActionContext, cycle: CycleContext, group: GroupEntry) -> None:
    """Park a group that waits for nominated capacity until this capacity is free."""
    pending_class = group.pending_class
    if pending_class is None or pending_class.parked or group.step is None:
        return
    rejections = context.gang_allocator.rejections_of(group, whole_step_view(group, group.step))
    conditions = wake_conditions(group, group.step, rejections, context.placer)
    # Releases of its queues free quota as well.
    conditions.queues.update(queue.name for queue in pending_class.queue.path)
    context.scheduling_queue.park(pending_class, conditions)
    cycle.parked[pending_class] = None


def _earlier(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)

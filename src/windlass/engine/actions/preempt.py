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

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from windlass.api.reasons import Reason
from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.actions.preemptor_order import PreemptorOrder
from windlass.engine.actions.retry_backoff import BackoffRecord, Obstacle, RetryBackoff
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.groups.next_step import NextTasks, is_nominated, whole_step
from windlass.engine.nodes.table import NodeTable
from windlass.engine.pending.scheduling_queue import PendingClass
from windlass.engine.placement.gang_allocator import waits_for
from windlass.engine.preemption.retake_guard import CompetingGroups, exceeded_resources, nothing_free
from windlass.engine.preemption.solver import Fragmented, InsufficientTotal, PreemptionSolver
from windlass.engine.preemption.victim_candidates import NoVictims, VictimCandidates
from windlass.engine.queueing.never_fits import NeverFits
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.engine.queues.flavors import pinned_by
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.victims.budget_blockers import BudgetBlocker, blockers_of, grants
from windlass.engine.victims.victim_pool import VictimPool
from windlass.spi.victims import CompetingGroup, Preemption, PreemptionDenied, PreemptionTerms

AGAIN = 16
"""Maximum number of failed pending classes that are tried again in one cycle."""
CLAIMS = 256
"""Maximum number of preemptions of one action in one cycle."""
STOPS = 16
"""Maximum number of groups per cycle for which blocking disruption budgets are determined."""
RECLAIM = "reclaim"
MEMBERS = 8
"""Maximum number of groups of a pending class that are tried as preemptor."""


class PreemptActionRecord(msgspec.Struct, frozen=True):
    """State of an action.

    ``moved``: something has changed since the last pass, which was at ``at`` (Unix
    seconds).
    """

    new: bool
    moved: bool
    buckets: list[BackoffRecord]
    at: float = 0.0


class PreemptAction:
    """One of the actions. It remembers which pending classes failed."""

    def __init__(self, name: str, machinery: ActionContext) -> None:
        self.name = name
        self._context = machinery
        context = machinery
        self._solver = PreemptionSolver(
            context.state, context.plugins, context.placer, context.gang_allocator, context.statement
        )
        self.retries = RetryBackoff(context.scheduling_queue, context.state.config.claim_pause_seconds)
        self._never_fits = NeverFits(context.state.table)
        self._new = True
        self._pool = VictimPool()
        self._seen: tuple[object, ...] = ()
        self._asked = 0
        """Number of budget queries when the pass began."""
        self._stops_left = STOPS

    # ------------------------------------------------------------------ pass

    def run(self, cycle: CycleContext) -> None:
        if self._context.plugins.claims:
            self.serve(cycle)

    def serve(self, cycle: CycleContext) -> None:
        """Try all groups that may succeed now, in order."""
        context = self._context
        retries = self.retries
        if not context.scheduling_queue.pending_classes:
            return  # no group is pending
        if retries.idle and not (
            self._new or context.queue_heap.waiting or any(map(self._concerns, cycle.parked))
        ):
            return
        followed = context.statement.decided, len(cycle.touched)
        if cycle.followed != followed:
            cycle.followed = followed
            context.running.update(cycle.touched.values())
        self._pool.renew(self._standing(cycle.now))
        self._solver.time = cycle.now
        due = self._due(cycle)
        if due:
            self._asked, self._stops_left = context.state.budgets.queries, STOPS
            self._serve(cycle, due)
        if retries.moments:
            cycle.wake(retries.moments[0][0])

    def _serve(self, cycle: CycleContext, due: list[PendingClass]) -> None:
        """Try pending classes in queue order, which is computed again after a success.

        After :data:`CLAIMS` successes, the rest follows in the next cycle, which starts
        at once.
        """
        served = 0
        while due:
            if served >= CLAIMS:
                self.retries.put_off(due)
                cycle.unfinished = True
                return
            served += 1
            lines = PreemptorOrder(due, self._context.plugins.queue_orders)
            if not any(self._try(cycle, pending_class) for pending_class in lines):
                return
            due = [pending_class for pending_class in lines.left() if self.retries.lives(pending_class)]

    def _standing(self, now: float) -> Hashable:
        """Return the state that decides on candidates, besides groups and named times."""
        state, lasts = self._context.state, self._context.plugins.offers_last
        if not lasts or state.budgets.any or state.queues.flavors:
            return object()
        return state.queues.version

    # ------------------------------------------------------------------ due classes

    def _due(self, cycle: CycleContext) -> list[PendingClass]:
        """Return the pending classes to try: new ones, and those with possible changes."""
        context, retries, now = self._context, self.retries, cycle.now
        seen, self._seen = self._seen, self._state()
        if cycle.stirred or self._seen != seen:
            retries.change()
        retries.clear()
        found = {bucket: None for bucket in cycle.parked if self._finds_none(bucket, now)}
        if self._new:
            # Groups that are pending from before this action started were never tried by it.
            self._new = False
            found.update(
                (bucket, None)
                for bucket in context.scheduling_queue.pending_classes.values()
                if self._concerns(bucket)
            )
        elif context.queue_heap.waiting:
            waiting = (
                b
                for b in context.scheduling_queue.pending_classes.values()
                if not b.parked and self._concerns(b)
            )
            found.update((bucket, None) for bucket in waiting if not retries.pausing(bucket, now))
        if not retries.idle:
            for pending_class in (*retries.reached(now), *retries.again(now, AGAIN)):
                found[pending_class] = None
            if retries.more:
                cycle.wake(now)
        return list(found)

    def _finds_none(self, pending_class: PendingClass, now: float) -> bool:
        """Return whether a class that just found no capacity has to be tried."""
        retries = self.retries
        if (
            retries.stuck(pending_class)
            or not self._concerns(pending_class)
            or not retries.lives(pending_class)
        ):
            return False
        if retries.pausing(pending_class, now):
            retries.forget(pending_class)
            return False
        return True

    def _state(self) -> tuple[int, int, int]:
        """Return a key that changes with decisions, nodes and possible victims. Trials do not count."""
        context = self._context
        return context.statement.decided, context.state.table.shape, context.state.ledger.confirmed

    def _concerns(self, pending_class: PendingClass) -> bool:
        """Return whether any plugin may grant a preemption to groups of the class."""
        dialect = pending_class.dialect
        return dialect is None or self._context.plugins.may_grant(self.name, dialect)

    # ------------------------------------------------------------------ for ``dump``

    def as_record(self) -> PreemptActionRecord:
        """Return the failed classes and their backoff."""
        buckets = self.retries.as_records(self.name, _words)
        return PreemptActionRecord(self._new, self._seen != self._state(), buckets, self._solver.time)

    def restore(self, record: PreemptActionRecord) -> None:
        """Restore the result of :meth:`as_record`, after all groups are pending again."""
        groups = self._context.state.groups
        self._new = record.new
        self.retries.begin_anew()
        self._seen = () if record.moved else self._state()
        self._solver.time = record.at
        for known in record.buckets:
            pending_class = groups[known.group].bucket
            if pending_class is not None:
                if known.stopped:
                    pending_class.budget_blockers[self.name] = known.stopped
                self.retries.restore(
                    pending_class, known, self._obstacle(pending_class, known.stuck, record.at)
                )

    def _obstacle(self, pending_class: PendingClass, words: tuple[str, ...], now: float) -> Obstacle | None:
        """Return the obstacle that :func:`_words` describes; ``None`` if there is none."""
        context, head = self._context, pending_class.head()
        match words:
            case ("nodes",):
                return NoNodeFits(context.state.table, context.state.table.shape)
            case ("lacking", name, units):
                return self._solver.insufficient_total(name, int(units))
            case ("nobody", name, below, whose):
                queue = context.state.queues.get(name)
                return NoVictims(context.running, queue, int(below) if below else None, own=whose == "own")
            case ():
                return None
            case (kind,):
                gone = NoNodeFits(context.state.table, NEVER)
                if head is None or head.step is None or head.queue is None:
                    return gone
                preemption = self._of(head, head.step, head.queue, now)
                terms = self._terms(preemption)
                if isinstance(terms, PreemptionDenied):
                    return terms.stands if kind == "denied" and terms.stands is not None else gone
                candidates = VictimCandidates(
                    context.state, context.running, context.plugins, preemption, terms, self._pool
                )
                found = self._solver.fragmentation(candidates, terms.groups, head.step)
                return found if kind == "scattered" else gone
            case _:
                raise ValueError(f"no obstacle is told by {words}")

    # ------------------------------------------------------------------ one preemption

    def _try(self, cycle: CycleContext, pending_class: PendingClass) -> bool:
        """Evict for the first group of the class that may preempt. Return whether this succeeded."""
        until: float | None = None
        obstacle: Obstacle | None = None
        for at, group in enumerate(_first_members(pending_class)):
            group.refusal = None
            outcome = self._claim(cycle, group)
            obstacle = None if at else outcome.obstacle
            if outcome.done:
                self.retries.done(pending_class)
                pending_class.budget_blockers.pop(self.name, None)
                return True
            until = _sooner(until, outcome.until)
            if not outcome.next_may or pending_class.is_strict:
                break
        self._note_stops(cycle, pending_class)
        self.retries.fail(pending_class, cycle.now, until, None if pending_class.is_strict else obstacle)
        return False

    def _note_stops(self, cycle: CycleContext, pending_class: PendingClass) -> None:
        """Record whether budgets alone blocked the first group of the class.

        Nothing is evaluated unless budgets have been queried in this pass.
        """
        stops: tuple[BudgetBlocker, ...] = ()
        budgets, head = self._context.state.budgets, pending_class.head()
        if head is not None and budgets.queries != self._asked and self._stops_left > 0:
            self._stops_left -= 1
            stops = blockers_of(budgets, self._would_go(cycle, head, None))
            if stops and not self._would_go(cycle, head, grants(stops)):
                stops = tuple([BudgetBlocker(stop.budget, 0, stop.allowed) for stop in stops])
        if pending_class.budget_blockers.get(self.name, ()) == stops:
            return
        pending_class.budget_blockers[self.name] = stops
        if pending_class.parked:
            pending_class.explanation, pending_class.reported_codes = None, ""
            cycle.parked[pending_class] = None

    def _would_go(
        self, cycle: CycleContext, group: GroupEntry, granted: Mapping[str, int] | None
    ) -> list[TaskEntry]:
        """Return the victims for a group's step if budgets allowed additional evictions.

        ``granted``: additional evictions by budget; ``None``: any number. Empty if
        nothing helps.
        """
        with self._context.state.budgets.granting(granted):
            going = self._going(cycle, group)
            self._context.statement.rollback()
        return going

    def _going(self, cycle: CycleContext, group: GroupEntry) -> list[TaskEntry]:
        """Return the victims for a group's step. The statement stays open."""
        made = self._made(group, cycle.now)
        if isinstance(made, PreemptionOutcome):
            return []
        preemption, terms, step = made
        candidates = VictimCandidates(
            self._context.state, self._context.running, self._context.plugins, preemption, terms
        )
        with self._context.reservations.reserved_from(group, cycle.now):
            self._solver.solve(preemption, terms, candidates, group, step)
        return self._context.statement.deciding()[1]

    def _claim(self, cycle: CycleContext, group: GroupEntry) -> PreemptionOutcome:
        """Evict for one group's step."""
        context, made = self._context, self._made(group, cycle.now)
        if isinstance(made, PreemptionOutcome):
            return made
        preemption, terms, step = made
        candidates = VictimCandidates(
            context.state, context.running, context.plugins, preemption, terms, self._pool
        )
        with context.reservations.reserved_from(group, cycle.now):
            found = self._solver.solve(preemption, terms, candidates, group, step)
            if (
                found is None
                and isinstance(preemption.rivals, CompetingGroups)
                and preemption.rivals.was_used
            ):
                with nothing_free(context.state.table, exceeded_resources(preemption)):
                    found = self._solver.solve(preemption, terms, candidates, group, step)
        if found is None:
            if len(context.statement):
                raise RuntimeError(f"a claim of {group.key} that failed left something behind")
            return PreemptionOutcome(until=candidates.wake_at, obstacle=self._solver.obstacle)
        cycle.touched[group.key] = group
        context.running.tell([group, *(unit.group for unit in found)])
        if not cycle.commit(group):
            return PreemptionOutcome(until=cycle.now + (PAUSE_SECONDS if group.refusal is not None else 0.0))
        context.enqueuer.settle(group, cycle.now)
        keep_waiting(self._context, cycle, group)
        return PreemptionOutcome(done=True)

    def _made(
        self, group: GroupEntry, now: float
    ) -> tuple[Preemption, PreemptionTerms, NextTasks] | PreemptionOutcome:
        """Return a group's preemption with its terms and step, or the outcome if it has none."""
        context, step = self._context, group.step
        if step is None or group.queue is None:
            return PreemptionOutcome()
        if not context.plugins.may_grant(self.name, group.spec.dialect):
            return PreemptionOutcome()
        if self._never_fits.too_few_for(step):
            return PreemptionOutcome(obstacle=NoNodeFits(context.state.table, context.state.table.shape))
        if group.promises and is_nominated(group, step):
            return PreemptionOutcome()
        preemption = self._of(group, step, group.queue, now)
        terms = self._terms(preemption)
        if isinstance(terms, PreemptionDenied):
            obstacle = None if terms.personal else terms.stands
            return PreemptionOutcome(until=terms.until, next_may=terms.personal, obstacle=obstacle)
        return preemption, terms, step

    def _of(self, group: GroupEntry, step: NextTasks, queue: QueueEntry, now: float) -> Preemption:
        """Return the preemption of a group in a queue."""
        view = whole_step(group, step)
        request = pinned_by(step, view.request, self._context.state.queues.flavors)
        rivals = CompetingGroups(self._rivals(step, queue))
        return Preemption(
            self.name, group.spec, request, view.tasks, queue.path, step.extra, now, rivals=rivals
        )

    def _rivals(self, step: NextTasks, queue: QueueEntry) -> Iterator[CompetingGroup]:
        """Yield the first waiting group of each pending class of other queues, if groups reclaim.

        Groups with sufficient nominations are skipped.
        """
        context = self._context
        if RECLAIM not in context.state.config.actions:
            return
        mine = {batch.cls for batch in step.batches}
        for pending_class in context.scheduling_queue.pending_classes.values():
            for other in _first_members(pending_class) if pending_class.queue is not queue else ():
                theirs = other.step
                if theirs is None or other.group is None or is_nominated(other, theirs):
                    continue
                if _meet(mine, {batch.cls for batch in theirs.batches}) and not self._never_fits.too_few_for(
                    theirs
                ):
                    request = whole_step(other, theirs).request
                    yield CompetingGroup(other.group, request, pending_class.queue.path)
                break

    def _terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied:
        terms: PreemptionTerms | None = None
        for plugin in self._context.plugins.claims:
            answer = plugin.claims(preemption)
            if isinstance(answer, PreemptionDenied):
                return answer
            terms = terms or answer
        return terms or PreemptionDenied(Reason.INSUFFICIENT_RESOURCES)


class PreemptionOutcome(msgspec.Struct, frozen=True):
    """Result of a preemption.

    ``next_may``: it tells nothing about the other groups of the class.
    ``obstacle``: easily checked reason for the failure.
    """

    done: bool = False
    until: float | None = None
    next_may: bool = False
    obstacle: Obstacle | None = None


NEVER = -1
"""Shape that nodes never have."""


class NoNodeFits(msgspec.Struct, frozen=True):
    """Obstacle: not even empty nodes hold the step, until a node is added or changed."""

    table: NodeTable
    shape: int

    def __call__(self) -> bool:
        return self.table.shape == self.shape


def _words(obstacle: Obstacle) -> tuple[str, ...]:
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


def _meet(first: Iterable[TaskClass], second: Iterable[TaskClass]) -> bool:
    """Return whether any node accepts tasks of one of the first and one of the second classes."""
    for cls in (*first, *second):
        cls.refresh()
    return any([bool((one.static & other.static).any()) for one in first for other in second])


def _first_members(pending_class: PendingClass) -> Iterator[GroupEntry]:
    """Yield the first groups of a pending class in order.

    The class must not change during the iteration, except for the last one.
    """
    return (pending_class.members[key] for key in islice(pending_class.order, MEMBERS))


def keep_waiting(context: ActionContext, cycle: CycleContext, group: GroupEntry) -> None:
    """Park a group that waits for nominated capacity until this capacity is free."""
    pending_class = group.bucket
    if pending_class is None or pending_class.parked or group.step is None:
        return
    rejections = context.gang_allocator.refusals_of(group, whole_step(group, group.step))
    waits = waits_for(group, group.step, rejections, context.placer)
    waits.queues.update(queue.name for queue in pending_class.queue.path)  # their releases free quota as well
    context.scheduling_queue.park(pending_class, waits)
    cycle.parked[pending_class] = None


def _sooner(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)

"""The actions that make room by evicting: ``consolidation``, ``reclaim``, ``preempt``.

They differ only in their name: what a claim may do under that name is said by policies
(:mod:`windlass.spi.victims`). One claim is one transaction: whatever is evicted, promised and moved for a
group is decided together, once its whole step is proven to fit; otherwise nothing happens.

A group that got nothing is not tried again until something has changed that could matter: amounts on nodes,
sums or rules of queues, nodes themselves, or a moment that a policy named. Where it is easily seen why there is
no way (too little left on all nodes together, nobody of lower priority, the queue's share), only that is looked
at until it has gone. Of those that have to be tried again, a bounded number is in each cycle; in a busy cluster,
where something changes all the time, who has tried often in vain pauses between his tries.
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
from windlass.engine.preemption.retake_guard import CompetingGroups, beyond, nothing_free
from windlass.engine.preemption.solver import Fragmented, InsufficientTotal, PreemptionSolver
from windlass.engine.preemption.victim_candidates import NoVictims, VictimCandidates
from windlass.engine.queueing.never_fits import NeverFits
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.engine.queues.flavors import pinned_by
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.victims.budget_blockers import BudgetBlocker, grants, stops_of
from windlass.engine.victims.victim_pool import VictimPool
from windlass.spi.victims import CompetingGroup, Preemption, PreemptionDenied, PreemptionTerms

AGAIN = 16
"""How many buckets that got nothing are tried again in one cycle."""
CLAIMS = 256
"""For how many groups one action makes room in one cycle."""
STOPS = 16
"""For how many groups it is found out in one cycle whether budgets alone stopped them."""
RECLAIM = "reclaim"
MEMBERS = 8
"""How many groups of a bucket are asked for one that may claim."""


class PreemptActionRecord(msgspec.Struct, frozen=True):
    """What an action knows. ``moved``: something has changed since it last looked, which was ``at`` (Unix seconds)."""

    new: bool
    moved: bool
    buckets: list[BackoffRecord]
    at: float = 0.0


class PreemptAction:
    """One of the actions. Remembers which buckets got nothing."""

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
        """How often budgets had been asked when the pass began."""
        self._stops_left = STOPS

    # ------------------------------------------------------------------ the pass

    def run(self, cycle: CycleContext) -> None:
        if self._context.plugins.claims:
            self.serve(cycle)

    def serve(self, cycle: CycleContext) -> None:
        """Let everyone who might get something now claim it, in turn."""
        context = self._context
        retries = self.retries
        if not context.scheduling_queue.pending_classes:
            return  # nobody waits
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
            self._asked, self._stops_left = context.state.budgets.asked, STOPS
            self._serve(cycle, due)
        if retries.moments:
            cycle.wake(retries.moments[0][0])

    def _serve(self, cycle: CycleContext, due: list[PendingClass]) -> None:
        """Let the buckets have their turns, in the order of queues and groups, which is made anew after
        every success. After :data:`CLAIMS` of those the rest has its turn in the next cycle, at once."""
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
        """What, beside groups and named moments, decides on who is offered in which order."""
        state, lasts = self._context.state, self._context.plugins.offers_last
        if not lasts or state.budgets.any or state.queues.flavors:
            return object()
        return state.queues.version

    # ------------------------------------------------------------------ what is due

    def _due(self, cycle: CycleContext) -> list[PendingClass]:
        """The buckets to try: new ones, and those for which something may have changed."""
        context, retries, now = self._context, self.retries, cycle.now
        seen, self._seen = self._seen, self._state()
        if cycle.stirred or self._seen != seen:
            retries.change()
        retries.clear()
        found = {bucket: None for bucket in cycle.parked if self._finds_none(bucket, now)}
        if self._new:
            # What waits since before this action began has never been tried by it.
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
        """Whether one that has just found no room is to claim some."""
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
        """Changes with what is decided, with nodes, and with what may be asked to go. Trials do not count."""
        context = self._context
        return context.statement.decided, context.state.table.shape, context.state.ledger.confirmed

    def _concerns(self, pending_class: PendingClass) -> bool:
        """Whether anybody may grant anything to groups of the bucket."""
        dialect = pending_class.dialect
        return dialect is None or self._context.plugins.may_grant(self.name, dialect)

    # ------------------------------------------------------------------ for ``dump``

    def as_record(self) -> PreemptActionRecord:
        """Who got nothing, since when, and who pauses."""
        buckets = self.retries.as_records(self.name, _words)
        return PreemptActionRecord(self._new, self._seen != self._state(), buckets, self._solver.time)

    def restore(self, record: PreemptActionRecord) -> None:
        """The inverse of :meth:`as_record`, once all groups wait as they did."""
        groups = self._context.state.groups
        self._new = record.new
        self.retries.begin_anew()
        self._seen = () if record.moved else self._state()
        self._solver.time = record.at
        for known in record.buckets:
            pending_class = groups[known.group].bucket
            if pending_class is not None:
                if known.stopped:
                    pending_class.stopped[self.name] = known.stopped
                self.retries.restore(
                    pending_class, known, self._obstacle(pending_class, known.stuck, record.at)
                )

    def _obstacle(self, pending_class: PendingClass, words: tuple[str, ...], now: float) -> Obstacle | None:
        """What :func:`_words` tells of, in the way of a bucket; ``None`` for nothing."""
        context, head = self._context, pending_class.head()
        match words:
            case ("nodes",):
                return NoNodeFits(context.state.table, context.state.table.shape)
            case ("lacking", name, units):
                return self._solver.lacking(name, int(units))
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
                found = self._solver.scattered(candidates, terms.groups, head.step)
                return found if kind == "scattered" else gone
            case _:
                raise ValueError(f"no obstacle is told by {words}")

    # ------------------------------------------------------------------ one claim

    def _try(self, cycle: CycleContext, pending_class: PendingClass) -> bool:
        """Make room for the first group of the bucket that may claim any. Whether that was done."""
        until: float | None = None
        obstacle: Obstacle | None = None
        for at, group in enumerate(_first_members(pending_class)):
            group.refusal = None
            outcome = self._claim(cycle, group)
            obstacle = None if at else outcome.obstacle
            if outcome.done:
                self.retries.done(pending_class)
                pending_class.stopped.pop(self.name, None)
                return True
            until = _sooner(until, outcome.until)
            if not outcome.next_may or pending_class.strict:
                break
        self._note_stops(cycle, pending_class)
        self.retries.fail(pending_class, cycle.now, until, None if pending_class.strict else obstacle)
        return False

    def _note_stops(self, cycle: CycleContext, pending_class: PendingClass) -> None:
        """Have the bucket's groups told whether budgets alone stopped the first of them. Nothing is looked at
        unless budgets have been asked in this pass."""
        stops: tuple[BudgetBlocker, ...] = ()
        budgets, head = self._context.state.budgets, pending_class.head()
        if head is not None and budgets.asked != self._asked and self._stops_left > 0:
            self._stops_left -= 1
            stops = stops_of(budgets, self._would_go(cycle, head, None))
            if stops and not self._would_go(cycle, head, grants(stops)):
                stops = tuple([BudgetBlocker(stop.budget, 0, stop.left) for stop in stops])
        if pending_class.stopped.get(self.name, ()) == stops:
            return
        pending_class.stopped[self.name] = stops
        if pending_class.parked:
            pending_class.explanation, pending_class.told = None, ""
            cycle.parked[pending_class] = None

    def _would_go(
        self, cycle: CycleContext, group: GroupEntry, granted: Mapping[str, int] | None
    ) -> list[TaskEntry]:
        """Who would be asked to go for a group's step if budgets let so many more go (``None``: any number);
        nobody if nothing helps."""
        with self._context.state.budgets.granting(granted):
            going = self._going(cycle, group)
            self._context.statement.rollback()
        return going

    def _going(self, cycle: CycleContext, group: GroupEntry) -> list[TaskEntry]:
        """Who is asked to go for a group's step, with the statement left open."""
        made = self._made(group, cycle.now)
        if isinstance(made, PreemptionOutcome):
            return []
        preemption, terms, step = made
        candidates = VictimCandidates(
            self._context.state, self._context.running, self._context.plugins, preemption, terms
        )
        with self._context.reservations.kept_from(group, cycle.now):
            self._solver.solve(preemption, terms, candidates, group, step)
        return self._context.statement.deciding()[1]

    def _claim(self, cycle: CycleContext, group: GroupEntry) -> PreemptionOutcome:
        """Make room for one group's step."""
        context, made = self._context, self._made(group, cycle.now)
        if isinstance(made, PreemptionOutcome):
            return made
        preemption, terms, step = made
        candidates = VictimCandidates(
            context.state, context.running, context.plugins, preemption, terms, self._pool
        )
        with context.reservations.kept_from(group, cycle.now):
            found = self._solver.solve(preemption, terms, candidates, group, step)
            if found is None and isinstance(preemption.rivals, CompetingGroups) and preemption.rivals.asked:
                with nothing_free(context.state.table, beyond(preemption)):
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
        """A group's claim and what it may do, or that it has none."""
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
        """The claim of a group that stands in a queue."""
        view = whole_step(group, step)
        request = pinned_by(step, view.request, self._context.state.queues.flavors)
        rivals = CompetingGroups(self._rivals(step, queue))
        return Preemption(
            self.name, group.spec, request, view.tasks, queue.path, step.extra, now, rivals=rivals
        )

    def _rivals(self, step: NextTasks, queue: QueueEntry) -> Iterator[CompetingGroup]:
        """Of each bucket of another queue the first that waits for what is not promised to it, where groups reclaim."""
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
    """What came of a claim. ``next_may``: it says nothing about the other groups of the bucket. ``obstacle``: what
    was in its way, where that is easily seen."""

    done: bool = False
    until: float | None = None
    next_may: bool = False
    obstacle: Obstacle | None = None


NEVER = -1
"""A shape that nodes never have."""


class NoNodeFits(msgspec.Struct, frozen=True):
    """Not even empty nodes would hold it: as long as no node comes or changes."""

    table: NodeTable
    shape: int

    def __call__(self) -> bool:
        return self.table.shape == self.shape


def _words(obstacle: Obstacle) -> tuple[str, ...]:
    """An obstacle as it is written down. ``denied`` and ``scattered``: the claim itself tells more; ``gone``: it is no
    more, and nobody has looked yet."""
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
    """Whether tasks of some of the one and of some of the other classes could be on the same node."""
    for cls in (*first, *second):
        cls.refresh()
    return any([bool((one.static & other.static).any()) for one in first for other in second])


def _first_members(pending_class: PendingClass) -> Iterator[GroupEntry]:
    """The first groups of a bucket, in order. Nothing of it is to change meanwhile, but for the last."""
    return (pending_class.members[key] for key in islice(pending_class.line, MEMBERS))


def keep_waiting(context: ActionContext, cycle: CycleContext, group: GroupEntry) -> None:
    """The group waits for what was promised to it: it is not to be tried before that is free."""
    pending_class = group.bucket
    if pending_class is None or pending_class.parked or group.step is None:
        return
    rejections = context.gang_allocator.refusals_of(group, whole_step(group, group.step))
    waits = waits_for(group, group.step, rejections, context.placer)
    waits.queues.update(queue.name for queue in pending_class.queue.path)  # their leaving frees quota, too
    context.scheduling_queue.park(pending_class, waits)
    cycle.parked[pending_class] = None


def _sooner(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)

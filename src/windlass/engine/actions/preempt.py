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
from windlass.engine.actions.context import CycleContext, Machinery
from windlass.engine.actions.preemptor_order import Lines
from windlass.engine.actions.retry_backoff import ClaimRecord, Obstacle, Tries
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.groups.next_step import Step, is_promised, whole_step
from windlass.engine.nodes.table import NodeTable
from windlass.engine.pending.scheduling_queue import Bucket
from windlass.engine.placement.gang_allocator import waits_for
from windlass.engine.preemption.retake_guard import Rivals, beyond, nothing_free
from windlass.engine.preemption.solver import Lacking, Scattered, Solver
from windlass.engine.preemption.victim_candidates import Candidates, Nobody
from windlass.engine.queueing.never_fits import EmptyNodes
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.engine.queues.flavors import pinned_by
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.victims.budget_blockers import Stop, grants, stops_of
from windlass.engine.victims.victim_pool import Pool
from windlass.spi.victims import Claim, Denied, Rival, Terms

AGAIN = 16
"""How many buckets that got nothing are tried again in one cycle."""
CLAIMS = 256
"""For how many groups one action makes room in one cycle."""
STOPS = 16
"""For how many groups it is found out in one cycle whether budgets alone stopped them."""
RECLAIM = "reclaim"
MEMBERS = 8
"""How many groups of a bucket are asked for one that may claim."""


class ClaimsRecord(msgspec.Struct, frozen=True):
    """What an action knows. ``moved``: something has changed since it last looked, which was ``at`` (Unix seconds)."""

    new: bool
    moved: bool
    buckets: list[ClaimRecord]
    at: float = 0.0


class Evicting:
    """One of the actions. Remembers which buckets got nothing."""

    def __init__(self, name: str, machinery: Machinery) -> None:
        self.name = name
        self._machinery = machinery
        m = machinery
        self._solver = Solver(m.world, m.policies, m.placer, m.allocation, m.statement)
        self.tries = Tries(m.lot, m.world.config.claim_pause_seconds)
        self._empty_nodes = EmptyNodes(m.world.table)
        self._new = True
        self._pool = Pool()
        self._seen: tuple[object, ...] = ()
        self._asked = 0
        """How often budgets had been asked when the pass began."""
        self._stops_left = STOPS

    # ------------------------------------------------------------------ the pass

    def run(self, ctx: CycleContext) -> None:
        if self._machinery.policies.claims:
            self.serve(ctx)

    def serve(self, ctx: CycleContext) -> None:
        """Let everyone who might get something now claim it, in turn."""
        m = self._machinery
        tries = self.tries
        if not m.lot.buckets:
            return  # nobody waits
        if tries.idle and not (self._new or m.turns.waiting or any(map(self._concerns, ctx.parked))):
            return
        followed = m.statement.decided, len(ctx.touched)
        if ctx.followed != followed:
            ctx.followed = followed
            m.running.update(ctx.touched.values())
        self._pool.renew(self._standing(ctx.now))
        self._solver.time = ctx.now
        due = self._due(ctx)
        if due:
            self._asked, self._stops_left = m.world.budgets.asked, STOPS
            self._serve(ctx, due)
        if tries.moments:
            ctx.wake(tries.moments[0][0])

    def _serve(self, ctx: CycleContext, due: list[Bucket]) -> None:
        """Let the buckets have their turns, in the order of queues and groups, which is made anew after
        every success. After :data:`CLAIMS` of those the rest has its turn in the next cycle, at once."""
        served = 0
        while due:
            if served >= CLAIMS:
                self.tries.put_off(due)
                ctx.unfinished = True
                return
            served += 1
            lines = Lines(due, self._machinery.policies.queue_orders)
            if not any(self._try(ctx, bucket) for bucket in lines):
                return
            due = [bucket for bucket in lines.left() if self.tries.lives(bucket)]

    def _standing(self, now: float) -> Hashable:
        """What, beside groups and named moments, decides on who is offered in which order."""
        world, lasts = self._machinery.world, self._machinery.policies.offers_last
        if not lasts or world.budgets.any or world.queues.flavors:
            return object()
        return world.queues.version

    # ------------------------------------------------------------------ what is due

    def _due(self, ctx: CycleContext) -> list[Bucket]:
        """The buckets to try: new ones, and those for which something may have changed."""
        m, tries, now = self._machinery, self.tries, ctx.now
        seen, self._seen = self._seen, self._state()
        if ctx.stirred or self._seen != seen:
            tries.change()
        tries.clear()
        found = {bucket: None for bucket in ctx.parked if self._finds_none(bucket, now)}
        if self._new:
            # What waits since before this action began has never been tried by it.
            self._new = False
            found.update((bucket, None) for bucket in m.lot.buckets.values() if self._concerns(bucket))
        elif m.turns.waiting:
            waiting = (b for b in m.lot.buckets.values() if not b.parked and self._concerns(b))
            found.update((bucket, None) for bucket in waiting if not tries.pausing(bucket, now))
        if not tries.idle:
            for bucket in (*tries.reached(now), *tries.again(now, AGAIN)):
                found[bucket] = None
            if tries.more:
                ctx.wake(now)
        return list(found)

    def _finds_none(self, bucket: Bucket, now: float) -> bool:
        """Whether one that has just found no room is to claim some."""
        tries = self.tries
        if tries.stuck(bucket) or not self._concerns(bucket) or not tries.lives(bucket):
            return False
        if tries.pausing(bucket, now):
            tries.forget(bucket)
            return False
        return True

    def _state(self) -> tuple[int, int, int]:
        """Changes with what is decided, with nodes, and with what may be asked to go. Trials do not count."""
        m = self._machinery
        return m.statement.decided, m.world.table.shape, m.world.ledger.confirmed

    def _concerns(self, bucket: Bucket) -> bool:
        """Whether anybody may grant anything to groups of the bucket."""
        dialect = bucket.dialect
        return dialect is None or self._machinery.policies.may_grant(self.name, dialect)

    # ------------------------------------------------------------------ for ``dump``

    def as_record(self) -> ClaimsRecord:
        """Who got nothing, since when, and who pauses."""
        buckets = self.tries.as_records(self.name, _words)
        return ClaimsRecord(self._new, self._seen != self._state(), buckets, self._solver.time)

    def restore(self, record: ClaimsRecord) -> None:
        """The inverse of :meth:`as_record`, once all groups wait as they did."""
        groups = self._machinery.world.groups
        self._new = record.new
        self.tries.begin_anew()
        self._seen = () if record.moved else self._state()
        self._solver.time = record.at
        for known in record.buckets:
            bucket = groups[known.group].bucket
            if bucket is not None:
                if known.stopped:
                    bucket.stopped[self.name] = known.stopped
                self.tries.restore(bucket, known, self._obstacle(bucket, known.stuck, record.at))

    def _obstacle(self, bucket: Bucket, words: tuple[str, ...], now: float) -> Obstacle | None:
        """What :func:`_words` tells of, in the way of a bucket; ``None`` for nothing."""
        m, head = self._machinery, bucket.head()
        match words:
            case ("nodes",):
                return SameNodes(m.world.table, m.world.table.shape)
            case ("lacking", name, units):
                return self._solver.lacking(name, int(units))
            case ("nobody", name, below, whose):
                queue = m.world.queues.get(name)
                return Nobody(m.running, queue, int(below) if below else None, own=whose == "own")
            case ():
                return None
            case (kind,):
                gone = SameNodes(m.world.table, NEVER)
                if head is None or head.step is None or head.queue is None:
                    return gone
                claim = self._of(head, head.step, head.queue, now)
                terms = self._terms(claim)
                if isinstance(terms, Denied):
                    return terms.stands if kind == "denied" and terms.stands is not None else gone
                candidates = Candidates(m.world, m.running, m.policies, claim, terms, self._pool)
                found = self._solver.scattered(candidates, terms.groups, head.step)
                return found if kind == "scattered" else gone
            case _:
                raise ValueError(f"no obstacle is told by {words}")

    # ------------------------------------------------------------------ one claim

    def _try(self, ctx: CycleContext, bucket: Bucket) -> bool:
        """Make room for the first group of the bucket that may claim any. Whether that was done."""
        until: float | None = None
        obstacle: Obstacle | None = None
        for at, group in enumerate(_first_members(bucket)):
            group.refusal = None
            outcome = self._claim(ctx, group)
            obstacle = None if at else outcome.obstacle
            if outcome.done:
                self.tries.done(bucket)
                bucket.stopped.pop(self.name, None)
                return True
            until = _sooner(until, outcome.until)
            if not outcome.next_may or bucket.strict:
                break
        self._note_stops(ctx, bucket)
        self.tries.fail(bucket, ctx.now, until, None if bucket.strict else obstacle)
        return False

    def _note_stops(self, ctx: CycleContext, bucket: Bucket) -> None:
        """Have the bucket's groups told whether budgets alone stopped the first of them. Nothing is looked at
        unless budgets have been asked in this pass."""
        stops: tuple[Stop, ...] = ()
        budgets, head = self._machinery.world.budgets, bucket.head()
        if head is not None and budgets.asked != self._asked and self._stops_left > 0:
            self._stops_left -= 1
            stops = stops_of(budgets, self._would_go(ctx, head, None))
            if stops and not self._would_go(ctx, head, grants(stops)):
                stops = tuple([Stop(stop.budget, 0, stop.left) for stop in stops])
        if bucket.stopped.get(self.name, ()) == stops:
            return
        bucket.stopped[self.name] = stops
        if bucket.parked:
            bucket.explanation, bucket.told = None, ""
            ctx.parked[bucket] = None

    def _would_go(
        self, ctx: CycleContext, group: GroupEntry, granted: Mapping[str, int] | None
    ) -> list[TaskEntry]:
        """Who would be asked to go for a group's step if budgets let so many more go (``None``: any number);
        nobody if nothing helps."""
        with self._machinery.world.budgets.granting(granted):
            going = self._going(ctx, group)
            self._machinery.statement.rollback()
        return going

    def _going(self, ctx: CycleContext, group: GroupEntry) -> list[TaskEntry]:
        """Who is asked to go for a group's step, with the statement left open."""
        made = self._made(group, ctx.now)
        if isinstance(made, Outcome):
            return []
        claim, terms, step = made
        candidates = Candidates(
            self._machinery.world, self._machinery.running, self._machinery.policies, claim, terms
        )
        with self._machinery.reservations.kept_from(group, ctx.now):
            self._solver.solve(claim, terms, candidates, group, step)
        return self._machinery.statement.deciding()[1]

    def _claim(self, ctx: CycleContext, group: GroupEntry) -> Outcome:
        """Make room for one group's step."""
        m, made = self._machinery, self._made(group, ctx.now)
        if isinstance(made, Outcome):
            return made
        claim, terms, step = made
        candidates = Candidates(m.world, m.running, m.policies, claim, terms, self._pool)
        with m.reservations.kept_from(group, ctx.now):
            found = self._solver.solve(claim, terms, candidates, group, step)
            if found is None and isinstance(claim.rivals, Rivals) and claim.rivals.asked:
                with nothing_free(m.world.table, beyond(claim)):
                    found = self._solver.solve(claim, terms, candidates, group, step)
        if found is None:
            if len(m.statement):
                raise RuntimeError(f"a claim of {group.key} that failed left something behind")
            return Outcome(until=candidates.wake_at, obstacle=self._solver.obstacle)
        ctx.touched[group.key] = group
        m.running.tell([group, *(unit.group for unit in found)])
        if not ctx.commit(group):
            return Outcome(until=ctx.now + (PAUSE_SECONDS if group.refusal is not None else 0.0))
        m.enrolment.settle(group, ctx.now)
        keep_waiting(self._machinery, ctx, group)
        return Outcome(done=True)

    def _made(self, group: GroupEntry, now: float) -> tuple[Claim, Terms, Step] | Outcome:
        """A group's claim and what it may do, or that it has none."""
        m, step = self._machinery, group.step
        if step is None or group.queue is None:
            return Outcome()
        if not m.policies.may_grant(self.name, group.spec.dialect):
            return Outcome()
        if self._empty_nodes.too_few_for(step):
            return Outcome(obstacle=SameNodes(m.world.table, m.world.table.shape))
        if group.promises and is_promised(group, step):
            return Outcome()
        claim = self._of(group, step, group.queue, now)
        terms = self._terms(claim)
        if isinstance(terms, Denied):
            obstacle = None if terms.personal else terms.stands
            return Outcome(until=terms.until, next_may=terms.personal, obstacle=obstacle)
        return claim, terms, step

    def _of(self, group: GroupEntry, step: Step, queue: QueueEntry, now: float) -> Claim:
        """The claim of a group that stands in a queue."""
        view = whole_step(group, step)
        request = pinned_by(step, view.request, self._machinery.world.queues.flavors)
        rivals = Rivals(self._rivals(step, queue))
        return Claim(self.name, group.spec, request, view.tasks, queue.path, step.extra, now, rivals=rivals)

    def _rivals(self, step: Step, queue: QueueEntry) -> Iterator[Rival]:
        """Of each bucket of another queue the first that waits for what is not promised to it, where groups reclaim."""
        m = self._machinery
        if RECLAIM not in m.world.config.actions:
            return
        mine = {run.cls for run in step.runs}
        for bucket in m.lot.buckets.values():
            for other in _first_members(bucket) if bucket.queue is not queue else ():
                theirs = other.step
                if theirs is None or other.group is None or is_promised(other, theirs):
                    continue
                if _meet(mine, {run.cls for run in theirs.runs}) and not self._empty_nodes.too_few_for(
                    theirs
                ):
                    request = whole_step(other, theirs).request
                    yield Rival(other.group, request, bucket.queue.path)
                break

    def _terms(self, claim: Claim) -> Terms | Denied:
        terms: Terms | None = None
        for plugin in self._machinery.policies.claims:
            answer = plugin.claims(claim)
            if isinstance(answer, Denied):
                return answer
            terms = terms or answer
        return terms or Denied(Reason.INSUFFICIENT_RESOURCES)


class Outcome(msgspec.Struct, frozen=True):
    """What came of a claim. ``next_may``: it says nothing about the other groups of the bucket. ``obstacle``: what
    was in its way, where that is easily seen."""

    done: bool = False
    until: float | None = None
    next_may: bool = False
    obstacle: Obstacle | None = None


NEVER = -1
"""A shape that nodes never have."""


class SameNodes(msgspec.Struct, frozen=True):
    """Not even empty nodes would hold it: as long as no node comes or changes."""

    table: NodeTable
    shape: int

    def __call__(self) -> bool:
        return self.table.shape == self.shape


def _words(obstacle: Obstacle) -> tuple[str, ...]:
    """An obstacle as it is written down. ``denied`` and ``scattered``: the claim itself tells more; ``gone``: it is no
    more, and nobody has looked yet."""
    match obstacle:
        case SameNodes():
            return ("nodes",) if obstacle() else ("gone",)
        case Lacking(name=name, units=units):
            return ("lacking", name, str(units))
        case Nobody(queue=queue, below=below, own=own):
            return ("nobody", queue.name, "" if below is None else str(below), "own" if own else "others")
        case Scattered():
            return ("scattered",)
        case _:
            return ("denied",) if obstacle() else ("gone",)


def _meet(first: Iterable[TaskClass], second: Iterable[TaskClass]) -> bool:
    """Whether tasks of some of the one and of some of the other classes could be on the same node."""
    for cls in (*first, *second):
        cls.refresh()
    return any([bool((one.static & other.static).any()) for one in first for other in second])


def _first_members(bucket: Bucket) -> Iterator[GroupEntry]:
    """The first groups of a bucket, in order. Nothing of it is to change meanwhile, but for the last."""
    return (bucket.members[key] for key in islice(bucket.line, MEMBERS))


def keep_waiting(m: Machinery, ctx: CycleContext, group: GroupEntry) -> None:
    """The group waits for what was promised to it: it is not to be tried before that is free."""
    bucket = group.bucket
    if bucket is None or bucket.parked or group.step is None:
        return
    refusals = m.allocation.refusals_of(group, whole_step(group, group.step))
    waits = waits_for(group, group.step, refusals, m.placer)
    waits.queues.update(queue.name for queue in bucket.queue.path)  # their leaving frees quota, too
    m.lot.park(bucket, waits)
    ctx.parked[bucket] = None


def _sooner(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)

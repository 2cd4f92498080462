"""The action ``timeshare``: groups that opted in are suspended for one another, by rank.

A group that waits for its minimum, and ranks better than some that run in its queue, claims their room. Only
groups that opted in, of no higher priority, that rules let go and that have run for as long as the policy spares
them, are suspended, each as a whole; and whom a stop would cost more than the claim is worth, by the policy's word, is
spared until he has saved his work. A claim is one transaction: whoever goes, goes because the whole gang is
proven to fit then, and the room is kept for it. Who was suspended ranks worse than its claimer, and claims nothing
from it until ranks have changed: that takes as long as the policy says. From others it claims nothing either before it
has rested for as long as the policy says, so that one who comes does not suspend a chain of groups.

A group that got nothing is not tried again until something moved that could matter to it, and then on the nodes
where it did: room was given back there, somebody there ranks worse than the group from now on, or may be stopped
as the time has ended for which he was spared. Where rules may answer otherwise than before, all are tried again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace as altered

from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.actions.preempt import keep_waiting
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import ASSUMED, OCCUPYING, TERMINATING, GroupEntry, TaskEntry
from windlass.engine.groups.next_step import NextTasks, is_nominated, whole_step
from windlass.engine.pending.scheduling_queue import PendingClass
from windlass.engine.preemption.relocation import Relocator
from windlass.engine.preemption.suspension_search import SuspensionSearch
from windlass.engine.preemption.victim_search import LazyVictimOrder, SearchContext, VictimSearch
from windlass.engine.timesharing.attained_service import AFTER_ALL, BEFORE_ALL, TimeAccount
from windlass.engine.timesharing.dump_record import Number, number
from windlass.engine.victims.victim_pool import FreedByQueue, PooledVictimSet
from windlass.spi.quantities import is_device
from windlass.spi.victims import (
    FreedResources,
    Preemption,
    PreemptionDenied,
    PreemptionTerms,
    VictimScope,
    VictimSet,
)

ACTION = "timeshare"
NOWHERE = (0, AFTER_ALL, BEFORE_ALL)
"""News that matter to nobody."""
NEWS = 1 << 16
"""So long may the news get; then all is tried again."""
FIRST = 512
"""So many of the worst ranks are looked at before it is reckoned up where anybody could be of use."""
CLAIMS = 256
"""For how many groups room is made in one cycle."""


class TimeShareRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the action knows: see the attributes of :class:`TimeShare`; nodes by their names."""

    failed: dict[str, tuple[Number, int]] = {}
    news: list[tuple[str, Number, Number]] = []
    spared_until: list[tuple[float, str, float]] = []
    unconfirmed: list[str] = []
    budgets_unseen: bool = False
    levels: dict[str, int] = {}


class _Wish(NamedTuple):
    """An accelerator, its column, and how many units of it one task asks for."""

    name: str
    column: int
    asked: int


class TimeShare:
    name = ACTION

    def __init__(self, machinery: ActionContext) -> None:
        self._context = context = machinery
        self._time_sharing = context.state.time_sharing
        self._time_sharing.policy = context.plugins.time_sharing
        self._leftover = context.scheduling_queue.leftover
        relocator = Relocator(
            context.state, context.placer, context.statement, context.gang_allocator.domain_selector
        )
        self._tools = SearchContext(
            context.state, context.plugins, context.gang_allocator, context.statement, relocator
        )
        self._failed: dict[str, tuple[float, int]] = {}
        """Group → its rank when it got nothing, and how long the news were then."""
        self._news: list[tuple[int, float, float]] = []
        """Row, and of which rank a group must be for what happened there to matter to it: from, below."""
        self._heard = 0
        """How long they were when it was last looked who has heard them."""
        self._spared_until: list[tuple[float, str, float]] = []
        """Ends of times for which somebody is left alone whom somebody could use: his group, when it was started.
        Or until when a group may claim nothing: the group, -1."""
        self._waits: set[tuple[float, str, float]] = set()
        """The same, to have each once."""
        self._unconfirmed: set[str] = set()
        """Groups that could be used, but for pods of which it is not known yet that they were bound."""
        self._seen_budgets = 0
        self._served: float | None = None
        """The moment at which everybody who might get something was served last."""
        self._levels: dict[str, int] = {}
        """Queues in which somebody was weighed against how many wait, and their level then: once that is another one,
        the queue's groups are tried again."""
        self._wishes: dict[TaskClass, tuple[tuple[int, int, int], _Wish | None]] = {}
        """Of which state of the nodes a class knows where it may be at all, and which accelerator it asks for."""
        rules = context.plugins
        self._ruled = bool(
            rules.claims or rules.admissions or rules.victim_filters or rules.validations or rules.row_filters
        )
        """Whether rules have a say in who is suspended for whom."""

    def run(self, cycle: CycleContext) -> None:
        time_sharing, context = self._time_sharing, self._context
        moved = cycle.touched or cycle.improved or cycle.varied
        if time_sharing.policy is None or (not moved and self.has_served(cycle.now)):
            return
        if cycle.touched:
            time_sharing.update(cycle.touched.values(), cycle.now)
        for group in time_sharing.due(cycle.now):
            cycle.touched[group.key] = group
            context.enqueuer.settle(group, cycle.now)
        stirred = self._hear(cycle) or bool(cycle.touched) or self._served is None
        if stirred and time_sharing.runners:
            self._serve(cycle)
        self._served = None if cycle.unfinished else cycle.now

    def has_served(self, now: float) -> bool:
        """Whether everybody was served at this very moment, and it is no other for ranks and for those who run."""
        if now != self._served:
            return False
        due, time_sharing = self.next_due(), self._time_sharing
        return not (
            (due is not None and due <= now)
            or self._unconfirmed
            or time_sharing.late
            or time_sharing.risen
            or self._more_or_fewer()
            or self._context.state.budgets.version != self._seen_budgets
        )

    def next_due(self) -> float | None:
        """When ranks, or who is spared, may change what comes of the action: while nobody waits, ranks are reckoned
        once somebody does."""
        if self._time_sharing.policy is None or not self._context.scheduling_queue.pending_classes:
            return None
        ranks, end = self._time_sharing.next_due(), self._next_end()
        return end if ranks is None else ranks if end is None else min(ranks, end)

    def _hear(self, cycle: CycleContext) -> bool:
        """Note where something may have become possible. Whether there is such a place: ranks fall only for those who
        run, so time by itself makes nobody worth a claim."""
        heard, stirred = len(self._news), bool(cycle.improved or self._time_sharing.risen)
        budgets = self._context.state.budgets.version
        if heard > NEWS or cycle.varied or budgets != self._seen_budgets:
            self._seen_budgets = budgets
            self._news.clear()
            self._failed.clear()
            self._heard, stirred = 0, True
        news = self._news
        if self._unconfirmed:
            groups = self._context.state.groups
            for key in sorted(self._unconfirmed):
                group = groups.get(key)
                if group is None or not _unconfirmed(group):
                    self._unconfirmed.discard(key)
                    self._may_go(key)
        while self._spared_until and self._spared_until[0][0] <= cycle.now:
            self._over()
            stirred = True
        if self._failed:  # else everybody looks at all there is
            news += [(row, BEFORE_ALL, AFTER_ALL) for row in cycle.improved]
            for time_account, before, after in self._time_sharing.risen:
                news += [(row, before, after) for row in _rows(time_account)]
        self._time_sharing.risen.clear()
        moved = self._more_or_fewer() if self._levels else ()
        if moved:
            groups, stirred = self._context.state.groups, True
            for key in [key for key in self._failed if _queue(groups.get(key)) in moved]:
                del self._failed[key]
            for queue in moved:
                del self._levels[queue]
        return stirred or len(news) > heard

    def _more_or_fewer(self) -> set[str]:
        """The queues in which many more wait than when somebody was weighed against them, or many fewer."""
        waiting_index = self._time_sharing.waiting_index
        return {queue for queue, level in self._levels.items() if level != waiting_index.level(queue)}

    def _over(self) -> None:
        """The first of the times has ended."""
        wait = heapq.heappop(self._spared_until)
        self._waits.discard(wait)
        _, key, started = wait
        if started < 0:
            self._failed.pop(key, None)
        else:
            self._may_go(key, started)

    def _next_end(self) -> float | None:
        """When the first of the times ends that still matter: not those of who has been stopped since, or started."""
        while self._spared_until:
            until, key, started = self._spared_until[0]
            time_account = self._time_sharing.accounts.get(key)
            if time_account is not None and (
                time_account.started is None if started < 0 else time_account.started == started
            ):
                return until
            self._over()
        return None

    def _may_go(self, key: str, started: float | None = None) -> None:
        """A group is spared no longer, unless it was started anew."""
        time_account = self._time_sharing.accounts.get(key)
        if (
            time_account is not None
            and time_account.started is not None
            and started in (None, time_account.started)
        ):
            self._news += [(row, BEFORE_ALL, AFTER_ALL) for row in sorted(_rows(time_account))]

    def _serve(self, cycle: CycleContext) -> None:
        """Let whoever may get something claim it, best rank first; after each success all anew."""
        for _ in range(CLAIMS):
            heads = self._heads(cycle.now)
            if len(heads) > 1:
                heads.sort(key=_place)
            for group in heads:
                if self._try(cycle, group):
                    break
            else:
                break
        else:
            cycle.unfinished = True
        if len(self._failed) > len(self._time_sharing.accounts):
            self._failed = {k: state for k, state in self._failed.items() if k in self._time_sharing.accounts}

    def _heads(self, now: float) -> list[GroupEntry]:
        """The first group of every bucket that waits, of those that share time, if it may claim the room of somebody
        who runs and something has happened since it got nothing."""
        scheduling_queue, accounts, failed, heard = (
            self._context.scheduling_queue,
            self._time_sharing.accounts,
            self._failed,
            len(self._news),
        )
        pending_classes: Iterable[PendingClass]
        if len(accounts) < len(scheduling_queue.pending_classes):
            waiting = (account.group.bucket for account in accounts.values())
            pending_classes = dict.fromkeys(bucket for bucket in waiting if bucket is not None)
        else:
            pending_classes = scheduling_queue.pending_classes.values()
        found: list[GroupEntry] = []
        before = self._heard
        fresh = self._news[before:]
        worst: dict[str, float] = {}
        for pending_class in pending_classes:
            head = pending_class.head() if pending_class.parked else None
            if head is None or not head.shares:
                continue
            time_account, tried = accounts.get(head.key), failed.get(head.key)
            if time_account is None:
                continue
            if tried is not None and tried[0] == time_account.base:
                rank, told = tried
                if told == heard:
                    continue
                if told == before and not any([least <= rank < below for _, least, below in fresh]):
                    failed[head.key] = rank, heard
                    continue
            queue = pending_class.queue.name
            if queue not in worst:
                worst[queue] = self._time_sharing.worst(queue, now)
            if worst[queue] > time_account.base and self._may_claim(head, time_account, now):
                found.append(head)
        self._heard = heard
        return found

    def _may_claim(self, group: GroupEntry, time_account: TimeAccount, now: float) -> bool:
        """Whether a group lacks room, and has rested."""
        step = group.step
        if step is None or group.queue is None or step.extra:
            return False
        if group.promises and is_nominated(group, step):
            return False
        if time_account.rests_until > now:
            self._wait(time_account.rests_until, group.key)
            return False
        return True

    # ------------------------------------------------------------------ one claim

    def _try(self, cycle: CycleContext, group: GroupEntry) -> bool:
        """Make room for a group. Whether that was done."""
        time_account, step = self._time_sharing.accounts.get(group.key), group.step
        if time_account is None or step is None:
            return False
        rank, heard = time_account.base, len(self._news)
        tried, told = self._failed.get(group.key, (rank, -1))
        rows: set[int] | None = None
        if told >= 0 and tried == rank:
            rows = {row for row, least, below in self._news[told:] if least <= rank < below}
        done = (rows is None or bool(rows)) and self._claim(cycle, time_account, step, rows)
        if done:
            self._failed.pop(group.key, None)
        else:
            self._failed[group.key] = rank, heard
        return done

    def _claim(
        self, cycle: CycleContext, time_account: TimeAccount, step: NextTasks, rows: set[int] | None
    ) -> bool:
        """``rows``: the only nodes on which something became possible since it got nothing; ``None``: any."""
        context, group = self._context, time_account.group
        going = self._found(cycle, time_account, step, rows)
        if going is None or not cycle.commit(group):
            return False
        for one in going:
            self._news += [(row, BEFORE_ALL, AFTER_ALL) for row in _rows(one)]
            self._time_sharing.suspend(one, cycle.now)
        if not group.promises:  # else what was decided has seen to it
            cycle.touched[group.key] = group
            context.enqueuer.settle(group, cycle.now)
            self._time_sharing.update(
                (group,), cycle.now
            )  # where room was free, only kept for others, it runs
        keep_waiting(context, cycle, group)
        return True

    def _found(
        self, cycle: CycleContext, time_account: TimeAccount, step: NextTasks, rows: set[int] | None
    ) -> list[TimeAccount] | None:
        """Who goes, everything standing in the statement; ``None`` if nothing does."""
        context, group = self._context, time_account.group
        likely: set[int] | None = None
        if self._plain(group, step):
            wish = self._wish(step.batches[0].cls)
            if rows is None and step.members == 1 and wish is not None and not self._ruled:
                found = self._readily(time_account, step, wish, cycle.now)
                if found and self._take(group, step, found):
                    return found
            likely = None if wish is None else self._likely(time_account, step, wish, rows, cycle.now)
            if not likely and likely is not None:
                return None
        view = whole_step(group, step)
        path = () if group.queue is None else group.queue.path
        preemption = Preemption(ACTION, group.spec, view.request, view.tasks, path, step.extra, cycle.now)
        for plugin in context.plugins.claims:
            denied = plugin.claims(preemption)
            if isinstance(denied, PreemptionDenied):
                if denied.until is not None:
                    self._wait(denied.until, group.key)
                return None
        return self._victims(preemption, time_account, step, rows, likely)

    def _wish(self, cls: TaskClass) -> _Wish | None:
        """The accelerator that tasks of a class ask for; the class knows from now on where they may be at all."""
        table = self._context.state.table
        state = (table.epoch, table.statics.mark, table.height)
        known = self._wishes.get(cls)
        if known is None or known[0] != state:
            if len(self._wishes) > NEWS:
                self._wishes.clear()
            cls.refresh()
            name = next((name for name, _ in cls.items if is_device(name)), None)
            wish = None if name is None else _Wish(name, table.resources.codes[name], cls.request[name])
            known = self._wishes[cls] = state, wish
        return known[1]

    def _readily(
        self, time_account: TimeAccount, step: NextTasks, wish: _Wish, now: float
    ) -> list[TimeAccount] | None:
        """Whom a group of one task stops, if that is clear from the first of those who rank worse; else ``None``, and
        nobody is noted."""
        queue = time_account.group.queue
        if queue is None:
            return None
        runners = self._time_sharing.runners[queue.name]

        def able(more: float, most: float) -> Iterator[TimeAccount]:
            worse = islice(runners.worst_first(now, time_account.base, more, most), FIRST)
            return self._able(time_account, now, worse, noting=False)

        def next_size(more: float) -> float | None:
            return runners.next_size(more) if len(runners) <= FIRST else None

        clearing = SuspensionSearch(step.batches[0].cls, 1, self._leftover, wish.column)
        return clearing.readily(able, next_size)

    def _likely(
        self, time_account: TimeAccount, step: NextTasks, wish: _Wish, rows: set[int] | None, now: float
    ) -> set[int] | None:
        """The nodes on which accelerators enough could be cleared if all went who rank worse, whoever is spared;
        none where the whole gang would not find enough, or what has become possible on ``rows`` is not. ``None`` if
        nothing is known of that."""
        context, group, cls = self._context, time_account.group, step.batches[0].cls
        if group.queue is None:
            return None
        table, suspendable = context.state.table, self._time_sharing.runners[group.queue.name].suspendable
        name, column, asked = wish
        if rows is not None and not context.plugins.admissions:
            there, found, static, free = False, set[int](), cls.static, self._leftover.cells()
            for row in rows:
                if not static[row]:
                    continue
                left = free[row][column]
                if left >= asked:
                    there = True
                elif suspendable.clears(row, name, now, time_account.base, asked - left):
                    found.add(row)
            if not there and (step.members == 1 or not found):
                return found
        worse = suspendable.worse(name, now, time_account.base, table.height)
        if worse is None:
            return set()
        fits = np.maximum(self._leftover.free()[:, column] + worse, 0) // asked
        fits[~cls.static[: table.height]] = 0
        if int(fits.sum()) < step.members:
            return set()
        return set(np.flatnonzero((fits > 0) & (worse > 0)).tolist())

    def _victims(
        self,
        preemption: Preemption,
        time_account: TimeAccount,
        step: NextTasks,
        rows: set[int] | None,
        likely: set[int] | None,
    ) -> list[TimeAccount] | None:
        """Who goes, everything standing in the statement; ``None`` if nothing does."""
        context, group = self._context, time_account.group
        bound = bool(context.plugins.admissions) and bool(
            context.gang_allocator.refusals_of(group, altered(whole_step(group, step), future=True))
        )
        if bound or not self._plain(group, step):
            return self._searched(preemption, time_account, step, bound=bound)
        cls, leftover = step.batches[0].cls, self._leftover
        wish = self._wish(cls)
        device = -1 if wish is None else wish.column
        found: list[TimeAccount] | None = []
        if rows is not None:  # as nothing else has changed, it must be possible to clear one of these
            found = SuspensionSearch(cls, 1, leftover, device, rows).cheapest(
                self._runners(preemption, time_account, likely, rows)
            )
        if found is not None and (rows is None or step.members > 1):
            found = SuspensionSearch(cls, step.members, leftover, device).cheapest(
                self._runners(preemption, time_account, likely)
            )
        if found is None:
            return None
        if context.plugins.validations and not self._valid(preemption, [_unit(one) for one in found]):
            return self._searched(preemption, time_account, step, bound=False)
        return found if self._take(group, step, found) else None

    def _take(self, group: GroupEntry, step: NextTasks, going: list[TimeAccount]) -> bool:
        """Have these go, and the group's step stand in the statement. Whether it does; else nothing stands."""
        context = self._context
        full = self._full(step)
        rows = set[int]()
        for one in going:
            for entry in _entries(one.group):
                rows.add(entry.row)
                context.statement.evict(entry, ACTION, group.key)
        if (
            full
            and len(rows) == 1
            and context.gang_allocator.nominate_at(context.statement, group, step, rows.pop())
        ):
            return True
        if context.gang_allocator.try_step(context.statement, group, step, future=True).done:
            return True
        context.statement.rollback()
        return False

    def _full(self, step: NextTasks) -> bool:
        """Whether by amounts no node takes a task of the step, even once all that terminates is gone."""
        cls = step.batches[0].cls
        wish = self._wish(cls)
        return not self._leftover.after_termination(cls, -1 if wish is None else wish.column).total

    def _plain(self, group: GroupEntry, step: NextTasks) -> bool:
        """Whether the group's room is a matter of amounts alone."""
        context = self._context
        if len(step.batches) > 1 or group.near or step.roles or step.root is not None:
            return False
        cls = step.batches[0].cls
        return not cls.needs.devices and context.plugins.countable and not context.placer.constraints(cls)

    def _searched(
        self, preemption: Preemption, time_account: TimeAccount, step: NextTasks, *, bound: bool
    ) -> list[TimeAccount] | None:
        """The same for gangs whose room is not a matter of amounts alone, or that rules restrict: by trying."""
        terms = PreemptionTerms(VictimScope.OWN_QUEUE)
        search = VictimSearch(
            self._tools, preemption, terms, time_account.group, step, counted=False, spares=not bound
        )
        found = search.plain(LazyVictimOrder(_unit(one) for one in self._runners(preemption, time_account)))
        if found is None:
            return None
        return [self._time_sharing.accounts[unit.group.key] for unit in found]

    def _runners(
        self,
        preemption: Preemption,
        time_account: TimeAccount,
        likely: set[int] | None = None,
        rows: set[int] | None = None,
    ) -> Iterable[TimeAccount]:
        """Who may be suspended for the claim, worst rank first; only those of whom a part is on nodes in ``likely``
        and in ``rows``, where these are given."""
        now, home = preemption.now, preemption.path[0].name
        runners = self._time_sharing.runners.get(home)
        if runners is None:
            return ()
        worse: Iterable[TimeAccount]
        if rows is None:
            worse = runners.worst_first(now, time_account.base)
        else:
            there = (a for a in self._there(rows) if a.home == home)
            worse = [one for one in there if one.value(now) > time_account.base]
            worse.sort(key=lambda one: (one.value(now), one.group.key), reverse=True)
        if likely is not None:
            worse = (one for one in worse if _touches(one.group, likely))
        able = self._able(time_account, now, worse)
        if not self._context.plugins.victim_filters:
            return able
        return (one for one in able if not self._spared(preemption, one))

    def _able(
        self, time_account: TimeAccount, now: float, worse: Iterable[TimeAccount], *, noting: bool = True
    ) -> Iterator[TimeAccount]:
        """Those of ``worse`` who may be suspended, as far as no other rule has a say. ``noting``: of whom that will
        be true later is noted."""
        policy, priority, claimer = (
            self._time_sharing.policy,
            time_account.group.spec.priority,
            time_account.segment,
        )
        queue = time_account.group.queue
        if policy is None or queue is None:
            return
        crowd, spared_until = self._time_sharing.crowd(queue.name), policy.spared_until
        for one in worse:
            group, segment = one.group, one.segment
            spec = group.spec
            if spec.priority > priority or not spec.preemptible or segment.started is None:
                continue
            until = spared_until(segment, claimer, one.value(now), crowd, now)
            if crowd.asked:
                crowd.asked = False
                self._levels[queue.name] = self._time_sharing.waiting_index.level(queue.name)
            if until > now:
                if noting and until < AFTER_ALL:
                    self._note(until, one)
            elif not _unconfirmed(group):
                yield one
            elif noting:
                self._unconfirmed.add(group.key)

    def _there(self, rows: set[int]) -> Iterable[TimeAccount]:
        """The accounts that run on some nodes."""
        tasks, accounts = self._context.state.table.tasks, self._time_sharing.accounts
        found: dict[str, TimeAccount] = {}
        for row in rows:
            for entry in tasks[row].values():
                time_account = accounts.get(entry.task.group)
                if time_account is not None and time_account.started is not None:
                    found[entry.task.group] = time_account
        return found.values()

    def _spared(self, preemption: Preemption, one: TimeAccount) -> bool:
        unit = _unit(one)
        if not all(e.task.preemptible and not e.task.critical for e in unit.entries):
            return True
        for plugin in self._context.plugins.victim_filters:
            if plugin.spares(preemption, unit.view):
                until = getattr(plugin, "spared_until", None)
                self._note(until(preemption, unit.view) if until is not None else None, one)
                return True
        return False

    def _valid(self, preemption: Preemption, units: list[PooledVictimSet]) -> bool:
        """Whether the rules let these go together."""
        taking = FreedByQueue()
        rules = self._context.plugins.validations
        for unit in units:
            if not all(rule.may_take(preemption, unit.view, taking.by_queue) for rule in rules):
                return False
            taking.add(unit)
        freed = FreedResources([unit.view for unit in units], taking.by_queue, [unit.view for unit in units])
        return all(rule.validates(preemption, freed) for rule in rules)

    def _note(self, until: float | None, one: TimeAccount) -> None:
        """Somebody would be of use who is left alone until then."""
        if until is not None and one.started is not None:
            self._wait(until, one.group.key, one.started)

    def _wait(self, until: float, key: str, started: float = -1.0) -> None:
        """See :attr:`_spared_until`."""
        wait = (until, key, started)
        if wait not in self._waits:
            self._waits.add(wait)
            heapq.heappush(self._spared_until, wait)

    # ------------------------------------------------------------------ for ``dump``

    def as_record(self) -> TimeShareRecord:
        """What was learned of claims in vain; news that all have heard are left out."""
        state = self._context.state
        heard = min((told for _, told in self._failed.values()), default=len(self._news))
        return TimeShareRecord(
            {key: (number(rank), told - heard) for key, (rank, told) in sorted(self._failed.items())},
            [(state.table.names[row], number(a), number(b)) for row, a, b in self._news[heard:]],
            sorted(self._spared_until),
            sorted(self._unconfirmed),
            state.budgets.version != self._seen_budgets,
            dict(sorted(self._levels.items())),
        )

    def restore(self, record: TimeShareRecord) -> None:
        """Into a fresh action, once nodes and budgets are there."""
        state = self._context.state
        rows = state.table.rows
        self._failed = {key: (float(rank), told) for key, (rank, told) in record.failed.items()}
        self._news = [
            (rows[name], float(a), float(b)) if name in rows else NOWHERE for name, a, b in record.news
        ]
        self._spared_until = list(record.spared_until)
        self._waits = set(self._spared_until)
        self._unconfirmed = set(record.unconfirmed)
        self._seen_budgets = state.budgets.version - record.budgets_unseen
        self._levels = dict(record.levels)


def _place(group: GroupEntry) -> tuple[object, str]:
    """Where a group comes among those that wait."""
    return (group.order_key, group.key)


def _queue(group: GroupEntry | None) -> str:
    """The name of a group's queue, if it has one."""
    return "" if group is None or group.queue is None else group.queue.name


def _unconfirmed(group: GroupEntry) -> bool:
    """Whether some pods were only just bound, and that is not confirmed yet."""
    return ASSUMED in [entry.state for entry in group.tasks.values()]


def _touches(group: GroupEntry, rows: set[int]) -> bool:
    """Whether a part of a group is on one of the nodes."""
    return not rows.isdisjoint([entry.row for entry in group.tasks.values()])


def _rows(time_account: TimeAccount) -> set[int]:
    """Where a group has its room."""
    return {entry.row for entry in time_account.group.tasks.values() if entry.row >= 0}


def _entries(group: GroupEntry) -> list[TaskEntry]:
    """What the group holds."""
    return [e for e in group.tasks.values() if e.state in OCCUPYING and e.state is not TERMINATING]


def _unit(time_account: TimeAccount) -> PooledVictimSet:
    """All that the group holds, as one unit."""
    group = time_account.group
    entries = _entries(group)
    request: dict[str, int] = {}
    for entry in entries:
        for name, units in entry.cls.items:
            request[name] = request.get(name, 0) + units
    view = VictimSet(
        group.spec,
        () if group.queue is None else group.queue.path,
        tuple(entry.task for entry in entries),
        request,
        core=True,
        spare=0,
        ready=group.ready(),
        members=len(entries),
        size=len(group.tasks),
        started=time_account.started,
        finished=group.finished,
    )
    return PooledVictimSet(view, group, entries)

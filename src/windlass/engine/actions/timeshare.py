"""Action ``timeshare``: groups that opted in are suspended for one another, by rank.

A group that waits for its minimum preempts running groups of its queue with a worse
rank. A group is suspended as a whole, under these conditions:

* It opted in and has no higher priority.
* The rules allow its eviction.
* It has run for the minimum time that the policy grants.
* By the policy, its loss is smaller than the gain. Otherwise it is protected until its
  next checkpoint.

A suspension is one transaction: victims are evicted only if the whole gang is proven to
fit then, and their capacity is nominated to it. A suspended group ranks after its
preemptor, and does not preempt it until ranks have changed. It preempts no other group
either during a pause that the policy defines, so that one arrival does not suspend a
chain of groups.

A group that failed is not tried again until something that could matter has changed,
and then only on the nodes concerned. Changes are: capacity was released there, a group
there ranks after this one from now on, or the protection of a group there has ended. If
rules may give other results than before, all groups are tried again.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace as altered

from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.actions.preempt import park_nominated
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import (
    ASSUMED,
    OCCUPYING,
    TERMINATING,
    GroupEntry,
    NextTasks,
    TaskEntry,
    tasks_on,
)
from windlass.engine.groups.next_step import is_nominated, whole_step_view
from windlass.engine.groups.pending_class import PendingClass
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
NO_CHANGE = (0, AFTER_ALL, BEFORE_ALL)
"""Change that matters to no group."""
MAX_CHANGES = 1 << 16
"""Maximum number of stored changes; beyond it, all groups are tried again."""
MAX_EVALUATED = 512
"""Number of worst ranks that are evaluated before candidate nodes are computed."""
MAX_SUSPENSIONS = 256
"""Maximum number of suspending groups in one cycle."""


class TimeShareRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of the action; see the attributes of :class:`TimeShare`. Nodes are given by name."""

    failed: dict[str, tuple[Number, int]] = {}
    changes: list[tuple[str, Number, Number]] = msgspec.field(default_factory=list, name="news")
    protected_until: list[tuple[float, str, float]] = msgspec.field(default_factory=list, name="spared_until")
    unconfirmed: list[str] = []
    budgets_unseen: bool = False
    levels: dict[str, int] = {}


class _DeviceRequest(NamedTuple):
    """Device resource, its column, and the units that one task requests."""

    name: str
    column: int
    units: int


class TimeShare:
    """The action, skipped while no group or queue has opted in."""

    name = ACTION

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._time_sharing = context.state.time_sharing
        self._time_sharing.set_policy(context.plugins.time_sharing)
        self.subjects: Collection[object] = self._time_sharing.users
        self._future_free = context.scheduling_queue.leftover
        relocator = Relocator(
            context.state, context.plugins, context.placer, context.gang_allocator, context.statement
        )
        self._search_context = SearchContext(
            context.state, context.plugins, context.gang_allocator, context.statement, relocator
        )
        self._failed: dict[str, tuple[float, int]] = {}
        """Group → its rank when it failed, and the number of changes at that time."""
        self._changes: list[tuple[int, float, float]] = []
        """Row, and the ranks of groups for which the change matters: from, below."""
        self._processed = 0
        """Number of changes when groups were last checked against them."""
        self._protected_until: list[tuple[float, str, float]] = []
        """Ends of protection: (time, group, start of its run); or of pauses: (time, group, -1)."""
        self._waits: set[tuple[float, str, float]] = set()
        """The same as a set, against duplicates."""
        self._unconfirmed: set[str] = set()
        """Groups that could be suspended except for pods with an unconfirmed bind."""
        self._seen_budgets = 0
        self._served: float | None = None
        """Time at which all groups were last tried."""
        self._levels: dict[str, int] = {}
        """Queue → level of its waiting groups when a comparison used it.

        If the level changes, the queue's groups are tried again.
        """
        self._requests: dict[TaskClass, tuple[tuple[int, int, int], _DeviceRequest | None]] = {}
        """Class → state of the nodes for its static mask, and its requested device."""
        rules = context.plugins
        self._has_rules = bool(
            rules.preemption_policies
            or rules.admissions
            or rules.victim_filters
            or rules.validations
            or rules.row_filters
        )
        """True if rules affect the choice of victims."""

    def run(self, cycle: CycleContext) -> None:
        time_sharing, context = self._time_sharing, self._context
        has_changed = cycle.touched or cycle.improved or cycle.plugins_changed
        if time_sharing.policy is None or (not has_changed and self.has_served(cycle.now)):
            return
        if cycle.touched:
            time_sharing.update(cycle.touched.values(), cycle.now)
        for group in time_sharing.due(cycle.now):
            cycle.touched[group.key] = group
            context.enqueuer.update(group, cycle.now)
        changed = self._collect_changes(cycle) or bool(cycle.touched) or self._served is None
        if changed and time_sharing.runners:
            self._serve(cycle)
        self._served = None if cycle.unfinished else cycle.now

    def has_served(self, now: float) -> bool:
        """Return whether all groups were tried at this very time and nothing has changed."""
        if now != self._served:
            return False
        due, time_sharing = self.next_due(), self._time_sharing
        return not (
            (due is not None and due <= now)
            or self._unconfirmed
            or time_sharing.reranked
            or time_sharing.risen
            or self._changed_levels()
            or self._context.state.budgets.version != self._seen_budgets
        )

    def next_due(self) -> float | None:
        """Return the time at which ranks or protections may change the result.

        While no group is pending, this is ``None``; ranks are computed when one is.
        """
        if self._time_sharing.policy is None or not self._context.scheduling_queue.pending_classes:
            return None
        ranks, end = self._time_sharing.next_due(), self._next_protection_end()
        return end if ranks is None else ranks if end is None else min(ranks, end)

    def _collect_changes(self, cycle: CycleContext) -> bool:
        """Record where something may have become possible. Return whether there is such a place.

        Ranks decrease only for running groups, so time alone makes no group a victim.
        """
        processed, changed = len(self._changes), bool(cycle.improved or self._time_sharing.risen)
        budgets = self._context.state.budgets.version
        if processed > MAX_CHANGES or cycle.plugins_changed or budgets != self._seen_budgets:
            self._seen_budgets = budgets
            self._changes.clear()
            self._failed.clear()
            self._processed, changed = 0, True
        changes = self._changes
        if self._unconfirmed:
            groups = self._context.state.groups
            for key in sorted(self._unconfirmed):
                group = groups.get(key)
                if group is None or not _unconfirmed(group):
                    self._unconfirmed.discard(key)
                    self._unprotect(key)
        while self._protected_until and self._protected_until[0][0] <= cycle.now:
            self._end_first()
            changed = True
        if self._failed:  # otherwise all groups evaluate everything
            changes += [(row, BEFORE_ALL, AFTER_ALL) for row in cycle.improved]
            for time_account, before, after in self._time_sharing.risen:
                changes += [(row, before, after) for row in _rows(time_account)]
        self._time_sharing.risen.clear()
        has_changed = self._changed_levels() if self._levels else ()
        if has_changed:
            groups, changed = self._context.state.groups, True
            for key in [key for key in self._failed if _queue(groups.get(key)) in has_changed]:
                del self._failed[key]
            for queue in has_changed:
                del self._levels[queue]
        return changed or len(changes) > processed

    def _changed_levels(self) -> set[str]:
        """Return the queues with another level of waiting groups than in an earlier comparison."""
        waiting_index = self._time_sharing.waiting_index
        return {queue for queue, level in self._levels.items() if level != waiting_index.level(queue)}

    def _end_first(self) -> None:
        """Remove the first of the times."""
        end = heapq.heappop(self._protected_until)
        self._waits.discard(end)
        _, key, started = end
        if started < 0:
            self._failed.pop(key, None)
        else:
            self._unprotect(key, started)

    def _next_protection_end(self) -> float | None:
        """Return the next time that matters.

        Times of groups that were stopped or started since are dropped.
        """
        while self._protected_until:
            until, key, started = self._protected_until[0]
            time_account = self._time_sharing.accounts.get(key)
            if time_account is not None and (
                time_account.started is None if started < 0 else time_account.started == started
            ):
                return until
            self._end_first()
        return None

    def _unprotect(self, key: str, started: float | None = None) -> None:
        """Record that a group lost its protection, unless it was started again."""
        time_account = self._time_sharing.accounts.get(key)
        if (
            time_account is not None
            and time_account.started is not None
            and started in (None, time_account.started)
        ):
            self._changes += [(row, BEFORE_ALL, AFTER_ALL) for row in sorted(_rows(time_account))]

    def _serve(self, cycle: CycleContext) -> None:
        """Try all groups that may succeed, best rank first. Start over after each success."""
        for _ in range(MAX_SUSPENSIONS):
            heads = self._heads(cycle.now)
            if len(heads) > 1:
                heads.sort(key=_position_of)
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
        """Return the first time-sharing group of each parked class that may preempt a running group.

        Groups without any relevant change since their last failure are skipped.
        """
        scheduling_queue, accounts, failed, processed = (
            self._context.scheduling_queue,
            self._time_sharing.accounts,
            self._failed,
            len(self._changes),
        )
        pending_classes: Iterable[PendingClass]
        if len(accounts) < len(scheduling_queue.pending_classes):
            waiting = (account.group.pending_class for account in accounts.values())
            pending_classes = dict.fromkeys(
                pending_class for pending_class in waiting if pending_class is not None
            )
        else:
            pending_classes = scheduling_queue.pending_classes.values()
        result: list[GroupEntry] = []
        before = self._processed
        new_changes = self._changes[before:]
        worst: dict[str, float] = {}
        for pending_class in pending_classes:
            head = pending_class.head() if pending_class.parked else None
            if head is None or not head.shares_time:
                continue
            time_account, tried = accounts.get(head.key), failed.get(head.key)
            if time_account is None:
                continue
            if tried is not None and tried[0] == time_account.base:
                rank, seen = tried
                if seen == processed:
                    continue
                if seen == before and not any([lowest <= rank < below for _, lowest, below in new_changes]):
                    failed[head.key] = rank, processed
                    continue
            queue = pending_class.queue.name
            if queue not in worst:
                worst[queue] = self._time_sharing.worst(queue, now)
            if worst[queue] > time_account.base and self._may_suspend(head, time_account, now):
                result.append(head)
        self._processed = processed
        return result

    def _may_suspend(self, group: GroupEntry, time_account: TimeAccount, now: float) -> bool:
        """Return whether a group lacks capacity and its pause has ended."""
        step = group.step
        if step is None or group.queue is None or step.extra:
            return False
        if group.nominations and is_nominated(group, step):
            return False
        if time_account.rests_until > now:
            self._add_end(time_account.rests_until, group.key)
            return False
        return True

    # ------------------------------------------------------------------ one preemption

    def _try(self, cycle: CycleContext, group: GroupEntry) -> bool:
        """Suspend other groups for a group. Return whether this succeeded."""
        time_account, step = self._time_sharing.accounts.get(group.key), group.step
        if time_account is None or step is None:
            return False
        rank, processed = time_account.base, len(self._changes)
        tried, seen = self._failed.get(group.key, (rank, -1))
        rows: set[int] | None = None
        if seen >= 0 and tried == rank:
            rows = {row for row, lowest, below in self._changes[seen:] if lowest <= rank < below}
        done = (rows is None or bool(rows)) and self._suspend_for(cycle, time_account, step, rows)
        if done:
            self._failed.pop(group.key, None)
        else:
            self._failed[group.key] = rank, processed
        return done

    def _suspend_for(
        self, cycle: CycleContext, time_account: TimeAccount, step: NextTasks, rows: set[int] | None
    ) -> bool:
        """Suspend other groups for a group.

        ``rows``: only nodes on which something became possible since its last failure;
        ``None``: any.
        """
        context, group = self._context, time_account.group
        victims = self._find_victims(cycle, time_account, step, rows)
        if victims is None or not cycle.commit(group):
            return False
        for account in victims:
            self._changes += [(row, BEFORE_ALL, AFTER_ALL) for row in _rows(account)]
            self._time_sharing.suspend(account, cycle.now)
        if not group.nominations:  # otherwise the commit has done this
            cycle.touched[group.key] = group
            context.enqueuer.update(group, cycle.now)
            # It runs at once if capacity was free and only reserved.
            self._time_sharing.update((group,), cycle.now)
        park_nominated(context, cycle, group)
        return True

    def _find_victims(
        self, cycle: CycleContext, time_account: TimeAccount, step: NextTasks, rows: set[int] | None
    ) -> list[TimeAccount] | None:
        """Return the victims, with all operations in the statement.

        ``None`` if there is no solution.
        """
        context, group = self._context, time_account.group
        candidate_rows: set[int] | None = None
        if self._is_plain(group, step):
            request = self._device_request(step.batches[0].cls)
            if rows is None and step.members == 1 and request is not None and not self._has_rules:
                result = self._victims_if_clear(time_account, step, request, cycle.now)
                if result and self._evict_and_place(group, step, result):
                    return result
            candidate_rows = (
                None
                if request is None
                else self._candidate_rows(time_account, step, request, rows, cycle.now)
            )
            if not candidate_rows and candidate_rows is not None:
                return None
        view = whole_step_view(group, step)
        path = () if group.queue is None else group.queue.path
        preemption = Preemption(ACTION, group.spec, view.request, view.tasks, path, step.extra, cycle.now)
        for plugin in context.plugins.preemption_policies:
            denied = plugin.preemption_terms(preemption)
            if isinstance(denied, PreemptionDenied):
                if denied.until is not None:
                    self._add_end(denied.until, group.key)
                return None
        return self._select_victims(preemption, time_account, step, rows, candidate_rows)

    def _device_request(self, cls: TaskClass) -> _DeviceRequest | None:
        """Return the device that tasks of a class request.

        The class's static mask is current afterwards.
        """
        table = self._context.state.table
        state = (table.epoch, table.static_log.mark, table.height)
        cached = self._requests.get(cls)
        if cached is None or cached[0] != state:
            if len(self._requests) > MAX_CHANGES:
                self._requests.clear()
            cls.refresh()
            name = next((name for name, _ in cls.items if is_device(name)), None)
            request = (
                None if name is None else _DeviceRequest(name, table.resources.codes[name], cls.request[name])
            )
            cached = self._requests[cls] = state, request
        return cached[1]

    def _victims_if_clear(
        self, time_account: TimeAccount, step: NextTasks, request: _DeviceRequest, now: float
    ) -> list[TimeAccount] | None:
        """Return the victims for a single task, if the first groups of a worse rank decide it.

        Else ``None``. Nothing is recorded for later tries.
        """
        queue = time_account.group.queue
        if queue is None:
            return None
        runners = self._time_sharing.runners[queue.name]

        def suspendable(more: float, most: float) -> Iterator[TimeAccount]:
            ranked_after = islice(runners.worst_first(now, time_account.base, more, most), MAX_EVALUATED)
            return self._suspendable(time_account, now, ranked_after, recording=False)

        def next_size(more: float) -> float | None:
            return runners.next_size(more) if len(runners) <= MAX_EVALUATED else None

        search = SuspensionSearch(step.batches[0].cls, 1, self._future_free, request.column)
        return search.cheapest_if_clear(suspendable, next_size)

    def _candidate_rows(
        self,
        time_account: TimeAccount,
        step: NextTasks,
        request: _DeviceRequest,
        rows: set[int] | None,
        now: float,
    ) -> set[int] | None:
        """Return the nodes on which all groups of a worse rank together hold enough devices.

        Protection is ignored. The result is empty if the whole gang would not fit, or
        if the changes on ``rows`` are not enough. ``None`` if nothing is known.
        """
        context, group, cls = self._context, time_account.group, step.batches[0].cls
        if group.queue is None:
            return None
        table, suspendable = context.state.table, self._time_sharing.runners[group.queue.name].suspendable
        name, column, requested = request
        if rows is not None and not context.plugins.admissions:
            fits_now, result, static, free = False, set[int](), cls.static, self._future_free.cells()
            for row in rows:
                if not static[row]:
                    continue
                free_units = free[row][column]
                if free_units >= requested:
                    fits_now = True
                elif suspendable.frees(row, name, now, time_account.base, requested - free_units):
                    result.add(row)
            if not fits_now and (step.members == 1 or not result):
                return result
        held = suspendable.held_after(name, now, time_account.base, table.height)
        if held is None:
            return set()
        fits = np.maximum(self._future_free.free()[:, column] + held, 0) // requested
        fits[~cls.static[: table.height]] = 0
        if int(fits.sum()) < step.members:
            return set()
        return set(np.flatnonzero((fits > 0) & (held > 0)).tolist())

    def _select_victims(
        self,
        preemption: Preemption,
        time_account: TimeAccount,
        step: NextTasks,
        rows: set[int] | None,
        candidate_rows: set[int] | None,
    ) -> list[TimeAccount] | None:
        """Return the victims, with all operations in the statement.

        ``None`` if there is no solution.
        """
        context, group = self._context, time_account.group
        limited = bool(context.plugins.admissions) and bool(
            context.gang_allocator.rejections_of(group, altered(whole_step_view(group, step), future=True))
        )
        if limited or not self._is_plain(group, step):
            return self._search(preemption, time_account, step, limited=limited)
        cls, leftover = step.batches[0].cls, self._future_free
        request = self._device_request(cls)
        device = -1 if request is None else request.column
        result: list[TimeAccount] | None = []
        if rows is not None:  # as nothing else has changed, one of these has to become free
            result = SuspensionSearch(cls, 1, leftover, device, rows).cheapest(
                self._runners(preemption, time_account, candidate_rows, rows)
            )
        if result is not None and (rows is None or step.members > 1):
            result = SuspensionSearch(cls, step.members, leftover, device).cheapest(
                self._runners(preemption, time_account, candidate_rows)
            )
        if result is None:
            return None
        if context.plugins.validations and not self._is_allowed(
            preemption, [_victim_set(account) for account in result]
        ):
            return self._search(preemption, time_account, step, limited=False)
        return result if self._evict_and_place(group, step, result) else None

    def _evict_and_place(self, group: GroupEntry, step: NextTasks, victims: list[TimeAccount]) -> bool:
        """Evict these groups and place the step.

        Return whether it fits; otherwise the statement is empty.
        """
        context = self._context
        full = self._is_full(step)
        rows = set[int]()
        for account in victims:
            for entry in _entries(account.group):
                rows.add(entry.row)
                context.statement.evict(entry, ACTION, group.key)
        if (
            full
            and len(rows) == 1
            and context.gang_allocator.nominate_at(context.statement, group, step, rows.pop())
        ):
            return True
        if context.gang_allocator.try_group(context.statement, group, step, future=True).done:
            return True
        context.statement.rollback()
        return False

    def _is_full(self, step: NextTasks) -> bool:
        """Return whether, by resources, no node holds a task of the step even after all releases."""
        cls = step.batches[0].cls
        request = self._device_request(cls)
        return not self._future_free.after_termination(cls, -1 if request is None else request.column).total

    def _is_plain(self, group: GroupEntry, step: NextTasks) -> bool:
        """Return whether only resources decide on the group's capacity."""
        context = self._context
        if len(step.batches) > 1 or group.has_topology or step.roles or step.root is not None:
            return False
        cls = step.batches[0].cls
        return not cls.needs.devices and context.plugins.countable and not context.placer.constraints(cls)

    def _search(
        self, preemption: Preemption, time_account: TimeAccount, step: NextTasks, *, limited: bool
    ) -> list[TimeAccount] | None:
        """Return the victims by trial placements, for gangs with more constraints than resources."""
        terms = PreemptionTerms(VictimScope.OWN_QUEUE)
        search = VictimSearch(
            self._search_context,
            preemption,
            terms,
            time_account.group,
            step,
            counted=False,
            may_protect=not limited,
        )
        result = search.without_moves(
            LazyVictimOrder(_victim_set(account) for account in self._runners(preemption, time_account))
        )
        if result is None:
            return None
        return [self._time_sharing.accounts[victim_set.group.key] for victim_set in result]

    def _runners(
        self,
        preemption: Preemption,
        time_account: TimeAccount,
        candidate_rows: set[int] | None = None,
        rows: set[int] | None = None,
    ) -> Iterable[TimeAccount]:
        """Return the possible victims, worst rank first.

        ``candidate_rows``, ``rows``: only groups with a task on these nodes.
        """
        now, home = preemption.now, preemption.path[0].name
        runners = self._time_sharing.runners.get(home)
        if runners is None:
            return ()
        ranked_after: Iterable[TimeAccount]
        if rows is None:
            ranked_after = runners.worst_first(now, time_account.base)
        else:
            accounts = (a for a in self._accounts_on(rows) if a.queue_name == home)
            ranked_after = [account for account in accounts if account.value(now) > time_account.base]
            ranked_after.sort(key=lambda account: (account.value(now), account.group.key), reverse=True)
        if candidate_rows is not None:
            ranked_after = (account for account in ranked_after if _is_on(account.group, candidate_rows))
        suspendable = self._suspendable(time_account, now, ranked_after)
        if not self._context.plugins.victim_filters:
            return suspendable
        return (account for account in suspendable if not self._is_protected(preemption, account))

    def _suspendable(
        self,
        time_account: TimeAccount,
        now: float,
        ranked_after: Iterable[TimeAccount],
        *,
        recording: bool = True,
    ) -> Iterator[TimeAccount]:
        """Yield those of ``ranked_after`` that may be suspended, other rules aside.

        ``recording``: record groups that may be suspended later.
        """
        policy, priority, preemptor = (
            self._time_sharing.policy,
            time_account.group.spec.priority,
            time_account.segment,
        )
        queue = time_account.group.queue
        if policy is None or queue is None:
            return
        contention, spared_until = self._time_sharing.contention(queue.name), policy.protected_until
        for account in ranked_after:
            group, segment = account.group, account.segment
            spec = group.spec
            if spec.priority > priority or not spec.preemptible or segment.started is None:
                continue
            until = spared_until(segment, preemptor, account.value(now), contention, now)
            if contention.was_used:
                contention.was_used = False
                self._levels[queue.name] = self._time_sharing.waiting_index.level(queue.name)
            if until > now:
                if recording and until < AFTER_ALL:
                    self._add_protection(until, account)
            elif not _unconfirmed(group):
                yield account
            elif recording:
                self._unconfirmed.add(group.key)

    def _accounts_on(self, rows: set[int]) -> Iterable[TimeAccount]:
        """Return the running accounts with tasks on these nodes."""
        table, accounts = self._context.state.table, self._time_sharing.accounts
        result: dict[str, TimeAccount] = {}
        for row in rows:
            for entry in tasks_on(table, row).values():
                time_account = accounts.get(entry.task.group)
                if time_account is not None and time_account.started is not None:
                    result[entry.task.group] = time_account
        return result.values()

    def _is_protected(self, preemption: Preemption, account: TimeAccount) -> bool:
        victim_set = _victim_set(account)
        if not all(e.task.preemptible and not e.task.critical for e in victim_set.entries):
            return True
        for plugin in self._context.plugins.victim_filters:
            if plugin.protects_victim(preemption, victim_set.view):
                until = getattr(plugin, "protected_until", None)
                self._add_protection(
                    until(preemption, victim_set.view) if until is not None else None, account
                )
                return True
        return False

    def _is_allowed(self, preemption: Preemption, victim_sets: list[PooledVictimSet]) -> bool:
        """Return whether the rules allow these victims together."""
        taking = FreedByQueue()
        rules = self._context.plugins.validations
        for victim_set in victim_sets:
            if not all(rule.may_take(preemption, victim_set.view, taking.by_queue) for rule in rules):
                return False
            taking.add(victim_set)
        freed = FreedResources(
            [victim_set.view for victim_set in victim_sets],
            taking.by_queue,
            [victim_set.view for victim_set in victim_sets],
        )
        return all(rule.validates(preemption, freed) for rule in rules)

    def _add_protection(self, until: float | None, account: TimeAccount) -> None:
        """Record a victim that is protected until then."""
        if until is not None and account.started is not None:
            self._add_end(until, account.group.key, account.started)

    def _add_end(self, until: float, key: str, started: float = -1.0) -> None:
        """Add a time to :attr:`_protected_until`."""
        end = (until, key, started)
        if end not in self._waits:
            self._waits.add(end)
            heapq.heappush(self._protected_until, end)

    # ------------------------------------------------------------------ for ``dump``

    def as_record(self) -> TimeShareRecord:
        """Return what failed tries have taught; changes that all groups have processed are left out."""
        state = self._context.state
        processed = min((seen for _, seen in self._failed.values()), default=len(self._changes))
        return TimeShareRecord(
            {key: (number(rank), seen - processed) for key, (rank, seen) in sorted(self._failed.items())},
            [(state.table.names[row], number(a), number(b)) for row, a, b in self._changes[processed:]],
            sorted(self._protected_until),
            sorted(self._unconfirmed),
            state.budgets.version != self._seen_budgets,
            dict(sorted(self._levels.items())),
        )

    def restore(self, record: TimeShareRecord) -> None:
        """Restore into a new action, after nodes and budgets have been restored."""
        state = self._context.state
        rows = state.table.rows
        self._failed = {key: (float(rank), seen) for key, (rank, seen) in record.failed.items()}
        self._changes = [
            (rows[name], float(a), float(b)) if name in rows else NO_CHANGE for name, a, b in record.changes
        ]
        self._protected_until = list(record.protected_until)
        self._waits = set(self._protected_until)
        self._unconfirmed = set(record.unconfirmed)
        self._seen_budgets = state.budgets.version - record.budgets_unseen
        self._levels = dict(record.levels)


def _position_of(group: GroupEntry) -> tuple[object, str]:
    """Return the position of a group in the queue order."""
    return (group.order_key, group.key)


def _queue(group: GroupEntry | None) -> str:
    """Return the name of a group's queue, if it has one."""
    return "" if group is None or group.queue is None else group.queue.name


def _unconfirmed(group: GroupEntry) -> bool:
    """Return whether the bind of any pod is not confirmed yet."""
    return ASSUMED in [entry.state for entry in group.tasks.values()]


def _is_on(group: GroupEntry, rows: set[int]) -> bool:
    """Return whether any task of a group is on one of the nodes."""
    return not rows.isdisjoint([entry.row for entry in group.tasks.values()])


def _rows(time_account: TimeAccount) -> set[int]:
    """Return the rows on which a group holds capacity."""
    return {entry.row for entry in time_account.group.tasks.values() if entry.row >= 0}


def _entries(group: GroupEntry) -> list[TaskEntry]:
    """Return the tasks of a group that hold capacity and do not terminate."""
    return [e for e in group.tasks.values() if e.state in OCCUPYING and e.state is not TERMINATING]


def _victim_set(time_account: TimeAccount) -> PooledVictimSet:
    """Return all active tasks of a group as one victim set."""
    group = time_account.group
    entries = _entries(group)
    request: dict[str, int] = {}
    for entry in entries:
        for name, victim_sets in entry.cls.items:
            request[name] = request.get(name, 0) + victim_sets
    view = VictimSet(
        group.spec,
        () if group.queue is None else group.queue.path,
        tuple(entry.task for entry in entries),
        request,
        is_minimum=True,
        elastic_members=0,
        ready=group.ready(),
        members=len(entries),
        size=len(group.tasks),
        started=time_account.started,
        finished=group.finished,
    )
    return PooledVictimSet(view, group, entries)

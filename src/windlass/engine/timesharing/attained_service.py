"""Attained service of time-sharing groups and their ranks (:mod:`windlass.spi.timeshare`).

A group *runs* while it holds its minimum, from the decision on. A rank is valid until a
time that the policy names. Only these times, starts and stops cost anything.

The service attained before this engine existed comes from the group's object
(:class:`~windlass.spi.objects.AttainedService`). It is read once, when the account is
first evaluated. Counts of similar earlier runs belong to the policy
(:attr:`TimeSharingState.counted`).

Invariants:

* Every known group that opted in has one account.
* ``runners`` of a queue are the accounts of its running groups, sorted by rank.
* Time is counted once, as running or as waiting.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.timesharing.suspendable import SuspendableGroups
from windlass.engine.timesharing.waiting_index import MeasuredContention, WaitingIndex
from windlass.spi.objects import AttainedService, Group
from windlass.spi.timeshare import Rank, RunSegment, TimeSharing

BEFORE_ALL = float("-inf")
"""Rank of a group that did not opt in."""
AFTER_ALL = float("inf")
MAX_EVALUATED = 256
"""Maximum number of worst-ranked groups per queue that are evaluated for a suspension."""
MIN_INTERVAL = 1e-6
"""Minimum interval between two evaluations of one group, in seconds.

Times are sums of floating point numbers. A remaining time can be smaller than the
resolution of such a sum.
"""
_WHOLE = 1000


class TimeAccount:
    """Account of one group.

    ``since``: time up to which the run segment is counted.
    ``rests_until``: end of the pause after its last suspension; it claims no capacity
    before.
    ``epoch``: number of its ranks; times of earlier epochs are void.
    """

    __slots__ = (
        "base",
        "epoch",
        "falls",
        "group",
        "next_evaluation",
        "queue_name",
        "rests_until",
        "segment",
        "since",
    )

    def __init__(self, group: GroupEntry, segment: RunSegment) -> None:
        self.group = group
        self.segment = segment
        self.base = 0.0
        """Rank at time 0: at a time it is ``base - falls * time`` while the group runs."""
        self.falls = 0.0
        self.since: float | None = None
        self.rests_until = 0.0
        self.queue_name = ""
        """Queue of which it is a runner."""
        self.epoch = 0
        self.next_evaluation: float | None = None
        """Time at which the policy has to be evaluated again."""

    def value(self, now: float) -> float:
        """Return the rank at a time."""
        return self.base - self.falls * now if self.falls and self.segment.started is not None else self.base

    @property
    def started(self) -> float | None:
        """Return the start of the current run, ``None`` while the group waits."""
        return self.segment.started

    @property
    def place(self) -> tuple[float, str]:
        return (self.base, self.group.key)


class RunningAccounts:
    """Accounts of the running groups of a queue, sorted by rank, one list per decrease rate."""

    def __init__(self) -> None:
        self._by_decrease: dict[float, list[tuple[float, str]]] = {}
        """Decrease of the rank per second → sorted positions; no list is empty."""
        self._accounts: dict[str, TimeAccount] = {}
        self._sizes: dict[float, int] = {}
        """Number of devices → number of accounts with so many, above zero."""
        self.suspendable = SuspendableGroups()

    def __len__(self) -> int:
        return len(self._accounts)

    def add(self, time_account: TimeAccount) -> None:
        self._accounts[time_account.group.key] = time_account
        size = time_account.segment.devices
        self._sizes[size] = self._sizes.get(size, 0) + 1
        self._enter(time_account)
        self.suspendable.add(time_account.group, time_account.base, time_account.falls)

    def discard(self, time_account: TimeAccount) -> None:
        self.take_out(time_account)
        del self._accounts[time_account.group.key]
        size = time_account.segment.devices
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]
        self.suspendable.discard(time_account.group)

    def update(self, time_account: TimeAccount) -> None:
        """Update what the group holds, if it has changed."""
        if self.suspendable.has_changed(time_account.group):
            self.suspendable.discard(time_account.group)
            self.suspendable.add(time_account.group, time_account.base, time_account.falls)

    def take_out(self, time_account: TimeAccount) -> None:
        """Remove an account before its rank changes; :meth:`put` follows."""
        positions, position = self._by_decrease[time_account.falls], time_account.place
        index = bisect_left(positions, position)
        if positions[index] != position:
            raise RuntimeError(f"{time_account.group.key} does not stand where it should")
        del positions[index]
        if not positions:
            del self._by_decrease[time_account.falls]

    def put(self, time_account: TimeAccount) -> None:
        self._enter(time_account)
        self.suspendable.rerank(time_account.group, time_account.base, time_account.falls)

    def _enter(self, time_account: TimeAccount) -> None:
        positions = self._by_decrease.get(time_account.falls)
        if positions is None:
            self._by_decrease[time_account.falls] = [time_account.place]
        else:
            insort(positions, time_account.place)

    def next_evaluation(self) -> float | None:
        """Return the time of the next evaluation by the policy."""
        return min(
            (
                account.next_evaluation
                for account in self._accounts.values()
                if account.next_evaluation is not None
            ),
            default=None,
        )

    def worst(self, now: float) -> float:
        """Return the largest rank."""
        return max(
            [entries[-1][0] - falls * now for falls, entries in self._by_decrease.items()],
            default=BEFORE_ALL,
        )

    def worst_first(
        self, now: float, above: float, more: float = BEFORE_ALL, most: float = AFTER_ALL
    ) -> Iterator[TimeAccount]:
        """Yield the accounts ranked after ``above``, the worst rank first.

        Only accounts with more than ``more`` and at most ``most`` devices.
        """
        iterators = [
            self._worst_of(entries, falls * now, above, more, most)
            for falls, entries in self._by_decrease.items()
        ]
        for *_, time_account in (
            iterators[0] if len(iterators) == 1 else heapq.merge(*iterators, reverse=True)
        ):
            yield time_account

    def next_size(self, more: float) -> float | None:
        """Return the smallest number of devices above ``more`` that an account has.

        ``None`` if none.
        """
        return min([size for size in self._sizes if size > more], default=None)

    def _worst_of(
        self, positions: list[tuple[float, str]], fallen: float, above: float, more: float, most: float
    ) -> Iterator[tuple[float, str, TimeAccount]]:
        """Yield the part of one list for :meth:`worst_first`, with ranks and keys.

        ``fallen``: decrease of all ranks of the list so far.
        """
        accounts = self._accounts
        for base, key in reversed(positions):
            value = base - fallen
            if value <= above:
                return
            time_account = accounts[key]
            if more < time_account.segment.devices <= most:
                yield value, key, time_account


class TimeSharingState:
    """All accounts. Without a ``policy`` there is no time-sharing."""

    def __init__(self) -> None:
        self.policy: TimeSharing | None = None
        self.opt_in_keys: frozenset[str] = frozenset()
        """Annotations that opt in to time-sharing, by the policy."""
        self.users: set[str] = set()
        """Kinds of objects that had one of these annotations, or hold an account.

        ``any`` if the policy does not declare its annotations. While this is empty, no
        group shares time.
        """
        self.accounts: dict[str, TimeAccount] = {}
        self.runners: dict[str, RunningAccounts] = {}
        self.waiting_index = WaitingIndex()
        """Accounts that do not run."""
        self.evaluations: list[tuple[float, str, int]] = []
        """Heap of the next evaluations: time, group key, and epoch for which it is valid."""
        self.reranked: list[GroupEntry] = []
        """Groups that were ranked again and have not been tried since."""
        self.risen: list[tuple[TimeAccount, float, float]] = []
        """Running accounts with a worse rank since this list was taken, with both ranks."""
        self.counted = BEFORE_ALL
        """Time up to which run times are part of the counters that the policy loaded; Unix seconds."""
        self.now = BEFORE_ALL
        """Time up to which everything due is done; Unix seconds."""

    def set_policy(self, policy: TimeSharing | None) -> None:
        """Set the policy, before any group is known."""
        self.policy = policy
        keys = getattr(policy, "opt_in_keys", None)
        self.opt_in_keys = keys or frozenset()
        self.users = {"any"} if policy is not None and keys is None else set()

    # ------------------------------------------------------------------ ranks of waiting groups

    def rank_of(self, group: GroupEntry) -> float:
        """Return the rank of a group among the waiting ones; smaller goes first."""
        if self.policy is None:
            return BEFORE_ALL
        time_account = self.time_account(group)
        return BEFORE_ALL if time_account is None else time_account.base

    def time_account(self, group: GroupEntry) -> TimeAccount | None:
        """Return the group's account. Open it if the group opted in; close it if it opted out."""
        policy, spec, queue = self.policy, group.group, group.queue
        cached = self.accounts.get(group.key)
        if policy is None or spec is None or queue is None:
            return cached
        consent = group.shares_time_memo
        if (
            consent is None
            or consent[0] is not spec
            or consent[1] is not queue
            or consent[2] != queue.version
        ):
            consent = group.shares_time_memo = spec, queue, queue.version, policy.joins(spec, queue.path)
        if not consent[3]:
            if cached is not None:
                self._close(cached)
            return None
        if cached is not None and cached.group is group:
            if cached.segment.group is not spec:
                self._update_spec(cached, spec)
            return cached
        if cached is not None:
            self._close(cached)
        time_account = TimeAccount(group, RunSegment(spec, _devices(group)))
        self._load_history(time_account, spec, self.now)
        self.accounts[group.key] = time_account
        group.shares_time = True
        self._rank(time_account)
        return time_account

    # ------------------------------------------------------------------ events

    def update(self, touched: Iterable[GroupEntry], now: float) -> None:
        """Update the accounts of groups that may have started, stopped or ended."""
        if self.policy is None:
            return
        for group in touched:
            spec = group.group
            if spec is None:
                time_account = self.accounts.get(group.key)
                if time_account is not None and time_account.group is group:
                    self._end(time_account, now)
                continue
            time_account = self.time_account(group)
            if time_account is None:
                continue
            runs, started = group.active > 0 and group.ready(), now
            if time_account.since is None:
                started = self._open(time_account, spec, runs, now)
            if runs:
                if time_account.started is None:
                    self.start(time_account, started)
                    continue
                if group.queue is not None and group.queue.name != time_account.queue_name:
                    self._move_to_queue(time_account, group.queue.name)
                self.runners[time_account.queue_name].update(time_account)
                continue
            if group.queue is not None:
                self.waiting_index.set_queue(group.key, group.queue.name)
            if time_account.started is not None:
                if _is_over(group):
                    self._end(time_account, now)
                else:
                    self.stop(time_account, now)

    def attained_service(self, key: str) -> AttainedService | None:
        """Return the attained service when the group was last stopped, or started after that.

        ``None`` if it was never stopped, or has run long enough since then to be ranked
        again.
        """
        time_account = self.accounts.get(key)
        if time_account is None or time_account.since is None or not time_account.segment.attained:
            return None
        segment, index = time_account.segment, time_account.since
        return (
            AttainedService(segment.attained, index, segment.suspensions)
            if segment.started in (None, index)
            else None
        )

    def start(self, time_account: TimeAccount, now: float) -> None:
        """Record that the group has its capacity."""
        group = time_account.group
        self._count(time_account, now)
        time_account.segment.started = now
        time_account.segment.resumed = time_account.segment.attained > 0
        time_account.segment.devices = _devices(group)
        if self.counted > now:
            self._count(time_account, self.counted)
            time_account.segment.memory = None
        self._rank(time_account)
        self.waiting_index.drop(group.key)
        time_account.queue_name = group.queue.name if group.queue is not None else ""
        self._add_runner(time_account)
        self.risen.append((time_account, BEFORE_ALL, time_account.base))

    def stop(self, time_account: TimeAccount, now: float) -> None:
        """Record that the group has lost its capacity, or is about to."""
        if time_account.started is not None:
            self._halt(time_account, now)

    def suspend(self, time_account: TimeAccount, now: float) -> None:
        """Record that a running group gives its capacity to another one."""
        time_account.segment.suspensions += 1
        time_account.rests_until = now + self._halt(time_account, now).rests

    def catch_up(self, now: float) -> None:
        """Rank groups that were due before ``now``, when no cycle ran because no group waited.

        Call it before any other group is evaluated. The result is as if a cycle had
        run.
        """
        self.now = now
        if self.evaluations and self.evaluations[0][0] < now:
            self.reranked += self._rerank(now, missed=True)

    def due(self, now: float) -> list[GroupEntry]:
        """Rank the groups that are due, as of their due time. Return those that wait."""
        reranked, self.reranked = self.reranked, []
        return reranked + self._rerank(now, missed=False)

    def _rerank(self, now: float, *, missed: bool) -> list[GroupEntry]:
        result: list[GroupEntry] = []
        evaluations = self.evaluations
        while evaluations and (evaluations[0][0] < now or (not missed and evaluations[0][0] == now)):
            time, key, epoch = heapq.heappop(evaluations)
            time_account = self.accounts.get(key)
            if time_account is None or time_account.epoch != epoch:
                continue
            self._count(time_account, time)
            if time_account.started is None:
                self._rank(time_account)
                result.append(time_account.group)
            else:
                runners, before = self.runners[time_account.queue_name], time_account.base
                runners.take_out(time_account)
                self._rank(time_account)
                runners.put(time_account)
                if time_account.base > before:
                    self.risen.append((time_account, before, time_account.base))
        return result

    def next_due(self) -> float | None:
        while self.evaluations:
            time, key, epoch = self.evaluations[0]
            time_account = self.accounts.get(key)
            if time_account is not None and time_account.epoch == epoch:
                return time
            heapq.heappop(self.evaluations)
        return None

    def worst(self, queue: str, now: float) -> float:
        """Return the largest rank of the running groups in a queue."""
        runners = self.runners.get(queue)
        return BEFORE_ALL if runners is None else runners.worst(now)

    def update_waiting(self, time_account: TimeAccount) -> None:
        """Add the account to the waiting index, with its rank, if the group waits."""
        group = time_account.group
        if time_account.started is None and group.queue is not None:
            self.waiting_index.put(group.key, group.queue.name, time_account.base)
        else:
            self.waiting_index.drop(group.key)

    def contention(self, queue: str) -> MeasuredContention:
        """Return the current contention of a queue."""
        return self.waiting_index.contention(queue, len(self.runners.get(queue, ())))

    def next_turn(self, time_account: TimeAccount, now: float) -> float | None:
        """Return the earliest time at which a waiting group may claim capacity in its queue.

        A running group then gets a new rank, or has a worse rank already while the
        waiting group's pause ends, or has a checkpoint and loses less.
        """
        queue = time_account.group.queue
        runners = None if queue is None else self.runners.get(queue.name)
        if runners is None:
            return None
        if time_account.rests_until > now and runners.worst(now) > time_account.base:
            return time_account.rests_until
        protected_until = self.outweighed(time_account, now)
        consent = [
            time
            for time in (runners.next_evaluation(), protected_until)
            if time is not None and now < time < AFTER_ALL
        ]
        return max(min(consent), time_account.rests_until) if consent else None

    def outweighed(self, time_account: TimeAccount, now: float) -> float | None:
        """Return the time until which possible victims would lose more than a suspension gains.

        It is infinite if unknown, and ``None`` if no victim is protected by it. The
        first :data:`MAX_EVALUATED` of them are evaluated.
        """
        queue, policy = time_account.group.queue, self.policy
        runners = None if queue is None else self.runners.get(queue.name)
        if queue is None or policy is None or runners is None or time_account.rests_until > now:
            return None
        contention = self.contention(queue.name)
        result: float | None = None
        for account in islice(runners.worst_first(now, time_account.base), MAX_EVALUATED):
            until = policy.protected_until(
                account.segment, time_account.segment, account.value(now), contention, now
            )
            if contention.was_used and until > now:
                result = until if result is None else min(result, until)
            contention.was_used = False
        return result

    # ------------------------------------------------------------------ details

    def _open(self, time_account: TimeAccount, spec: Group, runs: bool, now: float) -> float:
        """Start counting now, or at the start of a running group. Return that time."""
        group, segment, history = time_account.group, time_account.segment, spec.past
        started = _running_since(group, now) if runs else now
        if history is not None and runs:
            started = max(started, min(history.at, now))
        self._load_history(time_account, spec, started)
        time_account.since = started
        if not runs:
            segment.devices = _devices(group)
            pause = self._rank(time_account).rests
            if history is not None and history.suspensions:
                time_account.rests_until = history.at + pause
        return started

    def _load_history(self, time_account: TimeAccount, spec: Group, now: float) -> None:
        """Set what a group without any counts has attained up to a time."""
        segment, history = time_account.segment, spec.past
        if history is not None and not _is_over(time_account.group):
            segment.attained, segment.suspensions, segment.memory = (
                history.attained,
                history.suspensions,
                None,
            )
        created = (
            spec.created if history is None or history.since is None else min(history.since, spec.created)
        )
        segment.waited = max(now - created - segment.attained, 0.0)

    def _halt(self, time_account: TimeAccount, now: float) -> Rank:
        self._remove_runner(time_account)
        self._count(time_account, now)
        time_account.segment.started = None
        return self._rank(time_account)

    def _rank(self, time_account: TimeAccount) -> Rank:
        """Evaluate the policy, and schedule the next evaluation.

        The run segment has to be up to date.
        """
        if self.policy is None:
            raise RuntimeError("time is not shared")
        segment, since = time_account.segment, time_account.since
        rank = self.policy.rank(segment)
        runs = time_account.started is not None
        time_account.falls = rank.falls
        time_account.base = rank.value
        if rank.falls and runs and since is not None:
            time_account.base += rank.falls * since
        if not runs:
            self.update_waiting(time_account)
        time_account.epoch += 1
        time_account.next_evaluation = None
        if since is None:
            return rank
        if runs:
            remaining = None if rank.until is None else rank.until - segment.attained
        else:
            remaining = None if rank.waited_until is None else rank.waited_until - segment.waited
        if remaining is not None:
            time_account.next_evaluation = since + max(remaining, MIN_INTERVAL)
            heapq.heappush(
                self.evaluations, (time_account.next_evaluation, time_account.group.key, time_account.epoch)
            )
        return rank

    def _count(self, time_account: TimeAccount, now: float) -> None:
        """Count the time since the account was last updated."""
        passed = now - (now if time_account.since is None else time_account.since)
        if time_account.started is not None:
            time_account.segment.attained += passed
        else:
            time_account.segment.waited += passed
        time_account.since = now

    def _update_spec(self, time_account: TimeAccount, spec: Group) -> None:
        """Update the group's own statements, such as its last checkpoint."""
        before, time_account.segment.group = time_account.segment.group, spec
        if time_account.started is not None and before.annotations != spec.annotations:
            self.risen.append((time_account, BEFORE_ALL, AFTER_ALL))

    def _add_runner(self, time_account: TimeAccount) -> None:
        runners = self.runners.get(time_account.queue_name)
        if runners is None:
            runners = self.runners[time_account.queue_name] = RunningAccounts()
        runners.add(time_account)

    def _remove_runner(self, time_account: TimeAccount) -> None:
        runners = self.runners[time_account.queue_name]
        runners.discard(time_account)
        if not len(runners):
            del self.runners[time_account.queue_name]

    def _move_to_queue(self, time_account: TimeAccount, queue: str) -> None:
        self._remove_runner(time_account)
        time_account.queue_name = queue
        self._add_runner(time_account)

    def _end(self, time_account: TimeAccount, now: float) -> None:
        """Close the account of a group that has ended."""
        if time_account.started is not None or time_account.segment.attained:
            self._count(time_account, now)
            if self.policy is not None:
                self.policy.finished(time_account.segment)
        self._close(time_account)

    def _close(self, time_account: TimeAccount) -> None:
        self.waiting_index.drop(time_account.group.key)
        if time_account.started is not None:
            self._remove_runner(time_account)
            time_account.segment.started = None
        del self.accounts[time_account.group.key]
        time_account.group.shares_time = False


def _is_over(group: GroupEntry) -> bool:
    """Return whether all tasks have ended, some of them successfully."""
    return bool(group.succeeded and not group.pending and not group.active and not group.releasing)


def _running_since(group: GroupEntry, now: float) -> float:
    """Return the time since which a running group has had its minimum, as far as known.

    Start times come from the cluster. The group may have run before this engine
    started.
    """
    start_times = [entry.task.started for entry in group.tasks.values() if entry.row >= 0]
    if start_times.count(None) == len(start_times):
        return now
    started = sorted(min(now if index is None else index, now) for index in start_times)
    return started[min(max(group.minimum, 1), len(started)) - 1]


def _devices(group: GroupEntry) -> float:
    """Return the number of whole devices of the group's minimum."""
    devices = [entry.cls.accelerators for entry in group.tasks.values()]
    if len(devices) > 1:
        devices.sort(reverse=True)
        devices = devices[: max(group.minimum, 1)]
    return sum(devices) / _WHOLE

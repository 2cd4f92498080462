"""The accounts of groups that share time: who ran how long, and how they rank (:mod:`windlass.spi.timeshare`).

A group *runs* here while it holds its minimum, from the decision on. Ranks stand between the moments that the
policy named; only those moments, starts and stops cost anything.

What a group attained before this engine was there is taken from its object
(:class:`~windlass.spi.objects.AttainedService`), once, as its account is first looked at. What was counted by then of
runs like it is the policy's (:attr:`TimeSharingState.counted`).

Invariants: every group that opted in and is known has one account; ``runners`` of a queue are those accounts
whose group runs, sorted by rank; time is counted once, as run or as waited.
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
"""The place of who did not opt in: nothing is known against them."""
AFTER_ALL = float("inf")
LOOKED_AT = 256
"""So many of those who rank worst in a queue are asked when they would be worth a suspension; a bound on work."""
SOON = 1e-6
"""Seconds: no policy is asked again about one group sooner than that, whatever it names. Moments are sums of floating
point numbers: what is left until one may be less than what a moment can be told apart by."""
_WHOLE = 1000


class TimeAccount:
    """One group's account. ``since``: when its stint was brought up to date. ``rests_until``: since its last
    suspension, it claims nobody's room before then. ``epoch``: counts its ranks, older moments are void."""

    __slots__ = (
        "asked",
        "base",
        "epoch",
        "falls",
        "group",
        "home",
        "rests_until",
        "segment",
        "since",
    )

    def __init__(self, group: GroupEntry, segment: RunSegment) -> None:
        self.group = group
        self.segment = segment
        self.base = 0.0
        """Its rank at time 0, as it falls: at a moment it is ``base - falls * moment`` while it runs."""
        self.falls = 0.0
        self.since: float | None = None
        self.rests_until = 0.0
        self.home = ""
        """The queue among whose runners it stands."""
        self.epoch = 0
        self.asked: float | None = None
        """When the policy is to be asked again."""

    def value(self, now: float) -> float:
        """Its rank at a moment."""
        return self.base - self.falls * now if self.falls and self.segment.started is not None else self.base

    @property
    def started(self) -> float | None:
        """Since when it runs, ``None`` while it waits."""
        return self.segment.started

    @property
    def place(self) -> tuple[float, str]:
        return (self.base, self.group.key)


class RunningAccounts:
    """The accounts of a queue that run; those whose ranks fall alike stand in one line, sorted by rank at all times."""

    def __init__(self) -> None:
        self._lines: dict[float, list[tuple[float, str]]] = {}
        """How fast ranks fall → the places of those whose ranks do; no line is empty."""
        self._accounts: dict[str, TimeAccount] = {}
        self._sizes: dict[float, int] = {}
        """Accelerators → how many of them have so many; those that somebody has."""
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
        self.pull(time_account)
        del self._accounts[time_account.group.key]
        size = time_account.segment.devices
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]
        self.suspendable.discard(time_account.group)

    def look(self, time_account: TimeAccount) -> None:
        """What the group holds may have changed."""
        if self.suspendable.changed(time_account.group):
            self.suspendable.discard(time_account.group)
            self.suspendable.add(time_account.group, time_account.base, time_account.falls)

    def pull(self, time_account: TimeAccount) -> None:
        """Its rank is about to change: :meth:`put` follows."""
        line, place = self._lines[time_account.falls], time_account.place
        at = bisect_left(line, place)
        if line[at] != place:
            raise RuntimeError(f"{time_account.group.key} does not stand where it should")
        del line[at]
        if not line:
            del self._lines[time_account.falls]

    def put(self, time_account: TimeAccount) -> None:
        self._enter(time_account)
        self.suspendable.rerank(time_account.group, time_account.base, time_account.falls)

    def _enter(self, time_account: TimeAccount) -> None:
        line = self._lines.get(time_account.falls)
        if line is None:
            self._lines[time_account.falls] = [time_account.place]
        else:
            insort(line, time_account.place)

    def next_asked(self) -> float | None:
        """When the policy is asked next about one of them."""
        return min((one.asked for one in self._accounts.values() if one.asked is not None), default=None)

    def worst(self, now: float) -> float:
        """The largest rank of all."""
        return max([line[-1][0] - falls * now for falls, line in self._lines.items()], default=BEFORE_ALL)

    def worst_first(
        self, now: float, above: float, more: float = BEFORE_ALL, most: float = AFTER_ALL
    ) -> Iterator[TimeAccount]:
        """Those of a rank larger than ``above``, the largest first; only of ``more`` accelerators than that, and of so
        many at ``most``."""
        lines = [self._falling(line, falls * now, above, more, most) for falls, line in self._lines.items()]
        for *_, time_account in lines[0] if len(lines) == 1 else heapq.merge(*lines, reverse=True):
            yield time_account

    def next_size(self, more: float) -> float | None:
        """How many accelerators the smallest of those have who have more than so many; ``None`` if nobody has."""
        return min([size for size in self._sizes if size > more], default=None)

    def _falling(
        self, line: list[tuple[float, str]], fallen: float, above: float, more: float, most: float
    ) -> Iterator[tuple[float, str, TimeAccount]]:
        """What :meth:`worst_first` gives of a line, with ranks and keys. ``fallen``: by how much all have fallen."""
        accounts = self._accounts
        for base, key in reversed(line):
            value = base - fallen
            if value <= above:
                return
            time_account = accounts[key]
            if more < time_account.segment.devices <= most:
                yield value, key, time_account


class TimeSharingState:
    """All accounts. Without a ``policy`` time is not shared."""

    def __init__(self) -> None:
        self.policy: TimeSharing | None = None
        self.accounts: dict[str, TimeAccount] = {}
        self.runners: dict[str, RunningAccounts] = {}
        self.waiting_index = WaitingIndex()
        """Those accounts that do not run."""
        self.moments: list[tuple[float, str, int]] = []
        """A heap: when the policy is to be asked about whom, and the epoch of which that holds."""
        self.late: list[GroupEntry] = []
        """Who was ranked anew and has not been looked at since."""
        self.risen: list[tuple[TimeAccount, float, float]] = []
        """Who runs and ranks worse than before, with both ranks, since somebody took this list."""
        self.counted = BEFORE_ALL
        """Up to when what runs outlived is in the counts that the policy was handed; Unix seconds."""
        self.now = BEFORE_ALL
        """Up to when all that was due is done; Unix seconds."""

    # ------------------------------------------------------------------ places in the order

    def place(self, group: GroupEntry) -> float:
        """The rank of a group among those that wait; smaller goes first."""
        if self.policy is None:
            return BEFORE_ALL
        time_account = self.time_account(group)
        return BEFORE_ALL if time_account is None else time_account.base

    def time_account(self, group: GroupEntry) -> TimeAccount | None:
        """The group's account, opened now if it opted in and has none; closed if it no longer takes part."""
        policy, spec, queue = self.policy, group.group, group.queue
        known = self.accounts.get(group.key)
        if policy is None or spec is None or queue is None:
            return known
        asked = group.consent
        if asked is None or asked[0] is not spec or asked[1] is not queue or asked[2] != queue.version:
            asked = group.consent = spec, queue, queue.version, policy.joins(spec, queue.path)
        if not asked[3]:
            if known is not None:
                self._close(known)
            return None
        if known is not None and known.group is group:
            if known.segment.group is not spec:
                self._said(known, spec)
            return known
        if known is not None:
            self._close(known)
        time_account = TimeAccount(group, RunSegment(spec, _devices(group)))
        self._recollect(time_account, spec, self.now)
        self.accounts[group.key] = time_account
        group.shares = True
        self._rank(time_account)
        return time_account

    # ------------------------------------------------------------------ what happens

    def update(self, touched: Iterable[GroupEntry], now: float) -> None:
        """Take in what may have started, stopped or ended."""
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
            runs, begun = group.active > 0 and group.ready(), now
            if time_account.since is None:
                begun = self._open(time_account, spec, runs, now)
            if runs:
                if time_account.started is None:
                    self.start(time_account, begun)
                    continue
                if group.queue is not None and group.queue.name != time_account.home:
                    self._rehome(time_account, group.queue.name)
                self.runners[time_account.home].look(time_account)
                continue
            if group.queue is not None:
                self.waiting_index.moved(group.key, group.queue.name)
            if time_account.started is not None:
                if _is_over(group):
                    self._end(time_account, now)
                else:
                    self.stop(time_account, now)

    def past(self, key: str) -> AttainedService | None:
        """What the group had behind it when it was stopped last, or was started after that; ``None``: it was never
        stopped, or has been at work since for long enough to be ranked anew."""
        time_account = self.accounts.get(key)
        if time_account is None or time_account.since is None or not time_account.segment.attained:
            return None
        segment, at = time_account.segment, time_account.since
        return (
            AttainedService(segment.attained, at, segment.suspensions)
            if segment.started in (None, at)
            else None
        )

    def start(self, time_account: TimeAccount, now: float) -> None:
        """The group has its room."""
        group = time_account.group
        self._settle(time_account, now)
        time_account.segment.started = now
        time_account.segment.again = time_account.segment.attained > 0
        time_account.segment.devices = _devices(group)
        if self.counted > now:
            self._settle(time_account, self.counted)
            time_account.segment.memory = None
        self._rank(time_account)
        self.waiting_index.drop(group.key)
        time_account.home = group.queue.name if group.queue is not None else ""
        self._come(time_account)
        self.risen.append((time_account, BEFORE_ALL, time_account.base))

    def stop(self, time_account: TimeAccount, now: float) -> None:
        """The group has lost its room, or is about to."""
        if time_account.started is not None:
            self._halt(time_account, now)

    def suspend(self, time_account: TimeAccount, now: float) -> None:
        """A group that runs gives its room to another one."""
        time_account.segment.suspensions += 1
        time_account.rests_until = now + self._halt(time_account, now).rests

    def catch_up(self, now: float) -> None:
        """Rank anew whoever was due before ``now``, when no cycle ran as nobody waited: before anybody else is
        asked about, so that all is as if one had."""
        self.now = now
        if self.moments and self.moments[0][0] < now:
            self.late += self._renew(now, missed=True)

    def due(self, now: float) -> list[GroupEntry]:
        """Rank anew whoever is due, as of the moment when that was; those of them that wait."""
        late, self.late = self.late, []
        return late + self._renew(now, missed=False)

    def _renew(self, now: float, *, missed: bool) -> list[GroupEntry]:
        found: list[GroupEntry] = []
        moments = self.moments
        while moments and (moments[0][0] < now or (not missed and moments[0][0] == now)):
            moment, key, epoch = heapq.heappop(moments)
            time_account = self.accounts.get(key)
            if time_account is None or time_account.epoch != epoch:
                continue
            self._settle(time_account, moment)
            if time_account.started is None:
                self._rank(time_account)
                found.append(time_account.group)
            else:
                runners, before = self.runners[time_account.home], time_account.base
                runners.pull(time_account)
                self._rank(time_account)
                runners.put(time_account)
                if time_account.base > before:
                    self.risen.append((time_account, before, time_account.base))
        return found

    def next_due(self) -> float | None:
        while self.moments:
            moment, key, epoch = self.moments[0]
            time_account = self.accounts.get(key)
            if time_account is not None and time_account.epoch == epoch:
                return moment
            heapq.heappop(self.moments)
        return None

    def worst(self, queue: str, now: float) -> float:
        """The largest rank of those that run in a queue."""
        runners = self.runners.get(queue)
        return BEFORE_ALL if runners is None else runners.worst(now)

    def stand(self, time_account: TimeAccount) -> None:
        """See that it is among those that wait, with its rank, if it does."""
        group = time_account.group
        if time_account.started is None and group.queue is not None:
            self.waiting_index.put(group.key, group.queue.name, time_account.base)
        else:
            self.waiting_index.drop(group.key)

    def crowd(self, queue: str) -> MeasuredContention:
        """Of a queue, as it is now."""
        return self.waiting_index.crowd(queue, len(self.runners.get(queue, ())))

    def next_turn(self, time_account: TimeAccount, now: float) -> float | None:
        """When one that waits may claim the room of another one of its queue at the earliest: once that ranks anew, or
        ranks worse already and it has rested, or loses less as it has saved its work."""
        queue = time_account.group.queue
        runners = None if queue is None else self.runners.get(queue.name)
        if runners is None:
            return None
        if time_account.rests_until > now and runners.worst(now) > time_account.base:
            return time_account.rests_until
        saved = self.outweighed(time_account, now)
        asked = [
            moment
            for moment in (runners.next_asked(), saved)
            if moment is not None and now < moment < AFTER_ALL
        ]
        return max(min(asked), time_account.rests_until) if asked else None

    def outweighed(self, time_account: TimeAccount, now: float) -> float | None:
        """Until when those that a group could have suspended, or some of them, would lose more than that is worth;
        infinite if nobody knows, ``None`` if that hinders nobody. The first :data:`LOOKED_AT` of them are looked at."""
        queue, policy = time_account.group.queue, self.policy
        runners = None if queue is None else self.runners.get(queue.name)
        if queue is None or policy is None or runners is None or time_account.rests_until > now:
            return None
        crowd = self.crowd(queue.name)
        found: float | None = None
        for one in islice(runners.worst_first(now, time_account.base), LOOKED_AT):
            until = policy.spared_until(one.segment, time_account.segment, one.value(now), crowd, now)
            if crowd.asked and until > now:
                found = until if found is None else min(found, until)
            crowd.asked = False
        return found

    # ------------------------------------------------------------------ parts

    def _open(self, time_account: TimeAccount, spec: Group, runs: bool, now: float) -> float:
        """Count from now on, or from when a group that runs has had its room. Returns that moment."""
        group, segment, past = time_account.group, time_account.segment, spec.past
        begun = _running_since(group, now) if runs else now
        if past is not None and runs:
            begun = max(begun, min(past.at, now))
        self._recollect(time_account, spec, begun)
        time_account.since = begun
        if not runs:
            segment.devices = _devices(group)
            rests = self._rank(time_account).rests
            if past is not None and past.suspensions:
                time_account.rests_until = past.at + rests
        return begun

    def _recollect(self, time_account: TimeAccount, spec: Group, now: float) -> None:
        """What a group of which nothing was counted yet has behind it at a moment."""
        segment, past = time_account.segment, spec.past
        if past is not None and not _is_over(time_account.group):
            segment.attained, segment.suspensions, segment.memory = past.attained, past.suspensions, None
        came = spec.created if past is None or past.since is None else min(past.since, spec.created)
        segment.waited = max(now - came - segment.attained, 0.0)

    def _halt(self, time_account: TimeAccount, now: float) -> Rank:
        self._leave(time_account)
        self._settle(time_account, now)
        time_account.segment.started = None
        return self._rank(time_account)

    def _rank(self, time_account: TimeAccount) -> Rank:
        """Ask the policy, and note when it is to be asked again. The stint is up to date."""
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
            self.stand(time_account)
        time_account.epoch += 1
        time_account.asked = None
        if since is None:
            return rank
        if runs:
            left = None if rank.until is None else rank.until - segment.attained
        else:
            left = None if rank.waited_until is None else rank.waited_until - segment.waited
        if left is not None:
            time_account.asked = since + max(left, SOON)
            heapq.heappush(self.moments, (time_account.asked, time_account.group.key, time_account.epoch))
        return rank

    def _settle(self, time_account: TimeAccount, now: float) -> None:
        """Count the time since the account was looked at last."""
        passed = now - (now if time_account.since is None else time_account.since)
        if time_account.started is not None:
            time_account.segment.attained += passed
        else:
            time_account.segment.waited += passed
        time_account.since = now

    def _said(self, time_account: TimeAccount, spec: Group) -> None:
        """The group says other things of itself than before, such as when it saved its work last."""
        before, time_account.segment.group = time_account.segment.group, spec
        if time_account.started is not None and before.annotations != spec.annotations:
            self.risen.append((time_account, BEFORE_ALL, AFTER_ALL))

    def _come(self, time_account: TimeAccount) -> None:
        runners = self.runners.get(time_account.home)
        if runners is None:
            runners = self.runners[time_account.home] = RunningAccounts()
        runners.add(time_account)

    def _leave(self, time_account: TimeAccount) -> None:
        runners = self.runners[time_account.home]
        runners.discard(time_account)
        if not len(runners):
            del self.runners[time_account.home]

    def _rehome(self, time_account: TimeAccount, queue: str) -> None:
        self._leave(time_account)
        time_account.home = queue
        self._come(time_account)

    def _end(self, time_account: TimeAccount, now: float) -> None:
        """The group needs its room no more."""
        if time_account.started is not None or time_account.segment.attained:
            self._settle(time_account, now)
            if self.policy is not None:
                self.policy.ended(time_account.segment)
        self._close(time_account)

    def _close(self, time_account: TimeAccount) -> None:
        self.waiting_index.drop(time_account.group.key)
        if time_account.started is not None:
            self._leave(time_account)
            time_account.segment.started = None
        del self.accounts[time_account.group.key]
        time_account.group.shares = False


def _is_over(group: GroupEntry) -> bool:
    """Whether all that was there of it has ended, some of it well."""
    return bool(group.succeeded and not group.pending and not group.active and not group.releasing)


def _running_since(group: GroupEntry, now: float) -> float:
    """Since when a group that runs has had its minimum, as far as the world says: it may have been there before this
    engine was."""
    known = [entry.task.started for entry in group.tasks.values() if entry.row >= 0]
    if known.count(None) == len(known):
        return now
    started = sorted(min(now if at is None else at, now) for at in known)
    return started[min(max(group.minimum, 1), len(started)) - 1]


def _devices(group: GroupEntry) -> float:
    """Whole accelerators of the group's minimum."""
    each = [entry.cls.accelerators for entry in group.tasks.values()]
    if len(each) > 1:
        each.sort(reverse=True)
        each = each[: max(group.minimum, 1)]
    return sum(each) / _WHOLE

"""Accounts of time-sharing groups as plain values, part of the engine's dump.

All accounts of :class:`~windlass.engine.timesharing.attained_service.TimeSharingState`
are written. The order of running groups follows from them. JSON has no infinity, so
infinite ranks are written as names.
"""

from __future__ import annotations

import heapq
from math import inf
from typing import Any

import msgspec

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.timesharing.attained_service import RunningAccounts, TimeAccount, TimeSharingState
from windlass.spi.objects import Group
from windlass.spi.timeshare import RunSegment

Number = float | str
"""Number, or the name of an infinite one."""
_INFINITIES = {inf: "inf", -inf: "-inf"}


class TimeAccountRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record of a :class:`~windlass.engine.timesharing.attained_service.TimeAccount`.

    ``last``: last known group, if it is gone.
    """

    group: str
    devices: float
    base: Number
    attained: float = 0.0
    waited: float = 0.0
    suspensions: int = 0
    memory: Any = None
    falls: float = 0.0
    since: float | None = None
    started: float | None = None
    queue: str = msgspec.field(default="", name="home")
    next_evaluation: float | None = msgspec.field(default=None, name="asked")
    last: Group | None = None
    rests_until: float = 0.0
    again: bool = False


class TimeSharingRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record of all accounts.

    ``reranked``: groups that were ranked again and have not been tried since.
    ``risen``: running groups with a worse rank than before, with both ranks.
    ``counted``: time up to which run times are part of the loaded counters.
    """

    accounts: list[TimeAccountRecord] = []
    reranked: list[str] = msgspec.field(default_factory=list, name="late")
    risen: list[tuple[str, Number, Number]] = []
    counted: float | None = None


def number(value: float) -> Number:
    """Return the number in its written form."""
    return _INFINITIES.get(value, value)


def as_record(time_sharing: TimeSharingState) -> TimeSharingRecord:
    """Return all accounts, sorted by group."""
    return TimeSharingRecord(
        [_account(time_sharing.accounts[key]) for key in sorted(time_sharing.accounts)],
        [group.key for group in time_sharing.reranked],
        [(account.group.key, number(before), number(after)) for account, before, after in time_sharing.risen],
        None if time_sharing.counted == -inf else time_sharing.counted,
    )


def restore(time_sharing: TimeSharingState, record: TimeSharingRecord, groups: dict[str, GroupEntry]) -> None:
    """Restore into a state without accounts. ``groups``: known groups with what they held."""
    times = []
    for account_record in record.accounts:
        group = groups.get(account_record.group)
        spec = account_record.last if group is None or group.group is None else group.group
        if group is None or spec is None:
            continue
        time_account = _restored(account_record, group, spec)
        time_sharing.accounts[group.key] = time_account
        time_sharing.users.add("group")
        group.shares_time = True
        time_sharing.update_waiting(time_account)
        if time_account.started is not None:
            time_sharing.runners.setdefault(time_account.queue_name, RunningAccounts()).add(time_account)
        if time_account.next_evaluation is not None:
            times.append((time_account.next_evaluation, group.key, time_account.epoch))
    heapq.heapify(times)
    time_sharing.evaluations = times
    time_sharing.counted = -inf if record.counted is None else record.counted
    time_sharing.reranked = [groups[key] for key in record.reranked if key in groups]
    time_sharing.risen = [
        (time_sharing.accounts[key], float(before), float(after))
        for key, before, after in record.risen
        if key in time_sharing.accounts
    ]


def _account(time_account: TimeAccount) -> TimeAccountRecord:
    segment = time_account.segment
    return TimeAccountRecord(
        time_account.group.key,
        segment.devices,
        number(time_account.base),
        segment.attained,
        segment.waited,
        segment.suspensions,
        segment.memory,
        time_account.falls,
        time_account.since,
        time_account.started,
        time_account.queue_name,
        time_account.next_evaluation,
        segment.group if time_account.group.group is None else None,
        time_account.rests_until,
        segment.resumed,
    )


def _restored(account_record: TimeAccountRecord, group: GroupEntry, spec: Group) -> TimeAccount:
    segment = RunSegment(
        spec,
        account_record.devices,
        account_record.attained,
        account_record.waited,
        account_record.suspensions,
        account_record.memory,
    )
    segment.started, segment.resumed = account_record.started, account_record.again
    time_account = TimeAccount(group, segment)
    time_account.base, time_account.falls = float(account_record.base), account_record.falls
    time_account.since, time_account.next_evaluation = account_record.since, account_record.next_evaluation
    time_account.queue_name, time_account.rests_until = account_record.queue, account_record.rests_until
    return time_account

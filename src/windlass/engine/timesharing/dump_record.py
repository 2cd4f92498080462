"""The accounts of groups that share time as plain values, and back: a part of a dumped state.

What :class:`~windlass.engine.timesharing.attained_service.TimeSharingState` keeps is written whole; who ranks how among
those that run follows from it. Infinite ranks are written as ``None`` beside the sign, since JSON has none.
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
"""A number, or how an infinite one is called."""
_NAMES = {inf: "inf", -inf: "-inf"}


class TimeAccountRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """:class:`~windlass.engine.timesharing.attained_service.TimeAccount`. ``last``: the group as it was last, where it
    is gone already."""

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
    home: str = ""
    asked: float | None = None
    last: Group | None = None
    rests_until: float = 0.0
    again: bool = False


class TimeSharingRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """``late``: groups that were ranked anew and have not been looked at since. ``risen``: who runs and ranks worse
    than before, with both ranks. ``counted``: up to when what runs outlived is in the counts that were handed over."""

    accounts: list[TimeAccountRecord] = []
    late: list[str] = []
    risen: list[tuple[str, Number, Number]] = []
    counted: float | None = None


def number(value: float) -> Number:
    """As it is written."""
    return _NAMES.get(value, value)


def as_record(time_sharing: TimeSharingState) -> TimeSharingRecord:
    """All accounts, sorted by their groups."""
    return TimeSharingRecord(
        [_account(time_sharing.accounts[key]) for key in sorted(time_sharing.accounts)],
        [group.key for group in time_sharing.late],
        [(one.group.key, number(before), number(after)) for one, before, after in time_sharing.risen],
        None if time_sharing.counted == -inf else time_sharing.counted,
    )


def restore(time_sharing: TimeSharingState, record: TimeSharingRecord, groups: dict[str, GroupEntry]) -> None:
    """Into a sharing without accounts. ``groups``: those that the world knows, holding what they held."""
    moments = []
    for kept in record.accounts:
        group = groups.get(kept.group)
        spec = kept.last if group is None or group.group is None else group.group
        if group is None or spec is None:
            continue
        time_account = _restored(kept, group, spec)
        time_sharing.accounts[group.key] = time_account
        group.shares = True
        time_sharing.stand(time_account)
        if time_account.started is not None:
            time_sharing.runners.setdefault(time_account.home, RunningAccounts()).add(time_account)
        if time_account.asked is not None:
            moments.append((time_account.asked, group.key, time_account.epoch))
    heapq.heapify(moments)
    time_sharing.moments = moments
    time_sharing.counted = -inf if record.counted is None else record.counted
    time_sharing.late = [groups[key] for key in record.late if key in groups]
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
        time_account.home,
        time_account.asked,
        segment.group if time_account.group.group is None else None,
        time_account.rests_until,
        segment.again,
    )


def _restored(kept: TimeAccountRecord, group: GroupEntry, spec: Group) -> TimeAccount:
    segment = RunSegment(spec, kept.devices, kept.attained, kept.waited, kept.suspensions, kept.memory)
    segment.started, segment.again = kept.started, kept.again
    time_account = TimeAccount(group, segment)
    time_account.base, time_account.falls = float(kept.base), kept.falls
    time_account.since, time_account.asked = kept.since, kept.asked
    time_account.home, time_account.rests_until = kept.home, kept.rests_until
    return time_account

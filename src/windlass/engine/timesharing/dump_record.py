"""The accounts of groups that share time as plain values, and back: a part of a dumped state.

What :class:`~windlass.engine.timesharing.attained_service.Sharing` keeps is written whole; who ranks how among those
that run follows from it. Infinite ranks are written as ``None`` beside the sign, since JSON has none.
"""

from __future__ import annotations

import heapq
from math import inf
from typing import Any

import msgspec

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.timesharing.attained_service import Account, Runners, Sharing
from windlass.spi.objects import Group
from windlass.spi.timeshare import Stint

Number = float | str
"""A number, or how an infinite one is called."""
_NAMES = {inf: "inf", -inf: "-inf"}


class AccountRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """:class:`~windlass.engine.timesharing.attained_service.Account`. ``last``: the group as it was last, where it is
    gone already."""

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


class SharingRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """``late``: groups that were ranked anew and have not been looked at since. ``risen``: who runs and ranks worse
    than before, with both ranks. ``counted``: up to when what runs outlived is in the counts that were handed over."""

    accounts: list[AccountRecord] = []
    late: list[str] = []
    risen: list[tuple[str, Number, Number]] = []
    counted: float | None = None


def number(value: float) -> Number:
    """As it is written."""
    return _NAMES.get(value, value)


def as_record(sharing: Sharing) -> SharingRecord:
    """All accounts, sorted by their groups."""
    return SharingRecord(
        [_account(sharing.accounts[key]) for key in sorted(sharing.accounts)],
        [group.key for group in sharing.late],
        [(one.group.key, number(before), number(after)) for one, before, after in sharing.risen],
        None if sharing.counted == -inf else sharing.counted,
    )


def restore(sharing: Sharing, record: SharingRecord, groups: dict[str, GroupEntry]) -> None:
    """Into a sharing without accounts. ``groups``: those that the world knows, holding what they held."""
    moments = []
    for kept in record.accounts:
        group = groups.get(kept.group)
        spec = kept.last if group is None or group.group is None else group.group
        if group is None or spec is None:
            continue
        account = _restored(kept, group, spec)
        sharing.accounts[group.key] = account
        group.shares = True
        sharing.stand(account)
        if account.started is not None:
            sharing.runners.setdefault(account.home, Runners()).add(account)
        if account.asked is not None:
            moments.append((account.asked, group.key, account.epoch))
    heapq.heapify(moments)
    sharing.moments = moments
    sharing.counted = -inf if record.counted is None else record.counted
    sharing.late = [groups[key] for key in record.late if key in groups]
    sharing.risen = [
        (sharing.accounts[key], float(before), float(after))
        for key, before, after in record.risen
        if key in sharing.accounts
    ]


def _account(account: Account) -> AccountRecord:
    stint = account.stint
    return AccountRecord(
        account.group.key,
        stint.devices,
        number(account.base),
        stint.attained,
        stint.waited,
        stint.suspensions,
        stint.memory,
        account.falls,
        account.since,
        account.started,
        account.home,
        account.asked,
        stint.group if account.group.group is None else None,
        account.rests_until,
        stint.again,
    )


def _restored(kept: AccountRecord, group: GroupEntry, spec: Group) -> Account:
    stint = Stint(spec, kept.devices, kept.attained, kept.waited, kept.suspensions, kept.memory)
    stint.started, stint.again = kept.started, kept.again
    account = Account(group, stint)
    account.base, account.falls = float(kept.base), kept.falls
    account.since, account.asked = kept.since, kept.asked
    account.home, account.rests_until = kept.home, kept.rests_until
    return account

"""Records of evictions for another group, on both groups, as JSON in annotations.

``windlass.dev/evicted-for`` on the group of the evicted pods names the group that
received the capacity. ``windlass.dev/evictions`` on that group names the groups evicted
for it, and groups nearby that were spared, each with the reason. Users read them by
``windlass show`` and ``windlass explain``. No decision depends on them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from windlass.api import annotations as names

MAX_GROUPS = 8
"""Maximum number of groups that one list of a record names."""
MAX_PODS = 8
"""Maximum number of pods that a record names."""


class EvictedFor(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Last eviction of pods of a group.

    ``at``: time of the decision (RFC 3339).
    ``group``: the group that received the capacity, as users know it; empty if the
    pods had to leave for another reason.
    ``reason``: rule by which these pods could be evicted.
    ``times``: number of such evictions so far.
    """

    at: str
    action: str
    group: str
    reason: str
    pods: tuple[str, ...] = ()
    count: int = 1
    times: int = 1


class EvictedGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Group of which pods were evicted."""

    group: str
    at: str
    action: str
    pods: int
    reason: str


class SparedGroup(msgspec.Struct, frozen=True):
    """Group on the same nodes of which no pod was evicted."""

    group: str
    reason: str


class Evictions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Groups that were evicted for a group, latest first, and those spared at the last time."""

    evicted: tuple[EvictedGroup, ...]
    spared: tuple[SparedGroup, ...] = ()
    more: int = 0
    """Number of evicted groups that are not named."""


_Record = TypeVar("_Record", EvictedFor, Evictions)


def encode(record: EvictedFor | Evictions) -> str:
    """Return the text of a record."""
    return msgspec.json.encode(record).decode()


def evicted_for(annotations: Mapping[str, str]) -> EvictedFor | None:
    """Return the record on a group of evicted pods; ``None`` without a valid one."""
    return _decoded(annotations.get(names.EVICTED_FOR), EvictedFor)


def evictions_of(annotations: Mapping[str, str]) -> Evictions | None:
    """Return the record on a group for which others were evicted; ``None`` without a valid one."""
    return _decoded(annotations.get(names.EVICTIONS), Evictions)


def _decoded(text: str | None, kind: type[_Record]) -> _Record | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:  # a user edited it
        return None


def with_evicted(
    before: Evictions | None, evicted: Iterable[EvictedGroup], spared: Iterable[SparedGroup]
) -> Evictions:
    """Return the record after further evictions. A group evicted again is named once."""
    latest = list(evicted)
    known = {entry.group for entry in latest}
    earlier = [entry for entry in (before.evicted if before else ()) if entry.group not in known]
    named = [*latest, *earlier]
    more = max(0, len(named) - MAX_GROUPS) + (before.more if before else 0)
    return Evictions(tuple(named[:MAX_GROUPS]), tuple(spared)[:MAX_GROUPS], more)

"""Sentences about groups with an earliest start."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.backfill.early_starts import EarlyStarts, is_gated, reserve_until
from windlass.engine.groups.entries import GroupEntry

_SHOWN = 3


def sentence(early_starts: EarlyStarts, group: GroupEntry, now: float) -> str:
    """Return why a group waits for its earliest start; empty if it does not."""
    spec = group.group
    if spec is None or spec.earliest_start is None:
        return ""
    gated = is_gated(group)
    if spec.earliest_start <= now and not gated:
        return ""
    r = early_starts.by_group.get(group.key)
    return early_start(
        spec.earliest_start,
        max(r.start, spec.earliest_start) if r is not None else None,
        reserve_until(group),
        sorted(r.nodes.values()) if r is not None else [],
        early_starts.borrowers(r, now) if r is not None else [],
        now,
        gated=gated,
    )


def early_start(
    earliest: float,
    start: float | None,
    until: float,
    nodes: Sequence[str],
    borrowers: Sequence[str],
    now: float,
    *,
    gated: bool,
) -> str:
    """Return why a group waits for its earliest start.

    ``start``: start of its reservation; ``None`` if there is none. ``until``: end of the
    reservation. ``nodes``: its nodes. ``borrowers``: groups that use the capacity
    meanwhile. ``gated``: scheduling gates of its pods are closed.
    """
    gate = " A scheduling gate of its pods is closed until its controller needs them." if gated else ""
    if now >= until:
        late = f" It starts at {clock_time(earliest)} at the earliest." if earliest > now else ""
        return f"Its reservation expired unused at {clock_time(until)}.{late}{gate}"
    if start is None:
        when = f"It starts at {clock_time(earliest)} at the earliest. " if earliest > now else ""
        return f"{when}No capacity is reserved for it: no time is known at which it fits.{gate}"
    where = f"reserved from {clock_time(start)} on {_listed(nodes)}"
    if start <= now:
        lent = "and not claimed yet"
    elif borrowers:
        lent = f"lent to {_listed(borrowers)} until then"
    else:
        lent = "free until then for work that ends in time"
    return f"Its capacity is {where}, {lent}. Unused, the reservation expires at {clock_time(until)}.{gate}"


def clock_time(seconds: float) -> str:
    """Return the time of day (UTC) of Unix seconds."""
    of_day = int(seconds) % 86_400
    return f"{of_day // 3600:02}:{of_day // 60 % 60:02}:{of_day % 60:02} UTC"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_SHOWN])
    if len(names) > _SHOWN:
        shown.append(f"{len(names) - _SHOWN} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

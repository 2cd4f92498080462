"""What a group that shares time has behind it, as its object says: between this and the engine's account.

The scheduler writes it at each suspension, before the first pod goes, and reads it only when it opens the group's
account: once it begins, not while it decides. ``windlass.dev/attained`` is for how long the group has had its room in
all, up to ``windlass.dev/attained-at``; what it ran after that moment is counted from its pods. So it does not matter
when it was written, nor how often. A Volcano Job that is started over has a new object, to which that is carried
(:func:`carried`).

What cannot be true is nobody's past: it is told, and the group counts as if nothing was written. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from windlass.api import annotations as names
from windlass.kits import durations
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.spi.objects import AttainedService

_Said = TypeVar("_Said")
SLACK_SECONDS = 60.0
"""By so much may be attained more than there was time for: moments are whole seconds, of several clocks."""
CARRIED = (names.ATTAINED, names.ATTAINED_AT, names.SUSPENSIONS, names.ATTAINED_SINCE)


def written(past: AttainedService) -> dict[str, str | None]:
    """As annotations: whole seconds, rounded down."""
    return {
        names.ATTAINED: durations.write(past.attained),
        names.ATTAINED_AT: rfc3339(past.at),
        names.SUSPENSIONS: str(past.suspensions),
    }


def carried(annotations: Mapping[str, str], created: str) -> dict[str, str]:
    """What stands on an object of what it has behind it, for the one that is made in its place. ``created``: when this
    one was made (RFC 3339)."""
    if names.ATTAINED not in annotations:
        return {}
    found = {name: annotations[name] for name in CARRIED if name in annotations}
    return {names.ATTAINED_SINCE: created} | found


def attained_service_of(annotations: Mapping[str, str], created: float) -> AttainedService | None:
    """What is written; ``None`` where nothing is, or what cannot be true. ``created``: when the object was made."""
    if names.ATTAINED not in annotations:
        return None
    try:
        return _read(annotations, created)
    except ValueError:
        return None


def problem(annotations: Mapping[str, str], created: float) -> str:
    """What is wrong with it, for people; empty where nothing is."""
    if names.ATTAINED not in annotations:
        return ""
    try:
        _read(annotations, created)
    except ValueError as error:
        return str(error)
    return ""


def _read(annotations: Mapping[str, str], created: float) -> AttainedService:
    attained = _said(annotations, names.ATTAINED, durations.parse)
    at = _said(annotations, names.ATTAINED_AT, parse_rfc3339)
    times = _said(annotations, names.SUSPENSIONS, int) if names.SUSPENSIONS in annotations else 0
    since = None
    if names.ATTAINED_SINCE in annotations:
        since = _said(annotations, names.ATTAINED_SINCE, parse_rfc3339)
        created = min(created, since)
    if attained < 0 or times < 0:
        name = names.ATTAINED if attained < 0 else names.SUSPENSIONS
        raise ValueError(f"{name}: {annotations[name]} is less than nothing")
    if at < created - SLACK_SECONDS:
        raise ValueError(
            f"{names.ATTAINED_AT}: {annotations[names.ATTAINED_AT]} is before the object was made ({rfc3339(created)}):"
            " it was copied from another one"
        )
    if attained > at - created + SLACK_SECONDS:
        raise ValueError(
            f"{names.ATTAINED}: {annotations[names.ATTAINED]} is longer than the object was there by"
            f" {annotations[names.ATTAINED_AT]} (since {rfc3339(created)})"
        )
    return AttainedService(attained, at, int(times), since)


def _said(annotations: Mapping[str, str], name: str, read: Callable[[str], _Said]) -> _Said:
    text = annotations.get(name, "")
    try:
        return read(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {error}" if text else f"{name} is missing") from None

"""Attained service of a time-sharing group, as stored on its object.

The scheduler writes it at each suspension, before the first pod is removed. It reads it
only when it starts to account for the group, not while it decides.
``windlass.dev/attained`` is the total time for which the group has held its resources,
up to ``windlass.dev/attained-at``. Its run time after that is counted from its pods. So
neither the time nor the number of writes matters. A Volcano Job that is restarted has a
new object, to which the record is copied (:func:`carried`).

A record that cannot be true is reported and ignored. Pure.
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
"""Maximum excess (seconds) of attained service over elapsed time.

Times are whole seconds, of several clocks.
"""
_SERVICE = (names.ATTAINED, names.ATTAINED_AT, names.SUSPENSIONS, names.ATTAINED_SINCE)
_EVICTIONS = (names.EVICTED_FOR, names.EVICTIONS, names.QUEUED_SINCE)
CARRIED = (*_SERVICE, *_EVICTIONS)
"""Annotations of a PodGroup that go over to the next one of a restarted Volcano Job."""


def written(past: AttainedService) -> dict[str, str | None]:
    """Return the annotations, in whole seconds, rounded down."""
    return {
        names.ATTAINED: durations.write(past.attained),
        names.ATTAINED_AT: rfc3339(past.at),
        names.SUSPENSIONS: str(past.suspensions),
    }


def carried(annotations: Mapping[str, str], created: str) -> dict[str, str]:
    """Return the records on an object for its successor, those of evictions included.

    ``created``: its creation time (RFC 3339). The successor of an evicted group counts
    from that time in the order of its queue.
    """
    evictions = {name: annotations[name] for name in _EVICTIONS if name in annotations}
    if names.EVICTED_FOR in evictions:
        evictions.setdefault(names.QUEUED_SINCE, created)
    if names.ATTAINED not in annotations:
        return evictions
    record = {name: annotations[name] for name in _SERVICE if name in annotations}
    return {names.ATTAINED_SINCE: created} | record | evictions


def attained_service_of(annotations: Mapping[str, str], created: float) -> AttainedService | None:
    """Return the stored record; ``None`` without one, or if it cannot be true.

    ``created``: creation time of the object.
    """
    if names.ATTAINED not in annotations:
        return None
    try:
        return _read(annotations, created)
    except ValueError:
        return None


def problem(annotations: Mapping[str, str], created: float) -> str:
    """Return the problem of the record as text; "" without one."""
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
        raise ValueError(f"{name}: {annotations[name]} is negative")
    if at < created - SLACK_SECONDS:
        raise ValueError(
            f"{names.ATTAINED_AT}: {annotations[names.ATTAINED_AT]} is before the object was created"
            f" ({rfc3339(created)}): it was copied from another one"
        )
    if attained > at - created + SLACK_SECONDS:
        raise ValueError(
            f"{names.ATTAINED}: {annotations[names.ATTAINED]} is longer than the object existed by"
            f" {annotations[names.ATTAINED_AT]} (since {rfc3339(created)})"
        )
    return AttainedService(attained, at, int(times), since)


def _said(annotations: Mapping[str, str], name: str, read: Callable[[str], _Said]) -> _Said:
    text = annotations.get(name, "")
    try:
        return read(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {error}" if text else f"{name} is missing") from None

"""Peak demand on a node over time."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

Units = dict[int, int]
"""Column → units."""
Event = tuple[float, int, Iterable[tuple[int, int]]]
"""Time, 1 for a start and -1 for an end, and columns with units."""
_event_order = itemgetter(0, 1)


def peak(events: list[Event]) -> Units:
    """Return the maximum need over time by column, where it is positive.

    At equal times, ends come before starts. ``events`` are sorted in place.
    """
    events.sort(key=_event_order)
    need: Units = {}
    maximum: Units = {}
    for _, sign, resources in events:
        for column, units in resources:
            total = need[column] = need.get(column, 0) + sign * units
            if total > 0 and total > maximum.get(column, 0):
                maximum[column] = total
    return maximum

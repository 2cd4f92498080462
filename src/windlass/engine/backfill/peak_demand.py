"""The most that is needed of a node at any moment, by those who come and go there."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

Units = dict[int, int]
"""Column → units."""
Event = tuple[float, int, Iterable[tuple[int, int]]]
"""Moment, 1 for who begins and -1 for who ends, and columns with units."""
_moment = itemgetter(0, 1)


def peak(events: list[Event]) -> Units:
    """The most that is needed at any moment, by column, where anything is; whoever ends at a moment makes room for who
    begins then. ``events`` are put in their order."""
    events.sort(key=_moment)
    need: Units = {}
    most: Units = {}
    for _, sign, amounts in events:
        for column, units in amounts:
            found = need[column] = need.get(column, 0) + sign * units
            if found > 0 and found > most.get(column, 0):
                most[column] = found
    return most

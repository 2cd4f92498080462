"""The groups of a bucket in their order, and which of them end soon enough.

A group that comes behind another may pass it where room is kept for somebody, if it ends before that room is
needed. Groups of one bucket differ in that alone, so the first of those that end within some time is found here:
at once if there is none, else by a walk that ends with the find.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

_SLACK = 32
"""So many places at the front may be empty."""


class OrderedGroups:
    """``(order key, key)`` of every member, sorted; ``times``: key → after how many seconds of running a member has
    ended for certain, of those of whom that is known."""

    __slots__ = ("_ends", "_first", "_order", "_places", "times")

    def __init__(self) -> None:
        self._order: list[tuple[Any, str]] = []
        self._places: dict[str, Any] = {}
        """Key → its order key here."""
        self._first = 0
        """Places before this are empty."""
        self._ends: list[tuple[float, str]] = []
        """A heap over ``times``; entries that no longer hold are dropped when met."""
        self.times: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        """The keys in order."""
        order = self._order
        return (order[at][1] for at in range(self._first, len(order)))

    def enter(self, order_key: Any, key: str, time: float | None) -> None:
        """A member comes."""
        entry = (order_key, key)
        self._places[key] = order_key
        order = self._order
        if not order or order[-1] < entry:
            order.append(entry)
        else:
            insort(order, entry, lo=self._first)
        if time is not None:
            self.retime(key, time)

    def retime(self, key: str, time: float | None) -> None:
        """How long a member runs is known, or not, as it is now."""
        if time is None:
            self.times.pop(key, None)
        elif self.times.get(key) != time:
            self.times[key] = time
            heapq.heappush(self._ends, (time, key))

    def leave(self, key: str) -> None:
        """A member goes. Raises ``KeyError`` if it does not stand here."""
        order, place = self._order, self._places.pop(key)
        first = self._first
        at = first if order[first][1] == key else bisect_left(order, (place, key), lo=first)
        if at == first:
            order[at] = ((), "")
            self._first += 1
            if self._first > _SLACK and 2 * self._first > len(order):
                del order[: self._first]
                self._first = 0
        else:
            del order[at]
        if self.times:
            self.times.pop(key, None)

    def place(self, key: str) -> Any:
        """The order key of a member. Raises ``KeyError`` if it does not stand here."""
        return self._places[key]

    def head(self) -> str | None:
        """The first member."""
        return self._order[self._first][1] if self._first < len(self._order) else None

    def foremost(self, keys: Iterable[str]) -> str:
        """The first in order of some members."""
        places = self._places
        return min([(places[key], key) for key in keys])[1]

    def ends_within(self, key: str, seconds: float) -> bool:
        """Whether a member is known to end within so many seconds."""
        time = self.times.get(key)
        return time is not None and time <= seconds

    def within(self, seconds: float) -> str | None:
        """The first member that ends within so many seconds."""
        times, ends = self.times, self._ends
        while ends and times.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        if not ends or ends[0][0] > seconds:
            return None
        for key in self:
            time = times.get(key)
            if time is not None and time <= seconds:
                return key
        return None
